"""Leaves of learning: losses, gradients, optimiser, replay, rollout window, weights and their checksums, slots.

Leaves of "the last policy update" and of replay rows repeat between updates and are 0 before the first; leaves of
the optimiser are of this row's last AdamW step and 0 in a row without one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from foxhunt_assets.contracts.buffers import BufferSpec
from foxhunt_assets.simulator.actions import N_ACTIONS
from foxhunt_assets.simulator.state import specs as account_specs
from foxhunt_assets.simulator.units import REASONS, TRADE_FIELDS
from foxhunt_assets.trainer import learn, rollout, slots
from foxhunt_assets.trainer.collect import Collector
from foxhunt_assets.trainer.config import TrainerConfig
from foxhunt_assets.trainer.numbers import Numbers, Read, Row
from foxhunt_assets.trainer.params import BRANCHES
from foxhunt_assets.trainer.program import Flags
from foxhunt_assets.trainer.replay import INSERTED
from foxhunt_assets.trainer.stats import Stats
from foxhunt_assets.trainer.world import World
from kernels.digest import op as digest

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

WINDOW_STATS = Stats(
    "stats_window",
    (
        "adv_mean", "adv_abs_mean", "adv_std", "returns_mean", "bootstrap_v_mean", "terminated_frac", "truncated_frac",
        "explained_variance", "adv_pos_frac", "adv_trade_minus_hold",
    ),
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
        WINDOW_STATS.spec,
    ]  # fmt: skip


def losses(b: Mapping[str, torch.Tensor]) -> Numbers:
    """Loss leaves and the statistics of the last policy update and the last replay rows."""
    p, r = _names(b, learn.POLICY_STATS), _names(b, learn.REPLAY_STATS)
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
        "v.calibration_slope": learn.slope(p["v"], p["return"], p["v_v"], p["v_return"]),
        "rollout.kl_first": p["kl_first"], "rollout.kl_last": p["kl_last"],
        "rollout.minibatches_run": p["minibatches"].long(),
        "per.is_weight_ess_frac": r["ess_frac"], "per.sampled_priority_mean": r["priority_mean"],
        "per.is_weight_mean": r["weight_mean"], "per.is_weight_min": r["weight_min"],
        "per.sample_age_mean": r["age_mean"], "per.sample_age_max": r["age_max"].long(),
        "per.sample_unique_frac": r["unique_frac"], "per.sample_trade_closed_frac": r["closed_frac"],
        "per.sample_terminated_frac": r["terminated_frac"], "per.sample_positive_frac": r["positive_frac"],
        "audit.replay_draw_mean": r["draw_mean"],
    }  # fmt: skip


def optimiser(b: Mapping[str, torch.Tensor]) -> Numbers:
    """Gradients and updates of this row's last AdamW step."""
    o = _names(b, learn.OPTIM_STATS)
    heads = {"c51": "q", "pi": "pi", "v": "v", "frd": "frd"}
    return {
        **{f"optim.{x}.{kind}": o[f"{x}.{kind}"] for x in BRANCHES for kind in ("grad_norm", "update_ratio")},
        "optim.grad_norm_pre_clip": o["grad_norm_pre_clip"], "optim.update_norm": o["update_norm"],
        "optim.adam_snr": o["adam_snr"], "optim.grad_abs_max": o["grad_abs_max"],
        "numerics.zero_grad_frac": o["zero_grad_frac"],
        **{f"grad_trunk.{leaf}": o[f"grad_trunk.{head}"] for leaf, head in heads.items()},
        "grad_trunk.rec": o["grad_trunk.rec"], "grad_trunk.combined": o["grad_trunk.combined"],
    }  # fmt: skip


