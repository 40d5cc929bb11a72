"""Leaves of learning: losses, gradients, optimiser, replay, rollout window, weights and their checksums, slots.

Leaves of "the last policy update" and of replay rows repeat between updates and are 0 before the first; leaves of
the optimiser are of this row's last AdamW step and 0 in a row without one. A group measures numbers on the device
and makes leaves of them on the host.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

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
from foxhunt_assets.trainer.stats import Stats
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
        Group(coverage.measure, lambda read: {"audit.events_reached": sum(read["events"])}),
        Group(checksums.measure, checksums.finish),
        Group(lambda: {"isv": b["isv_full"]}, lambda read: slot_leaves(w.config, read["isv"])),
    ]
    if w.evaluating:
        return found
    kept = {stats.buffer: b[stats.buffer] for stats in (learn.POLICY_STATS, learn.REPLAY_STATS, learn.OPTIM_STATS)}
    weights = Weights(w)
    return [
        *found,
        Group(lambda: dict(kept), lambda read: {**losses(read), **optimiser(read)}),
        Group(lambda: memory(w), lambda read: memory_leaves(w.replay.capacity, read)),
        Group(weights.measure, weights.finish),
    ]


def losses(read: Read) -> Row:
    """Loss leaves and the statistics of the last policy update and the last replay rows."""
    p, r = _names(learn.POLICY_STATS, read), _names(learn.REPLAY_STATS, read)
    return {
        "loss.q": r["loss_q"], "loss.pi": p["loss_pi"], "loss.v": p["loss_v"], "loss.entropy_bonus": p["entropy_bonus"],
        "q.td_abs_mean": r["td_abs_mean"], "q.td_abs_max": r["td_abs_max"], "q.td_signed_mean": r["td_signed_mean"],
        "q.target_mean": r["target_mean"], "q.target_std": r["target_std"], "q.double_q_gap": r["double_q_gap"],
        "c51.target_sat_hi_frac": r["sat_hi"], "c51.target_sat_lo_frac": r["sat_lo"],
        "c51.target_overshoot": r["overshoot"], "c51.target_abs_max": r["target_abs_max"],
        "c51.target_mass_err_max": r["mass_err_max"],
        "pi.kl_old_new": p["kl"], "pi.ratio_mean": p["ratio_mean"], "pi.ratio_max": p["ratio_max"],
        "pi.clip_frac": p["clip_frac"],
        "v.bias_mean": p["bias"], "v.error_abs_mean": p["error_abs"],
        "v.calibration_slope": slope(p["v"], p["return"], p["v_v"], p["v_return"]),
        "rollout.kl_first": p["kl_first"], "rollout.kl_last": p["kl_last"],
        "rollout.minibatches_run": p["minibatches"],
        "per.is_weight_ess_frac": r["ess_frac"], "per.sampled_priority_mean": r["priority_mean"],
        "per.is_weight_mean": r["weight_mean"], "per.is_weight_min": r["weight_min"],
        "per.sample_age_mean": r["age_mean"], "per.sample_age_max": r["age_max"],
        "per.sample_unique_frac": r["unique_frac"], "per.sample_trade_closed_frac": r["closed_frac"],
        "per.sample_terminated_frac": r["terminated_frac"], "per.sample_positive_frac": r["positive_frac"],
        "audit.replay_draw_mean": r["draw_mean"],
    }  # fmt: skip


def slope(x: float, y: float, x_x: float, x_y: float) -> float:
    """Least-squares slope of y on x from the means of both, of x^2 and of x y; 0 where x varies by rounding alone."""
    variance = x_x - x * x
    return (x_y - x * y) / variance if variance > 1e-12 * x_x else 0.0


def optimiser(read: Read) -> Row:
    """Gradients and updates of this row's last AdamW step."""
    o = _names(learn.OPTIM_STATS, read)
    heads = {"c51": "q", "pi": "pi", "v": "v", "frd": "frd"}
    return {
        **{f"optim.{x}.{kind}": o[f"{x}.{kind}"] for x in BRANCHES for kind in ("grad_norm", "update_ratio")},
        "optim.grad_norm_pre_clip": o["grad_norm_pre_clip"], "optim.update_norm": o["update_norm"],
        "optim.adam_snr": o["adam_snr"], "optim.grad_abs_max": o["grad_abs_max"],
        "numerics.zero_grad_frac": o["zero_grad_frac"],
        **{f"grad_trunk.{leaf}": o[f"grad_trunk.{head}"] for leaf, head in heads.items()},
        "grad_trunk.rec": o["grad_trunk.rec"], "grad_trunk.combined": o["grad_trunk.combined"],
    }  # fmt: skip


def memory(w: World) -> Numbers:
    """The replay ring after this row and the rollout window's last update."""
    b = w.buffers
    return {
        "moments": sumtree.moments(b["priority_tree"], b["replay_draws"], b["replay_count"]),
        "root": b["priority_tree"][1],
        **{name: b[name] for name in ("replay_count", "rollout_t", "rollout_windows", "kl_stops", "stats_window")},
    }


