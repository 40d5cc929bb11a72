"""Leaves of the acting batch: what one step saw, encoded, predicted and chose.

A group measures numbers on the device, without waiting for it, and makes leaves of them on the host, exactly as
diag_leaves.tsv defines them. State that leaves need from row to row (running histograms, EMA moments) lives in registry
buffers of group "diag"; each phase is a process of its own, so that it starts anew.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch

from foxhunt_assets.contracts.buffers import BufferSpec
from foxhunt_assets.market import features, norm
from foxhunt_assets.simulator.actions import ACTIONS, HOLD, LONG_ENTRIES, N_ACTIONS, SHORT_ENTRIES
from foxhunt_assets.trainer import slots
from foxhunt_assets.trainer.collect import Collector
from foxhunt_assets.trainer.numbers import Group, Numbers, Read, Row
from foxhunt_assets.trainer.world import World
from kernels.acting import op as acting_kernel
from kernels.geometry import op as geometry
from kernels.lob import op as lob
from kernels.lookahead import op as lookahead
from kernels.statistics import op as statistics

CORRELATION_RATE = 0.01  # EMA rate of the look-ahead correlations
ACCOUNT_RATE = 1 / 64  # EMA rate of an account's executed-action shares
HISTORY = 256  # rows of the windowed action histogram
NEAR_TIE = 0.01
REWARD_TAIL = 5.0  # whitened reward
# What the statistics are taken of; the first by the rows of the tape the accounts stand on.
_MATRICES = (
    "raw", "x", "vsn_mask", "vsn_out", "l1", "l1_decay", "l1_state", "ln_a", "ln_a_rstd", "l2", "l2_decay", "l2_state",
    "ln_b", "ln_b_rstd", "attn", "context", "h", "gate",
)  # fmt: skip


def specs(world: World) -> list[BufferSpec]:
    """State of the acting batch's leaves; group "diag"."""
    b, f = world.config.model.accounts, world.tape.features.shape[1]
    return [
        BufferSpec("diag_moments", (f, lookahead.MOMENTS), "float64", "diag", ("feature", "moment")),
        BufferSpec("diag_account_shares", (b, N_ACTIONS), "float64", "diag", ("account", "action")),
        BufferSpec("diag_history", (HISTORY, N_ACTIONS), "int64", "diag", ("row", "action")),
        BufferSpec("diag_last_action", (b,), "int64", "diag", ("account",), fill=HOLD),
        BufferSpec("diag_rows", (1,), "int64", "diag"),
        BufferSpec("diag_shaped_close_cum", (1,), "float64", "diag"),
    ]


def groups(w: World, c: Collector, b: Mapping[str, torch.Tensor]) -> list[Group]:
    """All of a row but `end_row`, which must come last."""
    return [
        Group(lambda: data(w, c)),
        Group(lambda: perception(w, c, b), lambda read: inputs_leaves(w, read) | encoding_leaves(w, read)),
        Group(lambda: acting(w, c, b), lambda read: acting_leaves(w, read)),
    ]


def data(w: World, c: Collector) -> Numbers:
    """Books at the decision, and how far the mid moved."""
    market, anchor, after = w.tape.market, c.anchor, c.outcome.next_row
    mid, two_sided = lob.mid_half_ticks(market.bid_px[anchor, 0], market.ask_px[anchor, 0])
    mid_after, there = lob.mid_half_ticks(market.bid_px[after, 0], market.ask_px[after, 0])
    before = (anchor - 1).clamp_min(0)
    same = torch.ones_like(two_sided)
    for side in (market.bid_px, market.ask_px, market.bid_sz, market.ask_sz):
        same &= (side[anchor] == side[before]).all(dim=1)
    half_tick = _tick_points(w) / 2
    both = two_sided & there
    moved = torch.where(both, (mid_after - mid).double(), 0.0)
    rms = ((moved**2).sum() / both.sum().clamp_min(1)).sqrt() / 2  # ticks
    sigma = w.tape.sigma_step
    return {
        "data.unchanged_book_frac": same.double().mean(),
        "data.mid_price_mean": (mid.double() * two_sided).sum() / two_sided.sum().clamp_min(1) * half_tick,
        "data.mid_return_abs_mean": moved.abs().sum() / both.sum().clamp_min(1) * half_tick,
        "data.mid_rms_over_sigma": rms / sigma if sigma > 0 else rms * 0,
    }


# --- what was seen and encoded --------------------------------------------------------------------


