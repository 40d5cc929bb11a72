"""The learning minibatch: gather, encode, heads, one backward a head, combine, backward encoder, optimise, target.

Heads backpropagate to h one by one into buffers named grad_h_t.<head>; they are added in the fixed order of HEADS,
and the encoder backpropagates once. PPO rows come from the rollout window, C51 rows from replay, in one pass.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from foxhunt_assets.contracts.buffers import BufferSpec
from foxhunt_assets.simulator.actions import N_ACTIONS
from foxhunt_assets.trainer import backward, encoder, heads, replay, rollout, slots
from foxhunt_assets.trainer.lanes import Lanes
from foxhunt_assets.trainer.params import BRANCHES, HEAD_BRANCHES
from foxhunt_assets.trainer.program import Flags, Stage
from foxhunt_assets.trainer.replay import INSERTED, PRIORITY_EPS
from foxhunt_assets.trainer.rollout import RESULTS, WINDOW_STATS, WRITES
from foxhunt_assets.trainer.stats import Stats
from foxhunt_assets.trainer.world import World
from kernels.adamw.op import WHOLE, AdamW
from kernels.c51 import op as c51
from kernels.frd import op as frd
from kernels.gather import op as gather
from kernels.norms import op as norms
from kernels.ppo import op as ppo

HEADS = HEAD_BRANCHES  # the order in which gradients are added

# Of this row's last AdamW step; 0 in rows without one.
OPTIM = (
    *(f"{b}.grad_norm" for b in BRANCHES), *(f"{b}.update_ratio" for b in BRANCHES), *WHOLE,
    *(f"grad_trunk.{h}" for h in HEADS), "grad_trunk.combined", "grad_trunk.rec",
)  # fmt: skip
POLICY_STATS = Stats("stats_policy", ppo.NAMES)  # of the last window; 0 before the first
REPLAY_STATS = Stats("stats_replay", c51.NAMES)  # of the last minibatch with replay rows
OPTIM_STATS = Stats("stats_optim", OPTIM)


@dataclass(frozen=True)
class Shapes:
    """Sizes of a learning minibatch, all from the configuration."""

    rollout_rows: int
    replay_rows: int
    window: int
    features: int
    hidden: int


def specs(s: Shapes) -> list[BufferSpec]:
    """Buffers of a learning minibatch: M rollout rows, then S replay rows."""
    rows = s.rollout_rows + s.replay_rows
    return [
        BufferSpec("learn_x", (rows, s.window, s.features), "float32", "transient"),
        BufferSpec("learn_x_next", (s.replay_rows, s.window, s.features), "float32", "transient"),
        *(BufferSpec(f"grad_h_t.{h}", (rows, s.hidden), "float32", "transient") for h in HEADS),
        BufferSpec("grad_h_t_combined", (rows, s.hidden), "float32", "transient"),
        BufferSpec("learn_gate", (1,), "float32", "rollout", fill=1.0),
        BufferSpec("kl_stops", (1,), "int64", "diag"),
        POLICY_STATS.spec,
        REPLAY_STATS.spec,
        OPTIM_STATS.spec,
    ]


class Learner:
    """Stages of one learning minibatch over a world."""

    def __init__(self, world: World) -> None:
        self.w = world
        c, b = world.config.learning, world.buffers
        self.c = c
        self.m = c.window_rows * world.config.model.accounts // c.window_minibatches
        limits = {"beta1": c.beta1, "beta2": c.beta2, "eps": c.adam_eps, "weight_decay": c.weight_decay}
        self.adam = AdamW(world.layout.branches, self._rates(), **limits, clip=c.grad_clip)
        assert self.adam.names == OPTIM[: len(self.adam.names)], "AdamW's statistics lie in another order than OPTIM"
        self.ppo = ppo.PPO(c.clip_eps, c.value_clip, c.entropy_coef, world.pi_floor, c.kl_stop)
        self.double_q = c51.DoubleQ(c.gamma, PRIORITY_EPS, c.per_alpha)
        self.grads = world.layout.views(b["grads"])
        self._lanes: Lanes[Callable[[], None]] = Lanes(world.device, lambda part, before: False)
        self._allocate()

    def _allocate(self) -> None:
        """Room for the rows of a minibatch: M of the rollout, then S of replay, and what either alone has."""
        w, m, s = self.w, self.m, self.c.replay_rows

        def room(column: str, rows: int) -> torch.Tensor:
            like = w.buffers[column]
            shape = like.shape[1:] if column in INSERTED else like.shape[2:]
            return torch.empty(rows, *shape, dtype=like.dtype, device=w.device)

        self.anchors, self.account, self.carry = (room(f"replay_{x}", m + s) for x in ("anchor", "acct", "carry"))
        shared = {"anchor": self.anchors, "acct": self.account, "carry": self.carry}
        self.rollout = {x: shared[x][:m] if x in shared else room(f"rollout_{x}", m) for x in rollout.LEARNED}
        self.replay = {x: shared[x][m:] if x in shared else room(f"replay_{x}", s) for x in replay.TAKEN}

    def _rates(self) -> torch.Tensor:
        c, layout = self.c, self.w.layout
        by_branch = {"q": c.lr_q, "pi": c.lr_pi, "v": c.lr_v, "frd": c.lr_frd}
        rates = torch.empty(layout.size, device=self.w.device)
        for branch, where in layout.branches.items():
            rates[where] = by_branch.get(branch, c.lr_encoder)
        return rates

    def epoch_stages(self) -> list[Stage]:
        """What comes before an epoch's minibatches."""
        return [Stage("shuffle", self.shuffle, ("clock",), ("epoch_order",), purposes=("minibatch",))]

    def stages(self) -> list[Stage]:
        grads_h = tuple(f"grad_h_t.{h}" for h in HEADS)
        return [
            Stage(
                "gather",
                self.gather,
                (*WRITES, *RESULTS, *INSERTED, "replay_count", "priority_tree", "clock", "epoch_order"),
                ("learn_x", "learn_x_next"),
                ("replay_draws",),
                ("replay",),
            ),
            Stage("encode", self.encode, ("learn_x", "learn_x_next", "weights")),
            Stage("heads", self.heads, ("weights", "target_q")),
            Stage(
                "losses",
                self.losses,
                (WINDOW_STATS.buffer, "isv_full", "clock"),
                (),
                ("learn_gate", "stats_policy", "stats_replay", "kl_stops"),
            ),
            *(Stage(f"backward_{h}", self._backward(h), ("weights",), (f"grad_h_t.{h}",), ("grads",)) for h in HEADS),
            Stage("combine", self.combine, (*grads_h, "learn_gate"), ("grad_h_t_combined",), ("stats_optim",)),
            Stage(
                "backward_encoder",
                self.backward_encoder,
                ("grad_h_t_combined", "learn_gate", "learn_x", "weights"),
                (),
                ("grads", "stats_optim"),
            ),
            Stage(
                "optimise",
                self.optimise,
                ("grads", "learn_gate"),
                (),
                ("weights", "adam_m", "adam_v", "adam_t", "stats_optim"),
            ),
            Stage("target", self.target, ("weights", "learn_gate", "stats_optim"), (), ("target_q",)),
            Stage("priorities", self.priorities, (), (), ("priority_tree", "clock")),
        ]

    # --- stages, in order ------------------------------------------------------------------------

    def shuffle(self, _: Flags) -> None:
        self.w.rollout.shuffle(self.w.seed, self.w.clock.update)

    def gather(self, _: Flags) -> None:
        """Pick M rows of the epoch's shuffle and S transitions of the ring; gather their windows."""
        w, b = self.w, self.w.buffers
        w.rollout.minibatch(w.clock.minibatch, list(self.rollout.values()))
        self.drawn = w.replay.sample(w.seed, w.clock.update, list(self.replay.values()))
        tape, window = w.tape, w.config.model.window
        self.anchors_next = self.replay["anchor"] + 1
        gather.windows(tape.features, tape.segment_start, self.anchors, window, b["learn_x"])
        gather.windows(tape.features, tape.segment_start, self.anchors_next, window, b["learn_x_next"])

    def encode(self, _: Flags) -> None:
        w, b = self.w, self.w.buffers
        self.p = w.layout.views(b["weights"])
        self.encoder, self.dt = encoder.weights(self.p), w.tape.dt[self.anchors]
        self.encoded = encoder.encode(self.encoder, b["learn_x"], self.account, self.carry, self.dt)
        self.h = self.encoded.h
        acct, carry, dt = self.replay["acct_next"], self.replay["carry_next"], w.tape.dt[self.anchors_next]
        self.h_next = encoder.encode(self.encoder, b["learn_x_next"], acct, carry, dt).h

    def heads(self, _: Flags) -> None:
        """Head outputs on the rows each head learns from, and both networks' Q of the states replay rows led to."""
        self._side_by_side(self._policy_outputs, self._frd_outputs, self._q_outputs)

    def _side_by_side(self, *parts: Callable[[], None]) -> None:
        """Parts of a stage, none of which reads what another writes."""
        with self._lanes:
            for part in parts:
                with self._lanes.of(part, beside=True):
                    part()

    def _policy_outputs(self) -> None:
        h = self.h[: self.m]
        self.pi, self.v = heads.pi_logits(self.p, h), heads.value(self.p, h)

    def _frd_outputs(self) -> None:
        self.frd_hidden = heads.frd_hidden(self.p, self.h[: self.m])
        self.frd = heads.frd_logits(self.p, self.frd_hidden, len(self.w.config.labels.horizons))

    def _q_outputs(self) -> None:
        target = self.w.layout.views(self.w.buffers["target_q"], "q")
        pairs = ((self.p, self.h[self.m :]), (self.p, self.h_next), (target, self.h_next))
        self.q, self.q_next, self.q_target = (heads.q_logits(of, h, N_ACTIONS) for of, h in pairs)

    def losses(self, _: Flags) -> None:
        """Gradient of each head's loss to its output, and what the diagnostics keep of the minibatch."""
        self.slopes: dict[str, torch.Tensor] = {}
        self._side_by_side(self._policy_loss, self._frd_loss, self._q_loss)

    def _policy_loss(self) -> None:
        b, row = self.w.buffers, self.rollout
        self.slopes["pi"], self.slopes["v"], sums = self.ppo.gradients(
            self.pi, self.v, row["legal"], row["action"], row["log_pi"], row["advantage"], row["value"], row["return"],
            b[WINDOW_STATS.buffer][:2],
        )  # fmt: skip
        self.ppo.keep(sums, self.m, self.w.clock.minibatch, b["stats_policy"], b["learn_gate"], b["kl_stops"])

    def _frd_loss(self) -> None:
        self.slopes["frd"] = frd.gradient(self.frd, self.w.tape.labels, self.rollout["anchor"])

    def _q_loss(self) -> None:
        w, b, past = self.w, self.w.buffers, self.replay
        ends = (past["trade_closed"], past["terminated"])
        transitions = c51.Transitions(past["action"], past["legal_next"], past["reward_raw"], *ends, past["step"])
        isv = b["isv_full"]
        scale = c51.Scale(isv[slots.V_MIN], isv[slots.V_MAX], w.reward_scale, w.clock.step)
        self.slopes["q"], self.new_priorities = self.double_q.gradients(
            self.q, self.q_next, self.q_target, transitions, self.drawn, scale, b["stats_replay"]
        )

    def _backward(self, head: str) -> Callable[[Flags], None]:
        rows = slice(self.m, None) if head == "q" else slice(0, self.m)
        span, flat = self.w.layout.span, self.w.buffers["grads"]

        def run(_: Flags) -> None:
            # The rows that the head does not learn from hold the zeros they were made with.
            grad_h, h, slope, p = self.w.buffers[f"grad_h_t.{head}"][rows], self.h[rows], self.slopes[head], self.p
            if head == "frd":
                grads = (span(flat, f"frd_w{i}", f"frd_b{i}") for i in (1, 2))
                backward.frd(slope, self.frd_hidden, h, p["frd_w1"], p["frd_w2"], grad_h, *grads)
            else:
                w, b = f"{head}_out_w", f"{head}_out_b"
                backward.linear(slope, h, p[w], grad_h, span(flat, w, b))

        return run

    def combine(self, _: Flags) -> None:
        b, first = self.w.buffers, OPTIM_STATS.index[f"grad_trunk.{HEADS[0]}"]
        parts, kept = [b[f"grad_h_t.{h}"] for h in HEADS], b["stats_optim"][first : first + len(HEADS) + 1]
        norms.norms(parts, b["grad_h_t_combined"], b["learn_gate"], kept)

    def backward_encoder(self, _: Flags) -> None:
        b = self.w.buffers
        grad_carry = encoder.backward(
            self.encoder, self.encoded, b["learn_x"], self.carry, self.dt, b["grad_h_t_combined"], self.grads
        )
        norms.norms([grad_carry], None, b["learn_gate"], b["stats_optim"][OPTIM_STATS.index["grad_trunk.rec"] :])
        del self.encoded

    def optimise(self, _: Flags) -> None:
        b = self.w.buffers
        kept = b["stats_optim"][: len(self.adam.names)]
        self.adam.step(b["weights"], b["grads"], b["adam_m"], b["adam_v"], b["adam_t"], b["learn_gate"], kept)

    def target(self, _: Flags) -> None:
        """Polyak step of the target Q head, where the weights moved."""
        b = self.w.buffers
        rate = self.c.target_tau * b["learn_gate"][0] * OPTIM_STATS.get(b, "stepped").float()
        b["target_q"].lerp_(b["weights"][self.w.layout.branches["q"]], rate)

    def priorities(self, _: Flags) -> None:
        self.w.replay.update(self.drawn.indices, self.new_priorities)
        self.w.clock.minibatch_done(self.c.window_epochs * self.c.window_minibatches)
