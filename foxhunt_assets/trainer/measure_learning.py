"""Leaves of learning: losses, gradients, optimiser, replay, rollout window, weights and their checksums, slots.

Leaves of "the last policy update" and of replay rows repeat between updates and are 0 before the first; leaves of
the optimiser are of this row's last AdamW step and 0 in a row without one. A group measures numbers on the device
and makes leaves of them on the host.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import itemgetter

import torch

from foxhunt_assets.contracts.buffers import BufferSpec
from foxhunt_assets.simulator.actions import N_ACTIONS
from foxhunt_assets.simulator.state import specs as account_specs
from foxhunt_assets.simulator.units import REASONS, TRADE_FIELDS
from foxhunt_assets.trainer import learn, replay, rollout, slots
from foxhunt_assets.trainer.collect import Collector
from foxhunt_assets.trainer.config import TrainerConfig
from foxhunt_assets.trainer.numbers import Group, Numbers, Read, Row
from foxhunt_assets.trainer.params import BRANCHES
from foxhunt_assets.trainer.world import World
from kernels.digest import op as digest
from kernels.distances.op import Distances
from kernels.events import op as events
from kernels.spectral.op import Powers
from kernels.sumtree import op as sumtree

SPECTRAL = {
    "q_out": "q_out_w", "pi_out": "pi_out_w", "v_out": "v_out_w", "frd_w1": "frd_w1", "frd_w2": "frd_w2",
    "mamba2_l1_w_in": "mamba2_l1_w_in", "mamba2_l2_w_in": "mamba2_l2_w_in", "cfc_w_rec": "cfc_w_rec", "vsn_w": "vsn_w",
}  # fmt: skip
# The coverage events of a determinism verdict; those whose system is not built yet cannot be reached.
EVENTS = (
    "replay warm", "ring wrap", "first close", "trail close", "outcome label used", "first PPO window", "KL stop",
    "drawdown lock", "loss-streak cooldown", "Kelly release", "edge alarm", "segment end", "length end",
    "all eleven actions executed", "plasticity firing", "eval boundary",
)  # fmt: skip

# Where each event that a step can reach lies in EVENTS, in the order of events.EVENTS.
_REACHED = (
    "first close", "trail close", "segment end", "length end", "replay warm", "ring wrap", "first PPO window",
    "KL stop", "all eleven actions executed",
)  # fmt: skip


def specs(world: World) -> list[BufferSpec]:
    """Power-iteration vectors, birth weights, digest chains and the events seen; group "diag"."""
    shapes = {p.name: p.shape for p in world.layout.table}
    return [
        *(BufferSpec(f"spectral_u.{n}", (shapes[w][0],), "float32", "diag", fill=1.0) for n, w in SPECTRAL.items()),
        BufferSpec("birth_weights", (world.layout.size,), "float32", "diag", ("parameter",)),
        BufferSpec("digest_chains", (2,), "int64", "diag", ("replay_rollout",)),
        BufferSpec("events_seen", (len(EVENTS),), "bool", "diag", ("event",)),
        BufferSpec("actions_seen", (N_ACTIONS,), "bool", "diag", ("action",)),
    ]  # fmt: skip


def groups(w: World, c: Collector) -> list[Group]:
    """All of a row, of either phase."""
    b, checksums, coverage = w.buffers, Checksums(w, c), Coverage(w, c)
    found = [
        Group("events", coverage.measure, coverage.finish, coverage.reads, coverage.inouts),
        Group("checksums", checksums.measure, checksums.finish, checksums.reads, checksums.inouts),
        Group("slots", measured_slots(b["isv_full"]), lambda read: slot_leaves(w.config, read), ("isv_full",)),
    ]
    if w.evaluating:
        return found
    learning, drift, spectra = LearningLeaves(), Drift(w), Spectra(w)
    return [
        *found,
        Group("learning", lambda: {name: b[name] for name in learning.buffers}, learning, learning.buffers),
        Group("memory", lambda: memory(w), lambda read: memory_leaves(w.replay.capacity, read), _REMEMBERED),
        Group("drift", drift.measure, drift.finish, ("weights", "target_q"), ("birth_weights",)),
        Group("spectra", spectra.measure, spectra.finish, ("weights",), spectra.names),
    ]  # fmt: skip


# Leaf: name of the number it is.
_OF_POLICY = {
    "loss.pi": "loss_pi", "loss.v": "loss_v", "loss.entropy_bonus": "entropy_bonus", "pi.kl_old_new": "kl",
    "pi.ratio_mean": "ratio_mean", "pi.ratio_max": "ratio_max", "pi.clip_frac": "clip_frac", "v.bias_mean": "bias",
    "v.error_abs_mean": "error_abs", "rollout.kl_first": "kl_first", "rollout.kl_last": "kl_last",
    "rollout.minibatches_run": "minibatches",
}  # fmt: skip
_OF_REPLAY = {
    "loss.q": "loss_q", "q.td_abs_mean": "td_abs_mean", "q.td_abs_max": "td_abs_max",
    "q.td_signed_mean": "td_signed_mean", "q.target_mean": "target_mean", "q.target_std": "target_std",
    "q.double_q_gap": "double_q_gap", "c51.target_sat_hi_frac": "sat_hi", "c51.target_sat_lo_frac": "sat_lo",
    "c51.target_overshoot": "overshoot", "c51.target_abs_max": "target_abs_max",
    "c51.target_mass_err_max": "mass_err_max", "per.is_weight_ess_frac": "ess_frac",
    "per.sampled_priority_mean": "priority_mean", "per.is_weight_mean": "weight_mean",
    "per.is_weight_min": "weight_min", "per.sample_age_mean": "age_mean", "per.sample_age_max": "age_max",
    "per.sample_unique_frac": "unique_frac", "per.sample_trade_closed_frac": "closed_frac",
    "per.sample_terminated_frac": "terminated_frac", "per.sample_positive_frac": "positive_frac",
    "audit.replay_draw_mean": "draw_mean",
}  # fmt: skip
_OF_OPTIM = {
    **{f"optim.{x}.{kind}": f"{x}.{kind}" for x in BRANCHES for kind in ("grad_norm", "update_ratio")},
    "optim.grad_norm_pre_clip": "grad_norm_pre_clip", "optim.update_norm": "update_norm",
    "optim.adam_snr": "adam_snr", "optim.grad_abs_max": "grad_abs_max", "numerics.zero_grad_frac": "zero_grad_frac",
    "grad_trunk.c51": "grad_trunk.q",
    **{name: name for name in (f"grad_trunk.{part}" for part in ("pi", "v", "frd", "rec", "combined"))},
}  # fmt: skip
_OF_PI = ("adv_pos_frac", "adv_trade_minus_hold")
_OF_WINDOW = {f"{'pi' if name in _OF_PI else 'rollout'}.{name}": name for name in rollout.WINDOW_STATS.names}
_SLOPE = itemgetter(*(learn.POLICY_STATS.index[name] for name in ("v", "return", "v_v", "v_return")))


class LearningLeaves:
    """Losses and statistics of the last policy update and the last replay rows, gradients and updates of this row's
    last AdamW step, what the last finished rollout window looked like. Places are looked up once: a row is finished
    within a captured step."""

    def __init__(self) -> None:
        tables = (
            (learn.POLICY_STATS, _OF_POLICY), (learn.REPLAY_STATS, _OF_REPLAY), (learn.OPTIM_STATS, _OF_OPTIM),
            (rollout.WINDOW_STATS, _OF_WINDOW),
        )  # fmt: skip
        self.buffers = tuple(stats.buffer for stats, _ in tables)
        self.places = [
            (leaf, stats.buffer, stats.index[name]) for stats, table in tables for leaf, name in table.items()
        ]

    def __call__(self, read: Read) -> Row:
        row: Row = {leaf: read[buffer][i] for leaf, buffer, i in self.places}
        row["v.calibration_slope"] = slope(*_SLOPE(read[learn.POLICY_STATS.buffer]))
        return row


def slope(x: float, y: float, x_x: float, x_y: float) -> float:
    """Least-squares slope of y on x from the means of both, of x^2 and of x y; 0 where x varies by rounding alone."""
    variance = x_x - x * x
    return (x_y - x * y) / variance if variance > 1e-12 * x_x else 0.0


_COUNTED = ("replay_count", "rollout_t", "rollout_windows", "kl_stops")
_REMEMBERED = ("priority_tree", "replay_draws", *_COUNTED)


def memory(w: World) -> Numbers:
    """The replay ring after this row and where the rollout window stands."""
    b = w.buffers
    return {
        "moments": sumtree.moments(b["priority_tree"], b["replay_draws"], b["replay_count"]),
        "root": b["priority_tree"][1],
        **{name: b[name] for name in _COUNTED},
    }


def memory_leaves(capacity: int, read: Read) -> Row:
    """Leaves of `memory`."""
    mass, square, largest, never = read["moments"]
    (count,), length = read["replay_count"], min(read["replay_count"][0], capacity)
    return {
        "per.len": length, "per.inserts_cum": count, "per.tree_sum": read["root"], "per.priority_max": largest,
        "per.priority_ess_frac": mass**2 / max(length * square, 1e-300),
        "per.never_sampled_frac": never / max(length, 1), "rollout.t": read["rollout_t"][0],
        "rollout.windows_cum": read["rollout_windows"][0], "rollout.kl_stops_cum": read["kl_stops"][0],
    }  # fmt: skip


class Drift:
    """Norms of the weights after a row and how far they moved since the run began."""

    def __init__(self, world: World) -> None:
        b, layout = world.buffers, world.layout
        flat, birth, online = b["weights"], b["birth_weights"][layout.encoder], b["weights"][layout.branches["q"]]
        pairs = ((flat, None), (flat[layout.encoder], birth), (birth, None), (online, b["target_q"]), (online, None))
        self.distances = Distances(pairs)

    def measure(self) -> Numbers:
        return {"distances": self.distances.run().flatten()}

    def finish(self, read: Read) -> Row:
        norm, largest, moved, _, birth, _, apart, _, online, _ = read["distances"]
        return {
            "optim.weight_norm": norm,
            "numerics.weight_abs_max": largest,
            "numerics.trunk_drift_from_init": moved / birth,
            "target_net.drift_q": apart / max(online, 1e-300),
        }


class Spectra:
    """Largest singular values of weight matrices after a row, by power iteration from row to row."""

    def __init__(self, world: World) -> None:
        b, views = world.buffers, world.layout.views(world.buffers["weights"])
        self.names = tuple(f"spectral_u.{name}" for name in SPECTRAL)
        self.powers = Powers([views[w] for w in SPECTRAL.values()], [b[name] for name in self.names])

    def measure(self) -> Numbers:
        return {"sigmas": self.powers.step()}

    def finish(self, read: Read) -> Row:
        return {f"spectral.{name}": sigma for name, sigma in zip(SPECTRAL, read["sigmas"])}


class Checksums:
    """Digests of what the run stands on; equal in two runs, or the first unequal one names the stage.

    Two launches digest all of a row where it lies. The chains run over every row inserted into replay and rollout:
    their cost does not grow, and each seeds the next row's.
    """

    def __init__(self, world: World, collector: Collector) -> None:
        self.w, self.c = world, collector
        b, n = world.buffers, world.config.model.accounts
        self.anchor = torch.empty(n, dtype=torch.int64, device=world.device)
        self.labels = torch.empty(n, world.tape.labels.shape[1], dtype=torch.int64, device=world.device)
        self.parts: dict[str, list[torch.Tensor]] = self._of_either_phase()
        self.chains: dict[str, torch.Tensor] = {}
        short = {"encoder.h_t": b["h_t"], "pi.logits": b["pi_logits"], "rewards.raw": b["reward_raw"]}
        self.reads, self.inouts = self._touched()
        if not world.evaluating:
            self._of_training()
            short["grad_trunk.combined"] = b["grad_h_t_combined"]
        narrow = {f"{name}_digest32": [x] for name, x in short.items()}
        self.names, self.wide = [*self.parts, *narrow], len(self.parts)
        everything = [*self.parts.values(), *narrow.values()]
        seeds = [self.chains.get(name, 0) for name in self.names]
        self.digests = digest.Digests(everything, seeds, range(self.wide, len(everything)))

    def _touched(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Names a measuring reads and changes."""
        account = (s.name for s in account_specs(self.w.config.model.accounts, self.w.config.env))
        either = (
            "anchor", "x", "weights", "target_q", "adam_m", "adam_v", "adam_t", *account, "h_t", "isv_full",
            "pi_logits", "reward_raw",
        )  # fmt: skip
        if self.w.evaluating:
            return either, ()
        row = (f"rollout_{c}" for c in rollout.KNOWN)
        training = (
            "priority_tree", "grads", "grad_h_t_combined", "stats_optim", "replay_count", *replay.INSERTED,
            "replay_draws", "rollout_t", *row,
        )  # fmt: skip
        return (*either, *training), ("digest_chains",)

    def _of_either_phase(self) -> dict[str, list[torch.Tensor]]:
        w, b = self.w, self.w.buffers
        views = w.layout.views(b["weights"])
        account = [b[s.name] for s in account_specs(w.config.model.accounts, w.config.env)]
        return {
            "checksums.vsn_w": [views["vsn_w"], views["vsn_b"]], "checksums.attn_q": [views["attn_q"]],
            "checksums.encoder_w": [b["weights"][w.layout.encoder]],
            "checksums.heads_w": [b["weights"][w.layout.heads]], "checksums.target_w": [b["target_q"]],
            "checksums.optimizer": [b["adam_m"], b["adam_v"], b["adam_t"]],
            "checksums.batch_inputs": [self.anchor, b["x"], self.labels],
            "checksums.accounts": [*account, b["h_t"]], "checksums.isv": [b["isv_full"]],
        }  # fmt: skip

    def _of_training(self) -> None:
        """What training alone has; the rows inserted are copied out of their rings, so that they lie still."""
        w, b, n = self.w, self.w.buffers, self.w.config.model.accounts

        def room(name: str, shape: torch.Size) -> torch.Tensor:
            return torch.empty(n, *shape, dtype=b[name].dtype, device=w.device)

        self.inserted = [room(f"replay_{x}", b[f"replay_{x}"].shape[1:]) for x in replay.TAKEN]
        self.row = [room(f"rollout_{x}", b[f"rollout_{x}"].shape[2:]) for x in rollout.KNOWN]
        self.parts |= {
            "checksums.per_tree": [b["priority_tree"]], "checksums.grads": [b["grads"]],
            "checksums.mamba2_grad_w_c_l1": [w.layout.views(b["grads"])["mamba2_l1_w_c"]],
            "checksums.replay_inserts": self.inserted[: len(replay.COLUMNS)], "checksums.rollout_inserts": self.row,
        }  # fmt: skip
        self.chains = dict(zip(("checksums.replay_inserts", "checksums.rollout_inserts"), b["digest_chains"].split(1)))

    def measure(self) -> Numbers:
        """{"digests": int64 [names], and in training "stepped": whether this row took a learning step}."""
        w, b, anchor = self.w, self.w.buffers, self.c.anchor
        self.anchor.copy_(anchor)
        torch.index_select(w.tape.labels, 0, anchor, out=self.labels)
        if w.evaluating:
            return {"digests": self.digests.run()}
        w.replay.newest(w.config.model.accounts, self.inserted)
        w.rollout.row(b["rollout_t"], self.row)
        return {"digests": self.digests.run(), "stepped": learn.OPTIM_STATS.get(b, "stepped")}

    def finish(self, read: Read) -> Row:
        """Leaves; those of a learning step are 0 in a row without one."""
        found = read["digests"]
        words = [*(digest.leaf53(digest.unsigned(d)) for d in found[: self.wide]), *found[self.wide :]]
        row: Row = dict(zip(self.names, words))
        return row if read.get("stepped", 0) else row | {name: 0 for name in _OF_A_STEP if name in row}