def memory(w: World, flags: Flags, b: Mapping[str, torch.Tensor]) -> Numbers:
    """The replay ring after this row and the rollout window's last update."""
    tree, capacity = b["priority_tree"], w.replay.capacity
    leaves, length = tree[capacity:].double(), w.replay.length[0]
    mass, square = leaves.sum(), (leaves**2).sum()
    held = torch.arange(capacity, device=w.device) < length
    t, windows = b["rollout_t"][0], b["rollout_windows"][0]
    return {
        "per.len": length, "per.inserts_cum": b["replay_count"][0],
        "per.priority_ess_frac": mass**2 / (length * square).clamp_min(1e-300),
        "per.tree_sum": tree[1], "per.priority_max": tree[capacity:].max(),
        "per.never_sampled_frac": ((b["replay_draws"] == 0) & held).sum().double() / length.clamp_min(1),
        "rollout.t": t, "rollout.windows_cum": windows,
        "rollout.kl_stops_cum": b["kl_stops"][0], **_window(flags, b),
    }  # fmt: skip


def _window(flags: Flags, b: Mapping[str, torch.Tensor]) -> Numbers:
    """Moments of the last finished window; the buffers are those of the window only on the row that finished it."""
    stats = b["stats_window"]
    if flags.closes:
        advantage, returns = b["rollout_advantage"].double(), b["rollout_return"].double()
        error, variance = returns - b["rollout_value"].double(), returns.var(unbiased=False)
        entries, holds = b["rollout_executed_entry"] == 1, b["rollout_executed_entry"] == -1
        last = torch.where(b["rollout_terminated"][-1], 0.0, b["rollout_next_value"][-1]).double()
        trade = (advantage * entries).sum() / entries.sum().clamp_min(1)
        hold = (advantage * holds).sum() / holds.sum().clamp_min(1)
        both = (entries.any() & holds.any()).double()
        WINDOW_STATS.put(
            b,
            {
                "adv_mean": advantage.mean(), "adv_abs_mean": advantage.abs().mean(),
                "adv_std": advantage.std(unbiased=False), "returns_mean": returns.mean(),
                "bootstrap_v_mean": last.mean(), "terminated_frac": b["rollout_terminated"].double().mean(),
                "truncated_frac": b["rollout_truncated"].double().mean(),
                "explained_variance": torch.where(
                    variance > 0, 1 - error.var(unbiased=False) / variance.clamp_min(1e-300), 0.0
                ),
                "adv_pos_frac": (advantage > 0).double().mean(), "adv_trade_minus_hold": both * (trade - hold),
            },
        )  # fmt: skip
    at = {name: stats[i] for i, name in enumerate(WINDOW_STATS.names)}
    pi = ("adv_pos_frac", "adv_trade_minus_hold")
    return {f"{'pi' if name in pi else 'rollout'}.{name}": value for name, value in at.items()}


def weights(w: World, b: Mapping[str, torch.Tensor]) -> Numbers:
    """Norms, drift and singular values of the weights after this row."""
    flat, birth, enc = b["weights"].double(), b["birth_weights"].double(), w.layout.encoder
    online = b["weights"][w.layout.branches["q"]].double()
    views = w.layout.views(b["weights"])
    return {
        "optim.weight_norm": flat.norm(),
        "numerics.weight_abs_max": b["weights"].abs().max(),
        "numerics.trunk_drift_from_init": (flat[enc] - birth[enc]).norm() / birth[enc].norm(),
        "target_net.drift_q": (online - b["target_q"].double()).norm() / online.norm(),
        **{f"spectral.{name}": _power(views[key], b[f"spectral_u.{name}"]) for name, key in SPECTRAL.items()},
    }


def _power(matrix: torch.Tensor, u: torch.Tensor) -> torch.Tensor:
    """One warm-started power iteration (Miyato 2018, 1802.05957, Algorithm 1): sigma = u . W v; u moves in place."""
    v = matrix.T @ u
    v = v / v.norm().clamp_min(1e-30)
    wv = matrix @ v
    sigma = wv.norm()
    u.copy_(wv / sigma.clamp_min(1e-30))
    return sigma


