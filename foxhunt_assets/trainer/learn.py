"""The learning minibatch: gather, encode, heads, one backward a head, combine, backward encoder, optimise, target.

Heads backpropagate to h one by one into buffers named grad_h_t.<head>; they are added in the fixed order of HEADS,
and the encoder backpropagates once. PPO rows come from the rollout window, C51 rows from replay, in one pass.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from foxhunt_assets.contracts.buffers import BufferSpec
from foxhunt_assets.simulator.actions import N_ACTIONS
from foxhunt_assets.trainer import encoder, heads, losses
from foxhunt_assets.trainer.optimizer import AdamW, clip_factor
from foxhunt_assets.trainer.params import BRANCHES, ENCODER_BRANCHES, HEAD_BRANCHES, grads_into
from foxhunt_assets.trainer.program import Flags, Stage
from foxhunt_assets.trainer.replay import INSERTED, Batch
from foxhunt_assets.trainer.rollout import RESULTS, WRITES
from foxhunt_assets.trainer.stats import Stats
from foxhunt_assets.trainer.world import World
from kernels.gather import op as gather

HEADS = HEAD_BRANCHES  # the order in which gradients are added

# Means, maxima and last values over the minibatches of the last window; 0 before the first.
POLICY = (
    "loss_pi", "loss_v", "entropy_bonus", "kl", "ratio_mean", "ratio_max", "clip_frac", "bias", "error_abs", "kl_first",
    "kl_last", "minibatches", "v", "return", "v_v", "v_return",
)  # fmt: skip
# Of the last minibatch with replay rows.
REPLAY = (
    "loss_q", "td_abs_mean", "td_abs_max", "td_signed_mean", "target_mean", "target_std", "double_q_gap", "sat_hi",
    "sat_lo", "overshoot", "target_abs_max", "mass_err_max", "ess_frac", "priority_mean", "weight_mean", "weight_min",
    "age_mean", "age_max", "unique_frac", "closed_frac", "terminated_frac", "positive_frac", "draw_mean",
)  # fmt: skip
# Of this row's last AdamW step; 0 in rows without one.
OPTIM = (
    *(f"{b}.grad_norm" for b in BRANCHES), *(f"{b}.update_ratio" for b in BRANCHES), "grad_norm_pre_clip",
    "update_norm", "adam_snr", "grad_abs_max", "zero_grad_frac", "stepped",
    *(f"grad_trunk.{h}" for h in HEADS), "grad_trunk.rec", "grad_trunk.combined",
)  # fmt: skip
POLICY_STATS = Stats("stats_policy", POLICY)
REPLAY_STATS = Stats("stats_replay", REPLAY)
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
        c = world.config.learning
        self.c = c
        self.m = c.window_rows * world.config.model.accounts // c.window_minibatches
        self.adam = AdamW(c.beta1, c.beta2, c.adam_eps, c.weight_decay)
        self.rates = self._rates()

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
                ("learn_gate", "replay_draws", "stats_policy", "stats_replay"),
                ("replay",),
            ),
            Stage("encode", self.encode, ("learn_x", "learn_x_next", "weights")),
            Stage("heads", self.heads, ("weights", "target_q", "isv_full")),
            Stage(
                "losses",
                self.losses,
                (*WRITES, *RESULTS),
                (),
                ("learn_gate", "stats_policy", "stats_replay", "kl_stops"),
            ),
            *(Stage(f"backward_{h}", self._backward(h), ("weights",), (f"grad_h_t.{h}",), ("grads",)) for h in HEADS),
            Stage("combine", self.combine, (*grads_h, "learn_gate"), ("grad_h_t_combined",), ("stats_optim",)),
            Stage(
                "backward_encoder",
                self.backward_encoder,
                ("grad_h_t_combined", "learn_gate"),
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
            Stage("target", self.target, ("weights", "learn_gate", "isv_full"), (), ("target_q",)),
            Stage("priorities", self.priorities, (), (), ("priority_tree", "clock")),
        ]

    # --- stages, in order ------------------------------------------------------------------------

    def shuffle(self, _: Flags) -> None:
        self.w.rollout.shuffle(self.w.seed, self.w.clock.update)

    def gather(self, _: Flags) -> None:
        """Pick M rows of the epoch's shuffle and S transitions of the ring; gather their windows."""
        w, b, minibatch = self.w, self.w.buffers, self.w.clock.minibatch
        first = minibatch == 0
        b["learn_gate"].masked_fill_(first, 1.0)
        b["stats_policy"].masked_fill_(first, 0.0)
        self.rollout = w.rollout.minibatch(minibatch % self.c.window_minibatches)
        self.batch: Batch = w.replay.sample(w.seed, w.clock.update)
        self.replay = self.batch.columns
        parts = ("anchor", "acct", "carry")
        self.anchors, self.account, self.carry = (torch.cat([self.rollout[x], self.replay[x]]) for x in parts)
        window, tape = w.config.model.window, w.tape
        b["learn_x"].copy_(gather.windows(tape.features, tape.segment_start, self.anchors, window))
        self.anchors_next = self.replay["anchor"] + 1
        b["learn_x_next"].copy_(gather.windows(tape.features, tape.segment_start, self.anchors_next, window))

    def encode(self, _: Flags) -> None:
        w, b = self.w, self.w.buffers
        self.p = w.layout.leaves(b["weights"])
        self.carry_leaf = self.carry.requires_grad_()
        encoded = encoder.encode(self.p, b["learn_x"], self.account, self.carry_leaf, w.tape.dt[self.anchors])
        self.h_graph = encoded.h
        self.h = encoded.h.detach().requires_grad_()
        acct, carry = self.replay["acct_next"], self.replay["carry_next"]
        with torch.no_grad():
            self.h_next = encoder.encode(self.p, b["learn_x_next"], acct, carry, w.tape.dt[self.anchors_next]).h

    def heads(self, _: Flags) -> None:
        """Head outputs on the rows each head learns from, and the Bellman target of the replay rows."""
        w, b, p = self.w, self.w.buffers, self.p
        row, h_roll, h_replay = self.replay, self.h[: self.m], self.h[self.m :]
        self.pi = heads.pi_logits(p, h_roll)
        self.v = heads.value(p, h_roll)
        self.frd = heads.frd_logits(p, h_roll, len(w.config.labels.horizons))
        q_logits = heads.q_logits(p, h_replay, N_ACTIONS)
        rows = torch.arange(row["action"].numel(), device=w.device)
        self.q_taken = q_logits[rows, row["action"]]
        ended = row["trade_closed"] | row["terminated"]
        with torch.no_grad():
            target = w.layout.views(b["target_q"], "q")
            self.bellman = losses.BellmanTarget(
                heads.q_logits(p, self.h_next, N_ACTIONS), heads.q_logits(target, self.h_next, N_ACTIONS),
                row["legal_next"], row["reward_raw"] * w.reward_scale,
                self.c.gamma * (~ended).to(torch.float32), w.support(),
            )  # fmt: skip

    def losses(self, _: Flags) -> None:
        """Scalar loss of each head, and what the diagnostics keep of the minibatch."""
        w, c, row = self.w, self.c, self.rollout
        legal, action = row["legal"], row["action"]
        probabilities = heads.behaviour(self.pi, legal, w.pi_floor)
        log_pi = torch.log(probabilities.gather(1, action[:, None])[:, 0])
        log_ratio = log_pi - row["log_pi"]
        ratio = torch.exp(log_ratio)
        raw_advantage = w.rollout.b["rollout_advantage"]
        spread = raw_advantage.std(unbiased=False).clamp_min(1e-8)
        advantage = (row["advantage"] - raw_advantage.mean()) / spread
        returns, old = row["return"], row["value"]
        entropy = heads.entropy(heads.masked_softmax(self.pi, legal)).mean()
        self.entropy_bonus = c.entropy_coef * entropy
        loss_pi = losses.ppo_surrogate(ratio, advantage, c.clip_eps).mean()
        loss_v = losses.clipped_value(self.v, old, returns, c.value_clip).mean()
        labels = w.tape.labels[self.anchors[: self.m]]
        frd, valid = losses.masked_cross_entropy(self.frd, labels)
        self.q_loss_rows = losses.c51.cross_entropy(self.q_taken, self.bellman.mass)
        self.loss = {
            "q": (self.batch.weights * self.q_loss_rows).mean(),
            "pi": loss_pi - self.entropy_bonus,
            "v": loss_v,
            "frd": frd.sum() / valid.sum().clamp_min(1),
        }
        with torch.no_grad():
            self._keep_policy(loss_pi, loss_v, log_ratio, ratio, returns)
            self._keep_replay()

    def _backward(self, head: str):
        names = [p.name for p in self.w.layout.table if p.branch == head]

        def run(_: Flags) -> None:
            b = self.w.buffers
            grad_h, *grads = torch.autograd.grad(self.loss[head], [self.h, *(self.p[n] for n in names)])
            b[f"grad_h_t.{head}"].copy_(grad_h)
            grads_into(b["grads"], self.w.layout, dict(zip(names, grads)))

        return run

    def combine(self, _: Flags) -> None:
        b = self.w.buffers
        total = b["grad_h_t_combined"]
        total.zero_()
        for head in HEADS:
            total.add_(b[f"grad_h_t.{head}"])
        norms = {f"grad_trunk.{h}": b[f"grad_h_t.{h}"].norm() for h in HEADS}
        self._keep_step(norms | {"grad_trunk.combined": total.norm()})

    def backward_encoder(self, _: Flags) -> None:
        b, layout = self.w.buffers, self.w.layout
        names = [p.name for p in layout.table if p.branch in ENCODER_BRANCHES]
        grad_carry, *grads = torch.autograd.grad(
            self.h_graph, [self.carry_leaf, *(self.p[n] for n in names)], grad_outputs=b["grad_h_t_combined"]
        )
        grads_into(b["grads"], layout, dict(zip(names, grads)))
        self._keep_step({"grad_trunk.rec": grad_carry.norm()})
        del self.h_graph

    def optimise(self, _: Flags) -> None:
        b, layout = self.w.buffers, self.w.layout
        weights, grads, gate = b["weights"], b["grads"], b["learn_gate"][0]
        before = {branch: weights[where].norm() for branch, where in layout.branches.items()}
        norms = {branch: grads[where].norm() for branch, where in layout.branches.items()}
        total = grads.double().norm()  # of the whole buffer: that the branches add up to it shows they cover it
        clipped = grads * clip_factor(total, self.c.grad_clip).to(grads.dtype)
        change = self.adam.step(weights, clipped, b["adam_m"], b["adam_v"], b["adam_t"], self.rates, gate)
        tiny = torch.finfo(torch.float32).tiny
        moved = {
            f"{branch}.update_ratio": change[where].norm() / before[branch].clamp_min(tiny)
            for branch, where in layout.branches.items()
        }
        if_stepped = {
            **{f"{branch}.grad_norm": norm for branch, norm in norms.items()}, **moved,
            "grad_norm_pre_clip": total, "update_norm": change.double().norm(), "adam_snr": self._snr(),
            "grad_abs_max": grads.abs().max(), "zero_grad_frac": (grads.abs() < tiny).double().mean(), "stepped": 1.0,
        }  # fmt: skip
        self._keep_step(if_stepped)

    def target(self, _: Flags) -> None:
        """Polyak step of the target Q head."""
        b = self.w.buffers
        rate = self.c.target_tau * b["learn_gate"][0]
        b["target_q"].lerp_(b["weights"][self.w.layout.branches["q"]], rate)

    def priorities(self, _: Flags) -> None:
        self.w.replay.update(self.batch, self.q_loss_rows)
        self.w.clock.minibatch_done(self.c.window_epochs * self.c.window_minibatches)

    # --- what the diagnostics keep ---------------------------------------------------------------

    def _keep_step(self, values: Mapping[str, torch.Tensor | float]) -> None:
        """Numbers of this minibatch's AdamW step; one that the gate leaves out keeps those of the step before."""
        b = self.w.buffers
        last, gate = b["stats_optim"], b["learn_gate"][0]
        for name, value in values.items():
            at = OPTIM_STATS.index[name]
            now = value.to(torch.float64) if isinstance(value, torch.Tensor) else torch.full_like(last[at], value)
            last[at] = torch.where(gate > 0, now, last[at])

    def _snr(self) -> torch.Tensor:
        b, c = self.w.buffers, self.c
        t = b["adam_t"].to(torch.float32).clamp_min(1.0)
        m_hat = b["adam_m"] / (1 - c.beta1**t)
        return (m_hat.abs() / ((b["adam_v"] / (1 - c.beta2**t)).sqrt() + c.adam_eps)).double().mean()

    def _keep_policy(
        self, loss_pi: torch.Tensor, loss_v: torch.Tensor, log_ratio: torch.Tensor, ratio: torch.Tensor,
        returns: torch.Tensor,
    ) -> None:  # fmt: skip
        """Running means over the minibatches applied so far in this window, then close the gate if KL is too large."""
        b, gate = self.w.buffers, self.w.buffers["learn_gate"]
        kl = losses.k3(log_ratio).mean().double()
        applied = gate[0].double() * (kl <= self.c.kl_stop).double()
        get = {name: POLICY_STATS.get(b, name).clone() for name in POLICY}
        n = get["minibatches"] + applied
        eps, v, g = self.c.clip_eps, self.v.detach().double(), returns.double()
        means = {
            "loss_pi": loss_pi, "loss_v": loss_v, "entropy_bonus": self.entropy_bonus, "kl": kl,
            "ratio_mean": ratio.mean(), "clip_frac": ((ratio - 1).abs() > eps).double().mean(),
            "bias": (self.v - returns).mean(), "error_abs": (self.v - returns).abs().mean(),
            "v": v.mean(), "return": g.mean(), "v_v": (v * v).mean(), "v_return": (v * g).mean(),
        }  # fmt: skip
        values = {k: get[k] + applied * (now.double() - get[k]) / n.clamp_min(1) for k, now in means.items()}
        first = (get["minibatches"] == 0).double() * gate[0].double()
        values |= {
            "minibatches": n,
            "ratio_max": torch.maximum(get["ratio_max"], applied * ratio.max().double()),
            "kl_first": torch.where(first > 0, kl.clamp_min(0), get["kl_first"]),
            "kl_last": torch.where(applied > 0, kl.clamp_min(0), get["kl_last"]),
        }
        POLICY_STATS.put(b, values)
        b["kl_stops"].add_((gate > applied).to(torch.int64))
        gate.fill_(0).add_(applied.to(gate.dtype))

    def _keep_replay(self) -> None:
        w, b, t, batch = self.w, self.w.buffers, self.bellman, self.batch
        support, row = w.support(), batch.columns
        q = (torch.softmax(self.q_taken, -1) * support).sum(-1)
        error = (t.expectation - q).double()
        low, high = support[0], support[-1]
        over, under = (t.shifted - high).clamp_min(0), (low - t.shifted).clamp_min(0)
        outside = (over > 0) | (under > 0)
        age = (b["replay_step"].max() - row["step"]).double()
        weights = batch.weights.double()
        REPLAY_STATS.put(
            b,
            {
                "loss_q": self.loss["q"], "td_abs_mean": error.abs().mean(), "td_abs_max": error.abs().max(),
                "td_signed_mean": error.mean(), "target_mean": t.expectation.double().mean(),
                "target_std": t.expectation.double().std(unbiased=False),
                "double_q_gap": t.double_q_gap.double().mean(),
                "sat_hi": (over > 0).double().mean(), "sat_lo": (under > 0).double().mean(),
                "overshoot": ((over + under).double().sum() / outside.sum().clamp_min(1)),
                "target_abs_max": t.shifted.abs().max(), "mass_err_max": (t.mass.sum(-1) - 1).abs().max(),
                "ess_frac": (weights.sum() ** 2 / (weights.numel() * (weights**2).sum())).clamp_max(1.0),
                "priority_mean": batch.priorities.double().mean(), "weight_mean": weights.mean(),
                "weight_min": weights.min(), "age_mean": age.mean(), "age_max": age.max(),
                "unique_frac": distinct(batch.indices).double() / batch.indices.numel(),
                "closed_frac": row["trade_closed"].double().mean(),
                "terminated_frac": row["terminated"].double().mean(),
                "positive_frac": (row["reward_raw"] > 0).double().mean(),
                "draw_mean": batch.draws.double().mean(),
            },
        )  # fmt: skip


def distinct(values: torch.Tensor) -> torch.Tensor:
    """0-dim int64: how many different numbers there are."""
    ordered = values.sort().values
    return (ordered[1:] != ordered[:-1]).sum() + 1


def slope(x: torch.Tensor, y: torch.Tensor, x_x: torch.Tensor, x_y: torch.Tensor) -> torch.Tensor:
    """Least-squares slope of y on x from the means of both, of x^2 and of x y; 0 where x varies by rounding alone."""
    variance = x_x - x * x
    return torch.where(variance > 1e-12 * x_x, (x_y - x * y) / variance.clamp_min(1e-300), 0.0)
