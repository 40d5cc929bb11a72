"""The collection or evaluation step: gather, encode, heads, act, simulate, reward, replay, rollout.

Weights are frozen inside it. Evaluation runs the same stages: greedy, no exploration, nothing stored to learn from.
"""

from __future__ import annotations

import torch

from foxhunt_assets.contracts.buffers import BufferSpec
from foxhunt_assets.contracts.instruments import contract
from foxhunt_assets.simulator.actions import HOLD, LONG_ENTRIES, N_ACTIONS, SHORT_ENTRIES
from foxhunt_assets.simulator.state import specs as account_specs
from foxhunt_assets.trainer import encoder, heads, replay, reward, rollout
from foxhunt_assets.trainer.program import Flags, Stage
from foxhunt_assets.trainer.world import N_ACCOUNT, World
from kernels.gather import op as gather
from kernels.philox import op as philox
from kernels.policy import op as policy
from kernels.reward.op import Previous, error

# What the next step's TD error needs of this one.
PREVIOUS = ("prev_value", "prev_reward", "prev_terminated", "prev_truncated", "prev_valid")


def specs(world: World) -> list[BufferSpec]:
    """Buffers of the acting batch."""
    c = world.config
    b, k, h = c.model.accounts, c.model.window, c.model.hidden
    f, horizons = world.tape.features.shape[1], len(c.labels.horizons)
    shapes: dict[str, tuple[tuple[int, ...], str]] = {
        "x": ((b, k, f), "float32"), "acct_obs": ((b, N_ACCOUNT), "float32"), "legal": ((b, N_ACTIONS), "bool"),
        "q_logits": ((b, N_ACTIONS, c.model.atoms), "float32"), "q_values": ((b, N_ACTIONS), "float32"),
        "pi_logits": ((b, N_ACTIONS), "float32"), "v_t": ((b,), "float32"),
        "frd_logits": ((b, horizons, c.model.frd_atoms), "float32"), "pi": ((b, N_ACTIONS), "float32"),
        "action": ((b,), "int64"), "log_pi": ((b,), "float32"), "entry_signs": ((b, horizons), "int8"),
        "acct_obs_next": ((b, N_ACCOUNT), "float32"), "legal_next": ((b, N_ACTIONS), "bool"),
        "action_draw": ((b,), "int64"),
    }  # fmt: skip
    previous = {
        "prev_value": "float32", "prev_reward": "float32", "prev_terminated": "bool", "prev_truncated": "bool",
        "prev_valid": "bool",
    }  # fmt: skip
    return [
        *(BufferSpec(name, shape, dtype, "transient", ("account",)) for name, (shape, dtype) in shapes.items()),
        BufferSpec("carry", (b, h), "float32", "transient", ("account", "unit")),
        BufferSpec("h_t", (b, h), "float32", "carry", ("account", "unit")),
        *(BufferSpec(name, (b,), dtype, "carry", ("account",)) for name, dtype in previous.items()),
        BufferSpec("rollout_t", (1,), "int64", "rollout"),
        BufferSpec("rollout_windows", (1,), "int64", "rollout"),
    ]