class Checksums:
    """Digests of what the run stands on; equal in two runs, or the first unequal one names the stage.

    Every row's bytes are laid end to end in one staging buffer, so that two launches digest them all. The chains run
    over every row inserted into replay and rollout: their cost does not grow, and each seeds the next row's.
    """

    def __init__(self, world: World, collector: Collector) -> None:
        self.w, self.c = world, collector
        self.names: list[str] = []
        self.staged = torch.empty(0, dtype=torch.uint8, device=world.device)

    def measure(self) -> Numbers:
        """{"digests": int64 [names], "stepped": whether this row took a learning step, digest32 leaves by path}."""
        b = self.w.buffers
        parts = {name: _bytes(tensors) for name, tensors in self._tensors().items()}
        if not self.names:
            self._lay_out(parts)
        torch.cat([_padded(x) for x in parts.values()], out=self.staged)
        short = {"encoder.h_t": self.c.encoded.h, "pi.logits": b["pi_logits"], "rewards.raw": b["reward_raw"]}
        out: Numbers = {}
        if self.w.evaluating:
            out = {"digests": self.digests.run()}
        else:
            self.digests.seeds[-2:].copy_(b["digest_chains"])
            found = self.digests.run()
            b["digest_chains"].copy_(found[-2:])
            out = {"digests": found, "stepped": learn.OPTIM_STATS.get(b, "stepped")}
            short["grad_trunk.combined"] = b["grad_h_t_combined"]
        return out | {f"{name}_digest32": digest.digest32(x) for name, x in short.items()}

    def finish(self, read: Read) -> Row:
        """Leaves; those of a learning step are 0 in a row without one."""
        stepped = read.pop("stepped", 0)
        digests = read.pop("digests")
        row: Row = {**read, **{name: digest.leaf53(d % 2**64) for name, d in zip(self.names, digests)}}
        return row if stepped else row | {name: 0 for name in _OF_A_STEP if name in row}

    def _lay_out(self, parts: Mapping[str, torch.Tensor]) -> None:
        self.names = list(parts)
        sizes = [_padded(x).numel() for x in parts.values()]
        self.staged.resize_(sum(sizes))
        starts = [sum(sizes[:i]) for i in range(len(sizes))]
        slices = [self.staged[at : at + x.numel()] for at, x in zip(starts, parts.values())]
        self.digests = digest.over(slices, [0] * len(slices))

    def _tensors(self) -> dict[str, list[torch.Tensor]]:
        """What each leaf covers; the two chains last."""
        w, c, b = self.w, self.c, self.w.buffers
        views = w.layout.views(b["weights"])
        account = [b[s.name] for s in account_specs(w.config.model.accounts, w.config.env)]
        tensors = {
            "checksums.vsn_w": [views["vsn_w"], views["vsn_b"]], "checksums.attn_q": [views["attn_q"]],
            "checksums.encoder_w": [b["weights"][w.layout.encoder]],
            "checksums.heads_w": [b["weights"][w.layout.heads]], "checksums.target_w": [b["target_q"]],
            "checksums.optimizer": [b["adam_m"], b["adam_v"], b["adam_t"]],
            "checksums.batch_inputs": [c.anchor, b["x"], w.tape.labels[c.anchor]],
            "checksums.accounts": [*account, b["h_t"]], "checksums.isv": [b["isv_full"]],
        }  # fmt: skip
        if w.evaluating:
            return tensors
        n, count = w.config.model.accounts, b["replay_count"]
        at = (count - n + torch.arange(n, device=w.device)) % w.replay.capacity
        t = b["rollout_t"]
        return tensors | {
            "checksums.per_tree": [b["priority_tree"]], "checksums.grads": [b["grads"]],
            "checksums.mamba2_grad_w_c_l1": [w.layout.views(b["grads"])["mamba2_l1_w_c"]],
            "checksums.replay_inserts": [b[name][at] for name in INSERTED],
            # next_value is known a row later
            "checksums.rollout_inserts": [b[f"rollout_{x}"][t] for x in rollout.COLUMNS if x != "next_value"],
        }  # fmt: skip