_OF_A_STEP = ("checksums.grads", "checksums.mamba2_grad_w_c_l1", "grad_trunk.combined_digest32")


# Leaf, slot, factor: PopArt's running statistics, and the slots that the configuration set and something reads.
_OF_SLOTS = (
    ("popart.mu", slots.POPART_MU, 1), ("popart.sigma_welford", slots.POPART_SIGMA_WELFORD, 1),
    ("risk_stack.atom_calibration.popart_sigma", slots.POPART_SIGMA, 1),
    ("risk_stack.atom_calibration.v_target_max_3sigma", slots.POPART_SIGMA, 3),
    ("isv_config.gae_lambda", slots.GAE_LAMBDA, 1), ("isv_config.pi_prob_floor", slots.PI_FLOOR, 1),
    ("isv_config.min_hold_steps", slots.MIN_HOLD, 1),
    *((f"isv_config.frd_horizon_h{h + 1}", slot, 1) for h, slot in enumerate(slots.FRD_HORIZONS)),
    ("isv_config.frd_bucket_range_sigma", slots.FRD_RANGE, 1), ("isv_config.popart_beta", slots.POPART_BETA, 1),
    ("isv_config.exploration_scale", slots.EXPLORATION_SCALE, 1),
    ("isv_config.ppo_rollout_horizon", slots.ROLLOUT_HORIZON, 1),
    ("risk_stack.cmdp.max_open_units", slots.MAX_OPEN_UNITS, 1),
    ("risk_stack.trail_factors.tighten", slots.TRAIL_TIGHTEN, 1),
    ("risk_stack.trail_factors.loosen", slots.TRAIL_LOOSEN, 1),
)  # fmt: skip