def perception(w: World, c: Collector, b: Mapping[str, torch.Tensor]) -> Numbers:
    """Statistics of the encoder's inputs and activations, the health of h_t, and the look-ahead correlations [F]."""
    market, e = w.tape.market, c.encoded
    found = {"raw": w.tape.raw, "x": b["x"]} | {name: getattr(e, name) for name in _MATRICES[2:]}
    matrices = {name: found[name].flatten(0, -2) for name in _MATRICES}
    seen = statistics.summary(matrices, norm.NORM_CLIP, ("vsn_mask", "attn"), c.anchor)
    px = (market.bid_px, market.ask_px, c.anchor, c.outcome.next_row)
    return {
        "whole": seen.whole.flatten(),
        "raw_mean": seen.columns("raw", "mean"),
        "raw_std": seen.columns("raw", "std"),
        "raw_abs_max": seen.columns("raw", "abs_max"),
        "mask_mean": seen.columns("vsn_mask", "mean"),
        "attn_mean": seen.columns("attn", "mean"),
        "health": geometry.geometry(e.h, b["carry"], c.outcome.episode_start),
        "correlation": lookahead.correlate(b["x"], *px, CORRELATION_RATE, b["diag_moments"]),
    }


def _whole(read: Read, name: str, what: str) -> float:
    """A statistic of all elements of a matrix."""
    return read["whole"][_MATRICES.index(name) * len(statistics.WHOLE) + statistics.WHOLE.index(what)]


def inputs_leaves(w: World, read: Read) -> Row:
    """Encoder inputs, raw flow features, and the correlations that would show look-ahead."""
    touch, depth, correlation = features.index("ofi_touch"), features.index("ofi_depth"), read["correlation"]
    sizes = [abs(r) for r in correlation]
    of_x = {
        "shift_abs_mean": "column_mean_abs", "shift_abs_max": "column_mean_abs_max", "std_min": "column_std_min",
        "input_mean": "mean", "input_std": "std", "input_abs_max": "abs_max", "clipped_frac": "clipped",
    }  # fmt: skip
    return {
        "features.ofi.touch_mean": read["raw_mean"][touch],
        "features.ofi.touch_std": read["raw_std"][touch],
        "features.ofi.depth_mean": read["raw_mean"][depth],
        "features.ofi.depth_abs_max": read["raw_abs_max"][depth],
        "features.trade_flow_mean": read["raw_mean"][features.index("trade_flow")],
        **_micro(w, read["raw_mean"]),
        **{f"features.{leaf}": _whole(read, "x", what) for leaf, what in of_x.items()},
        "features.ofi.touch_next_corr": correlation[touch],
        "features.leak_corr_max": max(sizes),
        "features.leak_corr_index": sizes.index(max(sizes)),
    }


def _micro(w: World, means: Sequence[float]) -> Row:
    """Means of the microstructure features over the batch; two of them are kept in ticks and told in points."""
    point = _tick_points(w)
    scale = {"realized_variance": point**2, "intra_bar_momentum": point}
    names = [f.name for f in features.FEATURES if f.group == "micro"]
    return {f"features.micro.{name}_mean": means[features.index(name)] * scale.get(name, 1) for name in names}


def encoding_leaves(w: World, read: Read) -> Row:
    """Activations of the encoder, its gates and the health of h_t."""
    sized = {
        "vsn_out": "vsn_out", "mamba2_l1": "l1", "mamba2_l2": "l2", "attn_context": "context", "h_t": "h",
        "ln_a": "ln_a", "ln_b": "ln_b",
    }  # fmt: skip
    out: Row = {}
    for name, matrix in sized.items():
        if not name.startswith("ln_"):
            out[f"encoder.{name}_abs_mean"] = _whole(read, matrix, "abs_mean")
        out[f"encoder.{name}_abs_max"] = _whole(read, matrix, "abs_max")
    return out | {
        **_group_mass(read["mask_mean"]),
        "vsn.mask_entropy": _whole(read, "vsn_mask", "entropy"),
        "vsn.mask_max": max(read["mask_mean"]),
        "vsn.mask_row_std": _whole(read, "vsn_mask", "column_std"),
        "encoder.ln_a_rstd_max": _whole(read, "ln_a_rstd", "abs_max"),
        "encoder.ln_b_rstd_max": _whole(read, "ln_b_rstd", "abs_max"),
        "encoder.attn_entropy": _whole(read, "attn", "entropy"),
        "encoder.attn_newest_weight": read["attn_mean"][-1],
        "encoder.mamba2_l1_decay_mean": _whole(read, "l1_decay", "mean"),
        "encoder.mamba2_l2_decay_mean": _whole(read, "l2_decay", "mean"),
        "encoder.cfc_gate_mean": _whole(read, "gate", "mean"),
        **_health(w, dict(zip(geometry.NUMBERS, read["health"]))),
        "encoder.h_t_unit_std_min": _whole(read, "h", "column_std_min"),
        "numerics.scan_state_abs_max": max(_whole(read, name, "abs_max") for name in ("l1_state", "l2_state")),
    }