def memory_leaves(capacity: int, read: Read) -> Row:
    """Leaves of `memory`."""
    mass, square, largest, never = read["moments"]
    (count,), length = read["replay_count"], min(read["replay_count"][0], capacity)
    seen = _names(rollout.WINDOW_STATS, read)
    of_pi = ("adv_pos_frac", "adv_trade_minus_hold")
    return {
        "per.len": length, "per.inserts_cum": count, "per.tree_sum": read["root"], "per.priority_max": largest,
        "per.priority_ess_frac": mass**2 / max(length * square, 1e-300),
        "per.never_sampled_frac": never / max(length, 1), "rollout.t": read["rollout_t"][0],
        "rollout.windows_cum": read["rollout_windows"][0], "rollout.kl_stops_cum": read["kl_stops"][0],
        **{f"{'pi' if name in of_pi else 'rollout'}.{name}": value for name, value in seen.items()},
    }  # fmt: skip


class Weights:
    """Norms, drift and singular values of the weights after a row."""

    def __init__(self, world: World) -> None:
        b, layout = world.buffers, world.layout
        flat, birth, views = b["weights"], b["birth_weights"][layout.encoder], layout.views(b["weights"])
        online = flat[layout.branches["q"]]
        pairs = ((flat, None), (flat[layout.encoder], birth), (birth, None), (online, b["target_q"]), (online, None))
        self.distances = Distances(pairs)
        names = SPECTRAL.items()
        self.powers = Powers([views[w] for _, w in names], [b[f"spectral_u.{name}"] for name, _ in names])

    def measure(self) -> Numbers:
        return {"distances": self.distances.run().flatten(), "sigmas": self.powers.step()}

    def finish(self, read: Read) -> Row:
        norm, largest, moved, _, birth, _, apart, _, online, _ = read["distances"]
        return {
            "optim.weight_norm": norm,
            "numerics.weight_abs_max": largest,
            "numerics.trunk_drift_from_init": moved / birth,
            "target_net.drift_q": apart / max(online, 1e-300),
            **{f"spectral.{name}": sigma for name, sigma in zip(SPECTRAL, read["sigmas"])},
        }


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
        if not world.evaluating:
            self._of_training()
            short["grad_trunk.combined"] = b["grad_h_t_combined"]
        narrow = {f"{name}_digest32": [x] for name, x in short.items()}
        self.names, self.wide = [*self.parts, *narrow], len(self.parts)
        everything = [*self.parts.values(), *narrow.values()]
        seeds = [self.chains.get(name, 0) for name in self.names]
        self.digests = digest.Digests(everything, seeds, range(self.wide, len(everything)))

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
        self.row = [room(f"rollout_{x}", b[f"rollout_{x}"].shape[2:]) for x in rollout.COLUMNS]
        known = [x for name, x in zip(rollout.COLUMNS, self.row) if name != "next_value"]  # that, a row later
        self.parts |= {
            "checksums.per_tree": [b["priority_tree"]], "checksums.grads": [b["grads"]],
            "checksums.mamba2_grad_w_c_l1": [w.layout.views(b["grads"])["mamba2_l1_w_c"]],
            "checksums.replay_inserts": self.inserted[: len(replay.COLUMNS)], "checksums.rollout_inserts": known,
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


def slot_leaves(config: TrainerConfig, isv: Sequence[float]) -> Row:
    """PopArt's running statistics, and the slots that the configuration set and something reads."""
    i = "isv_config."
    h1, h2, h3 = slots.FRD_HORIZONS
    return {
        "popart.mu": isv[slots.POPART_MU],
        "popart.sigma_welford": isv[slots.POPART_SIGMA_WELFORD],
        "risk_stack.atom_calibration.popart_sigma": isv[slots.POPART_SIGMA],
        "risk_stack.atom_calibration.v_target_max_3sigma": 3 * isv[slots.POPART_SIGMA],
        i + "gae_lambda": isv[slots.GAE_LAMBDA], i + "pi_prob_floor": isv[slots.PI_FLOOR],
        i + "min_hold_steps": isv[slots.MIN_HOLD], i + "frd_horizon_h1": isv[h1],
        i + "frd_horizon_h2": isv[h2], i + "frd_horizon_h3": isv[h3],
        i + "frd_bucket_range_sigma": isv[slots.FRD_RANGE], i + "popart_beta": isv[slots.POPART_BETA],
        i + "exploration_scale": isv[slots.EXPLORATION_SCALE],
        i + "ppo_rollout_horizon": isv[slots.ROLLOUT_HORIZON],
        "rollout.enabled": int(not config.learning.per_step),
        "risk_stack.cmdp.max_open_units": isv[slots.MAX_OPEN_UNITS],
        "risk_stack.trail_factors.tighten": isv[slots.TRAIL_TIGHTEN],
        "risk_stack.trail_factors.loosen": isv[slots.TRAIL_LOOSEN],
    }  # fmt: skip


class Coverage:
    """Which of the determinism coverage events were reached: a fault can sleep until its event."""

    def __init__(self, world: World, collector: Collector) -> None:
        self.w, self.c = world, collector
        self.places = torch.tensor([EVENTS.index(name) for name in _REACHED], device=world.device)
        reasons = (REASONS.index(name) for name in ("trail", "session", "gap", "length"))
        self.codes = events.Codes(TRADE_FIELDS.index("reason"), *reasons)

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


def _names(stats: Stats, read: Read) -> Mapping[str, float]:
    return dict(zip(stats.names, read[stats.buffer]))