def measured_slots(isv: torch.Tensor) -> Callable[[], Numbers]:
    """Measures the slots that `slot_leaves` wants, out of all of them."""
    at = torch.tensor([slot for _, slot, _ in _OF_SLOTS], device=isv.device)
    return lambda: {"slots": isv.index_select(0, at)}


def slot_leaves(config: TrainerConfig, read: Read) -> Row:
    """Leaves of `measured_slots`."""
    row: Row = {leaf: times * value for (leaf, _, times), value in zip(_OF_SLOTS, read["slots"])}
    return row | {"rollout.enabled": int(not config.learning.per_step)}


class Coverage:
    """Which of the determinism coverage events were reached: a fault can sleep until its event."""

    def __init__(self, world: World, collector: Collector) -> None:
        self.w, self.c = world, collector
        self.places = torch.tensor([EVENTS.index(name) for name in _REACHED], device=world.device)
        reasons = (REASONS.index(name) for name in ("trail", "session", "gap", "length"))
        self.codes = events.Codes(TRADE_FIELDS.index("reason"), *reasons)
        of_training = ("replay_count", "rollout_windows", "kl_stops")
        self.reads = ("outcome", *(() if world.evaluating else of_training))
        self.inouts = ("events_seen", *(() if world.evaluating else ("actions_seen",)))

    def measure(self) -> Numbers:
        w, b, o = self.w, self.w.buffers, self.c.outcome
        seen, learned = b["events_seen"], None
        if w.evaluating:
            seen[EVENTS.index("eval boundary")].fill_(True)
        else:
            counters = (b["replay_count"], b["rollout_windows"], b["kl_stops"], b["actions_seen"])
            learned = events.Learned(o.executed, *counters, w.replay.rows, w.replay.capacity)
        step = events.Step(o.trade_closed, o.trades, o.trade_mask, o.end_reason)
        events.mark(step, self.codes, learned, self.places, seen)
        return {"events": seen}

    def finish(self, read: Read) -> Row:
        return {"audit.events_reached": sum(read["events"])}