def _group_mass(mask: Sequence[float]) -> Row:
    """Selection mass of each feature group. mask: batch-mean weights, one a feature."""
    return {f"vsn.mask_{group}": sum(mask[features.columns_of(group)]) for group in features.GROUPS}


def _health(w: World, h: Mapping[str, float]) -> Row:
    """How alike the rows of h_t are, over how many directions they spread, how far they moved from the carry."""
    n = w.config.model.accounts
    ratio = h["trace"] ** 2 / max(h["square"], 1e-300) if h["trace"] > 0 else 0.0
    return {
        "encoder.cfc_carry_delta_norm": h["moved"] / max(1, h["counted"]),
        "encoder.h_t_batch_cosine": (h["unit_sum_square"] - n) / max(1, n * (n - 1)),
        "encoder.h_t_participation_ratio": ratio,
    }


# --- what was predicted, chosen and paid ----------------------------------------------------------


def acting(w: World, c: Collector, b: Mapping[str, torch.Tensor]) -> Numbers:
    """Numbers of the acting batch, folded over the accounts; the histories move on by this row."""
    o, isv = c.outcome, b["isv_full"]
    said = acting_kernel.Heads(
        b["q_logits"], b["q_values"], isv[slots.V_MIN], isv[slots.V_MAX], b["v_t"], b["pi_logits"], b["pi"], b["legal"],
        b["frd_logits"], c.frd_sigmas,
    )  # fmt: skip
    done = acting_kernel.Acted(
        b["action"], b["action_draw"], o.executed, o.episode_start, c.anchor, w.tape.labels
    )  # fmt: skip
    paid = acting_kernel.Paid(
        b["reward_raw"], b["reward_scaled"], b["reward"], o.core_cents, o.fee_cents, o.trade_closed
    )  # fmt: skip
    history = acting_kernel.History(
        b["diag_account_shares"], b["diag_last_action"], b["diag_history"], b["diag_rows"], b["diag_shaped_close_cum"]
    )
    floor = w.config.learning.pi_floor
    scale = acting_kernel.Scale(floor, w.pi_floor, NEAR_TIE, c.point_lot_cents, REWARD_TAIL, ACCOUNT_RATE)
    return {"batch": acting_kernel.acting(said, done, paid, history, scale), "td_abs": c.td_abs}


def acting_leaves(w: World, read: Read) -> Row:
    """All leaves of `acting`."""
    horizons = len(w.config.labels.horizons)
    x = dict(zip(acting_kernel.names(N_ACTIONS, horizons), read["batch"], strict=True))
    n = w.config.model.accounts
    return {
        **_values(x, n), "v.td_abs_mean": read["td_abs"], **_policy(x, n), **_actions(x, n),
        **_forward_returns(x, n, horizons, w.evaluating), **_rewards(x, n),
    }  # fmt: skip


def _each(x: Mapping[str, float], name: str) -> list[float]:
    """A number of every action."""
    return [x[f"{name}.{a}"] for a in range(N_ACTIONS)]


def _entropy(counts: Sequence[float]) -> float:
    """Nats of a histogram that holds something."""
    total = sum(counts)
    return -sum(k / total * math.log(k / total) for k in counts if k)


def _values(x: Mapping[str, float], n: int) -> Row:
    """C51, value and their agreement with the policy, on the acting rows."""
    means = [total / n for total in _each(x, "q")]
    mean = sum(means) / N_ACTIONS
    within = sum(x[f"q.{a}.squares"] for a in range(N_ACTIONS)) / n
    spread = (within + sum((m - mean) ** 2 for m in means)) / N_ACTIONS
    batch_means = {
        "q.taken_mean": "taken", "q.q_max_mean": "top", "q.q_gap": "gap", "q.q_spread": "spread",
        "q.dist_entropy_mean": "entropy", "q.dist_std_mean": "std", "c51.edge_mass_lo": "edge_lo",
        "c51.edge_mass_hi": "edge_hi", "q_pi.agree_step": "agree", "v.pred_mean": "v",
    }  # fmt: skip
    return {
        **{leaf: x[f"q.{name}"] / n for leaf, name in batch_means.items()},
        "q.q_std": math.sqrt(spread),
        "q.argmax_entropy": _entropy(_each(x, "q.argmax")),
        **{f"q.mean_by_action.{name}": m for name, m in zip(ACTIONS, means)},
        "v.pred_std": math.sqrt(x["q.v.squares"] / n),
    }