class Collector:
    """Stages of one step over a world. What they leave beside the buffers are attributes (anchor, encoded, ...)."""

    def __init__(self, world: World) -> None:
        self.w = world
        self.point_lot_cents = contract(world.tape.spec.root).multiplier_cents
        self.account = tuple(s.name for s in account_specs(world.config.model.accounts, world.config.env))
        atoms = world.config.model.frd_atoms
        span = world.config.labels.range_sigma
        centred = torch.arange(atoms, device=world.device, dtype=torch.float64) - (atoms - 1) / 2
        self.frd_sigmas = centred * (2 * span / (atoms - 1))  # sigma value of each FRD atom
        self.rows = torch.arange(world.config.model.accounts, device=world.device)
        # 1 for an action that enters, -1 for a2_hold
        signs = [1 if a in (*SHORT_ENTRIES, *LONG_ENTRIES) else -1 if a == HOLD else 0 for a in range(N_ACTIONS)]
        self.entry_sign = torch.tensor(signs, dtype=torch.int8, device=world.device)

    def stages(self) -> list[Stage]:
        cleared = () if self.w.evaluating else ("stats_optim",)
        stages = [
            Stage(
                "gather", self.gather, (*self.account, "h_t"), ("x", "acct_obs", "legal", "carry"), cleared,
                results=("anchor",),
            ),
            Stage(
                "encode", self.encode, ("x", "acct_obs", "carry", "weights", "anchor"), ("h_t",),
                results=("encoded", "composed"),
            ),
            Stage(
                "heads", self.heads, ("h_t", "weights", "isv_full"),
                ("q_logits", "q_values", "pi_logits", "v_t", "frd_logits", "entry_signs"),
            ),
            Stage(
                "act", self.act, ("pi_logits", "legal", "clock"), ("pi", "action", "log_pi", "action_draw"),
                purposes=("action",),
            ),
            Stage(
                "simulate", self.simulate, ("action", "entry_signs", "clock"), ("acct_obs_next", "legal_next"),
                self.account, results=("outcome",),
            ),
            Stage(
                "reward", self.reward, ("v_t", "outcome"), ("reward_raw", "reward_scaled", "reward"),
                ("popart_state", "isv_full", *PREVIOUS), results=("td_abs",),
            ),
        ]  # fmt: skip
        return stages if self.w.evaluating else [*stages, *self._storing()]

    def _storing(self) -> list[Stage]:
        """What training alone has: the row kept to learn from. Its last stage takes longest, and hardly anything
        that is measured hangs on it."""
        seen = ("anchor", "outcome", "action", "acct_obs", "carry", "legal", "clock")
        known = tuple(f"rollout_{c}" for c in rollout.KNOWN)
        return [
            Stage(
                "replay", self.replay, (*seen, "acct_obs_next", "h_t", "legal_next", "reward_raw"), (), replay.WRITES
            ),
            Stage(
                "rollout", self.rollout, (*seen, "log_pi", "reward", "v_t"), (),
                (*rollout.WRITES, "rollout_t", "rollout_windows"),
            ),
            Stage(
                "bootstrap", self.bootstrap,
                ("outcome", "composed", "weights", "acct_obs_next", "h_t", "rollout_t", *known), (),
                ("rollout_next_value", *rollout.RESULTS),
            ),
        ]  # fmt: skip

    def advance_stages(self) -> list[Stage]:
        """What ends a row once it was measured: ended accounts start their next episode."""
        return [Stage("advance", self.advance, (), (), (*self.account, "clock"), purposes=("episode_start",))]

    # --- stages, in order ------------------------------------------------------------------------

    def gather(self, _: Flags) -> None:
        """Windows, account state, legal actions and the carry (0 where an episode starts) at the anchors."""
        w, b = self.w, self.w.buffers
        if not w.evaluating:
            b["stats_optim"].zero_()  # leaves of the optimiser are of this row's last step
        self.anchor = w.walk.anchor.clone()
        gather.windows(w.tape.features, w.tape.segment_start, self.anchor, w.config.model.window, b["x"])
        b["acct_obs"].copy_(w.simulator.observe())
        b["legal"].copy_(w.simulator.legal_mask())
        b["carry"].copy_(b["h_t"] * (~b["acct_episode_start"])[:, None])

    def encode(self, _: Flags) -> None:
        w, b = self.w, self.w.buffers
        self.composed = encoder.weights(w.layout.views(b["weights"]))
        self.encoded = encoder.encode(self.composed, b["x"], b["acct_obs"], b["carry"], w.tape.dt[self.anchor])
        b["h_t"].copy_(self.encoded.h)

    def heads(self, _: Flags) -> None:
        w, b = self.w, self.w.buffers
        names = ("q_logits", "q_values", "pi_logits", "frd_logits")
        into = heads.Outputs(v=b["v_t"], signs=b["entry_signs"], **{name: b[name] for name in names})
        heads.acting(w.layout.views(b["weights"]), b["h_t"], w.support(), self.frd_sigmas, into)

    def act(self, flags: Flags) -> None:
        """Sample from the floored policy by inverse CDF; greedy over the legal actions in evaluation."""
        w, b = self.w, self.w.buffers
        b["action_draw"].copy_(philox.words(w.seed, "action", w.clock.step, self.rows, 1)[:, 0])
        pi, action, log_pi = policy.sample(b["pi_logits"], b["legal"], b["action_draw"], w.pi_floor)
        b["pi"].copy_(pi)
        if w.evaluating:
            action = torch.full_like(action, HOLD) if flags.drain else pi.argmax(dim=1)
            log_pi = torch.log(pi.gather(1, action[:, None])[:, 0].clamp_min(1e-38))
        b["action"].copy_(action)
        b["log_pi"].copy_(log_pi)

    def simulate(self, flags: Flags) -> None:
        w, b = self.w, self.w.buffers
        phase_end = flags.last if not w.evaluating else flags.drain
        self.outcome = w.simulator.step(b["action"], w.clock.step, b["entry_signs"], phase_end, flags.drain)
        b["acct_obs_next"].copy_(w.simulator.observe())
        b["legal_next"].copy_(w.simulator.legal_mask())

    def reward(self, flags: Flags) -> None:
        """Rewards of the step, and the TD error of the step before (its bootstrap is this row's V)."""
        w, b, o = self.w, self.w.buffers, self.outcome
        reward.apply(b, o.core_cents, o.fee_cents, self.point_lot_cents, learn=not w.evaluating)
        previous = Previous(*(b[name] for name in PREVIOUS))
        gamma, valid = w.config.learning.gamma, not flags.last
        self.td_abs = error(b["v_t"], b["reward"], o.terminated, o.truncated, gamma, valid, previous)[0]

    def replay(self, _: Flags) -> None:
        """Store the transition, its reward raw."""
        w, b, o = self.w, self.w.buffers, self.outcome
        w.replay.insert(
            {
                "anchor": self.anchor, "action": b["action"], "reward_raw": b["reward_raw"],
                "trade_closed": o.trade_closed, "terminated": o.terminated, "acct": b["acct_obs"],
                "acct_next": b["acct_obs_next"], "carry": b["carry"], "carry_next": b["h_t"],
                "legal_next": b["legal_next"], "step": w.clock.step[None],
            }
        )  # fmt: skip

    def rollout(self, flags: Flags) -> None:
        """Store the row. Its V is that of the state the row before arrived in, where its episode went on."""
        w, b, o = self.w, self.w.buffers, self.outcome
        t = w.clock.step % w.config.learning.window_rows
        w.rollout.arrive(t, b["v_t"])
        w.rollout.insert(
            t,
            {
                "anchor": self.anchor, "action": b["action"], "log_pi": b["log_pi"], "reward": b["reward"],
                "value": b["v_t"], "terminated": o.terminated, "truncated": o.truncated, "acct": b["acct_obs"],
                "carry": b["carry"], "legal": b["legal"], "executed_entry": self.entry_sign[b["action"]],
            },
        )  # fmt: skip
        b["rollout_t"].fill_(t)
        if flags.closes:
            b["rollout_windows"].add_(not w.config.learning.per_step)  # of rollout mode alone

    def bootstrap(self, flags: Flags) -> None:
        """V of the state the row arrived in, which a window end, truncation or phase end bootstraps from.

        Where an episode goes on, V of the next row replaces it: the same state, seen with the next step's batch.
        """
        w = self.w
        w.rollout.bootstrap(w.buffers["rollout_t"], self._value_next())
        if flags.closes:
            w.rollout.finish()

    def advance(self, flags: Flags) -> None:
        if not flags.last:
            self.w.simulator.advance(self.w.clock.step)
        self.w.clock.row_done()

    def _value_next(self) -> torch.Tensor:
        """V of the state each account arrived in: its next row, the account as it stands there, this row's h."""
        w, b = self.w, self.w.buffers
        rows = self.outcome.next_row
        x = gather.windows(w.tape.features, w.tape.segment_start, rows, w.config.model.window)
        h = encoder.encode(self.composed, x, b["acct_obs_next"], b["h_t"], w.tape.dt[rows]).h
        return heads.value(self.composed.p, h)