_OF_A_STEP = ("checksums.grads", "checksums.mamba2_grad_w_c_l1", "grad_trunk.combined_digest32")
_ALIGN = 8  # bytes of a word of a digest


def _bytes(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    """The raw bytes of tensors, end to end: one digest instead of one a tensor."""
    return torch.cat([t.detach().contiguous().reshape(-1).view(torch.uint8) for t in tensors])


def _padded(raw: torch.Tensor) -> torch.Tensor:
    """Zeros up to the next word, so that every digest starts on one."""
    return torch.nn.functional.pad(raw, (0, -raw.numel() % _ALIGN))


def statistics(b: Mapping[str, torch.Tensor]) -> Numbers:
    """PopArt's running statistics, from their slots."""
    isv = b["isv_full"]
    return {
        "popart.mu": isv[slots.POPART_MU],
        "popart.sigma_welford": isv[slots.POPART_SIGMA_WELFORD],
        "risk_stack.atom_calibration.popart_sigma": isv[slots.POPART_SIGMA],
        "risk_stack.atom_calibration.v_target_max_3sigma": 3 * isv[slots.POPART_SIGMA].double(),
    }


def configuration(config: TrainerConfig, b: Mapping[str, torch.Tensor]) -> Numbers:
    """Slots that the configuration set and something reads."""
    isv, i = b["isv_full"], "isv_config."
    h1, h2, h3 = slots.FRD_HORIZONS
    return {
        i + "gae_lambda": isv[slots.GAE_LAMBDA], i + "pi_prob_floor": isv[slots.PI_FLOOR],
        i + "min_hold_steps": isv[slots.MIN_HOLD].long(), i + "frd_horizon_h1": isv[h1].long(),
        i + "frd_horizon_h2": isv[h2].long(), i + "frd_horizon_h3": isv[h3].long(),
        i + "frd_bucket_range_sigma": isv[slots.FRD_RANGE], i + "popart_beta": isv[slots.POPART_BETA],
        i + "exploration_scale": isv[slots.EXPLORATION_SCALE],
        i + "ppo_rollout_horizon": isv[slots.ROLLOUT_HORIZON].long(),
        "rollout.enabled": int(not config.learning.per_step),
        "risk_stack.cmdp.max_open_units": isv[slots.MAX_OPEN_UNITS].long(),
        "risk_stack.trail_factors.tighten": isv[slots.TRAIL_TIGHTEN],
        "risk_stack.trail_factors.loosen": isv[slots.TRAIL_LOOSEN],
    }  # fmt: skip


def events(w: World, c: Collector, b: Mapping[str, torch.Tensor]) -> Numbers:
    """How many of the determinism coverage events were reached: a fault can sleep until its event."""
    seen, o = b["events_seen"], c.outcome
    now = {
        "first close": o.trade_closed.any(),
        "trail close": ((o.trades[:, :, TRADE_FIELDS.index("reason")] == REASONS.index("trail")) & o.trade_mask).any(),
        "segment end": (o.end_reason == REASONS.index("session")).any() | (o.end_reason == REASONS.index("gap")).any(),
        "length end": (o.end_reason == REASONS.index("length")).any(),
        "eval boundary": torch.full_like(seen[0], w.evaluating),
    }
    if not w.evaluating:
        count = b["replay_count"][0]
        b["actions_seen"].logical_or_((o.executed[:, None] == torch.arange(N_ACTIONS, device=w.device)).any(0))
        now |= {
            "replay warm": count >= w.replay.rows, "ring wrap": count > w.replay.capacity,
            "first PPO window": b["rollout_windows"][0] > 0, "KL stop": b["kl_stops"][0] > 0,
            "all eleven actions executed": b["actions_seen"].all(),
        }  # fmt: skip
    for name, happened in now.items():
        seen[EVENTS.index(name)].logical_or_(happened)
    return {"audit.events_reached": seen.sum()}


def _names(b: Mapping[str, torch.Tensor], stats: Stats) -> dict[str, torch.Tensor]:
    return {name: stats.get(b, name) for name in stats.names}