def _policy(x: Mapping[str, float], n: int) -> Row:
    """The policy before floor and gates, and what was sampled from it."""
    p = [total / n for total in _each(x, "pi")]
    batch_means = {
        "pi.entropy_mean": "entropy", "pi.max_prob_mean": "max", "pi.log_pi_old_mean": "log_kept",
        "gates.conf_mean": "taken", "audit.action_draw_mean": "draw", "audit.near_tie_frac": "near_tie",
        "actions.switch_frac": "switched", "sac.account_entropy_mean": "account_entropy",
    }  # fmt: skip
    return {
        **{leaf: x[f"pi.{name}"] / n for leaf, name in batch_means.items()},
        "pi.entropy_min": x["pi.entropy.least"],
        "pi.hold_prob_mean": p[HOLD],
        "pi.long_minus_short_prob": sum(p[a] for a in LONG_ENTRIES) - sum(p[a] for a in SHORT_ENTRIES),
        "pi.logit_abs_max": x["pi.logit.largest"],
        "pi.floor_active_frac": x["pi.floored"] / (n * N_ACTIONS),
        "sac.account_entropy_min": x["pi.account_entropy.least"],
    }


def _actions(x: Mapping[str, float], n: int) -> Row:
    """Histograms of this step and of the last HISTORY rows of the phase."""
    executed, sampled, window = _each(x, "pi.executed"), _each(x, "pi.sampled"), _each(x, "window")
    expected = [max(total / n, 1e-38) for total in _each(x, "pi")]
    kl = sum(k / n * (math.log(k / n) - math.log(p)) for k, p in zip(executed, expected) if k)
    rows = n * x["window_rows"]
    return {
        **{f"act_hist.{name}": int(k) for name, k in zip(ACTIONS, executed)},
        **{f"pregate_act_hist.{name}": int(k) for name, k in zip(ACTIONS, sampled)},
        **{f"windowed_act_hist.{name}": k / rows for name, k in zip(ACTIONS, window)},
        "actions.pregate_entropy": _entropy(sampled),
        "sac.action_entropy_step": _entropy(executed),
        "sac.exec_policy_kl": kl,
        "health.action_entropy": min(1.0, max(0.0, _entropy(window) / math.log(N_ACTIONS))),
    }


def _forward_returns(x: Mapping[str, float], n: int, horizons: int, evaluating: bool) -> Row:
    """The FRD head on the acting rows, out of sample in evaluation; its per-horizon losses and their mean."""
    batch_means = {
        "entropy_mean": "entropy", "argmax_mean": "argmax", "label_valid_frac": "valid", "expected_sigma": "expected",
        "upper_tail_mass": "hi", "lower_tail_mass": "lo",
    }  # fmt: skip
    out: Row = {}
    for m in range(horizons):
        valid = max(1, x[f"frd.{m}.valid"])
        out |= {f"frd.h{m + 1}.{leaf}": x[f"frd.{m}.{name}"] / n for leaf, name in batch_means.items()}
        out |= {
            f"frd.h{m + 1}.loss": x[f"frd.{m}.nll"] / valid,
            f"frd.h{m + 1}.accuracy": x[f"frd.{m}.hit"] / valid,
        }  # fmt: skip
    nll, valid = (sum(x[f"frd.{m}.{name}"] for m in range(horizons)) for name in ("nll", "valid"))
    return out | {"loss.frd": 0.0 if evaluating else nll / max(1, valid)}


def _rewards(x: Mapping[str, float], n: int) -> Row:
    """Rewards of the step, from cents to whitened."""
    r = {name.removeprefix("reward."): value for name, value in x.items() if name.startswith("reward.")}
    gap, scaled = r["gap"] / n, r["scaled_abs"] / n
    return {
        "rewards.sum": r["final"],
        "rewards.std": math.sqrt(r["final.squares"] / n),
        "rewards.min": r["final.least"],
        "rewards.max": r["final.largest"],
        "rewards.raw_nonzero_frac": r["nonzero"] / n,
        "rewards.raw_abs_mean": r["raw_abs"] / n,
        "rewards.close_abs_share": r["closed_abs"] / r["raw_abs"] if r["raw_abs"] > 0 else 0.0,
        "reward_terms.core_pnl": r["core"] / n,
        "reward_terms.tx_cost": r["fees"] / n,
        "reward_terms.sum_residual_abs_max": r["residual.largest"],
        "reward_contrib.popart": gap / max(gap + scaled, 1e-300),
        "popart.tail_frac": r["tail"] / n,
        "trading.raw_reward_sum": r["raw"],
        "trading.shaped_reward_close_event_cum": x["closed_raw"],
    }


def end_row(b: Mapping[str, torch.Tensor]) -> Numbers:
    """Last of a row's measurements: the phase is one row older."""
    b["diag_rows"].add_(1)
    return {}


def _tick_points(w: World) -> float:
    return w.tape.spec.segments[0].tick / 1e9
