"""Leaves of the acting batch: what one step saw, encoded, predicted and chose.

Every function returns {leaf path: number} exactly as diag_leaves.tsv defines it, without waiting for the device. State
that leaves need from row to row (running histograms, EMA moments) lives in registry buffers of group "diag"; each phase
is a process of its own, so that it starts anew.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch

from foxhunt_assets.contracts.buffers import BufferSpec
from foxhunt_assets.market import features, norm
from foxhunt_assets.simulator.actions import ACTIONS, HOLD, LONG_ENTRIES, N_ACTIONS, SHORT_ENTRIES
from foxhunt_assets.trainer import heads
from foxhunt_assets.trainer.collect import Collector
from foxhunt_assets.trainer.numbers import Numbers
from foxhunt_assets.trainer.world import World
from kernels.lob import op as lob

CORRELATION_RATE = 0.01  # EMA rate of the look-ahead correlations
ACCOUNT_RATE = 1 / 64  # EMA rate of an account's executed-action shares
HISTORY = 256  # rows of the windowed action histogram
NEAR_TIE = 0.01
_MOMENTS = 5  # x, y, xx, yy, xy


def specs(world: World) -> list[BufferSpec]:
    """State of the acting batch's leaves; group "diag"."""
    b, f = world.config.model.accounts, world.tape.features.shape[1]
    return [
        BufferSpec("diag_moments", (f, _MOMENTS), "float64", "diag", ("feature", "moment")),
        BufferSpec("diag_account_shares", (b, N_ACTIONS), "float64", "diag", ("account", "action")),
        BufferSpec("diag_history", (HISTORY, N_ACTIONS), "int64", "diag", ("row", "action")),
        BufferSpec("diag_last_action", (b,), "int64", "diag", ("account",), fill=HOLD),
        BufferSpec("diag_rows", (1,), "int64", "diag"),
        BufferSpec("diag_shaped_close_cum", (1,), "float64", "diag"),
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


def inputs(w: World, c: Collector, b: Mapping[str, torch.Tensor]) -> Numbers:
    """Encoder inputs, raw flow features, and the correlations that would show look-ahead."""
    x = b["x"].double()
    raw = w.tape.raw[c.anchor].double()
    newest = dict(zip((f.name for f in features.FEATURES), raw.unbind(1)))
    touch, depth = newest["ofi_touch"], newest["ofi_depth"]
    shift = x.mean(dim=(0, 1)).abs()
    correlation = _next_move_correlation(w, c, b)
    return {
        "features.ofi.touch_mean": touch.mean(),
        "features.ofi.touch_std": touch.std(unbiased=False),
        "features.ofi.depth_mean": depth.mean(),
        "features.ofi.depth_abs_max": depth.abs().max(),
        "features.trade_flow_mean": newest["trade_flow"].mean(),
        **_micro(w, newest),
        "features.shift_abs_mean": shift.mean(),
        "features.shift_abs_max": shift.max(),
        "features.std_min": x.std(dim=(0, 1), unbiased=False).min(),
        "features.input_mean": x.mean(),
        "features.input_std": x.std(unbiased=False),
        "features.input_abs_max": x.abs().max(),
        "features.clipped_frac": (x.abs() >= norm.NORM_CLIP).double().mean(),
        "features.ofi.touch_next_corr": correlation[features.index("ofi_touch")],
        "features.leak_corr_max": correlation.abs().max(),
        "features.leak_corr_index": correlation.abs().argmax(),
    }


def _micro(w: World, newest: Mapping[str, torch.Tensor]) -> Numbers:
    """Means of the microstructure features over the batch; two of them are kept in ticks and told in points."""
    point = _tick_points(w)
    scale = {"realized_variance": point**2, "intra_bar_momentum": point}
    names = [f.name for f in features.FEATURES if f.group == "micro"]
    return {f"features.micro.{name}_mean": newest[name].mean() * scale.get(name, 1) for name in names}


def _next_move_correlation(w: World, c: Collector, b: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """float64 [F]: correlation of each newest input with the mid change to s_{t+1}, from EMA moments.

    A row in which nobody moved between two mids (the drain row) is no observation.
    """
    market, after = w.tape.market, c.outcome.next_row
    mid, ok = lob.mid_half_ticks(market.bid_px[c.anchor, 0], market.ask_px[c.anchor, 0])
    mid_after, ok_after = lob.mid_half_ticks(market.bid_px[after, 0], market.ask_px[after, 0])
    seen = ok & ok_after & (after > c.anchor)
    use = seen.double()[:, None]
    x, y = b["x"][:, -1].double(), torch.where(seen, mid_after - mid, 0).double()[:, None]
    y = y.expand_as(x)
    now = torch.stack([(v * use).sum(0) / use.sum().clamp_min(1) for v in (x, y, x * x, y * y, x * y)], dim=1)
    moments = b["diag_moments"]
    started = (moments != 0).any()
    moved = torch.where(started, moments + CORRELATION_RATE * (now - moments), now)
    moments.copy_(torch.where(seen.any(), moved, moments))
    mx, my, xx, yy, xy = moments.unbind(1)
    variance = (xx - mx**2).clamp_min(0) * (yy - my**2).clamp_min(0)
    return torch.where(variance > 1e-24, (xy - mx * my) / variance.clamp_min(1e-24).sqrt(), 0.0).clamp(-1, 1)


def encoding(c: Collector, b: Mapping[str, torch.Tensor]) -> Numbers:
    """Activations of the encoder, its gates and the health of h_t."""
    e = c.encoded
    out: Numbers = {}
    named = {
        "vsn_out": e.vsn_out, "mamba2_l1": e.l1, "ln_a": e.ln_a, "mamba2_l2": e.l2, "ln_b": e.ln_b,
        "attn_context": e.context, "h_t": e.h,
    }  # fmt: skip
    for name, x in named.items():
        if not name.startswith("ln_"):
            out[f"encoder.{name}_abs_mean"] = x.abs().double().mean()
        out[f"encoder.{name}_abs_max"] = x.abs().max()
    masks = e.vsn_mask.double().flatten(0, 1)
    mean_mask = masks.mean(0)
    stayed = (~c.outcome.episode_start).double()
    return out | {
        **_group_mass(mean_mask),
        "vsn.mask_entropy": heads.entropy(masks).mean(),
        "vsn.mask_max": mean_mask.max(),
        "vsn.mask_row_std": masks.std(dim=0, unbiased=False).mean(),
        "encoder.ln_a_rstd_max": e.ln_a_rstd.max(),
        "encoder.ln_b_rstd_max": e.ln_b_rstd.max(),
        "encoder.attn_entropy": heads.entropy(e.attn.double()).mean(),
        "encoder.attn_newest_weight": e.attn[:, -1].double().mean(),
        "encoder.mamba2_l1_decay_mean": e.l1_decay.double().mean(),
        "encoder.mamba2_l2_decay_mean": e.l2_decay.double().mean(),
        "encoder.cfc_gate_mean": e.gate.double().mean(),
        "encoder.cfc_carry_delta_norm": ((e.h - b["carry"]).double().norm(dim=1) * stayed).sum()
        / stayed.sum().clamp_min(1),
        **_collapse(e.h.double()),
        "numerics.scan_state_abs_max": torch.maximum(e.l1_state.abs().max(), e.l2_state.abs().max()),
    }


def _group_mass(mask: torch.Tensor) -> Numbers:
    """Selection mass of each feature group. mask: batch-mean weights float64 [F]."""
    return {f"vsn.mask_{group}": mask[features.columns_of(group)].sum() for group in features.GROUPS}


def _collapse(h: torch.Tensor) -> Numbers:
    """Mean pairwise cosine, participation ratio and least unit spread of h [B, H] float64."""
    n = h.shape[0]
    unit = h / h.norm(dim=1, keepdim=True).clamp_min(1e-300)
    total = unit.sum(0).norm() ** 2
    centred = h - h.mean(0)
    covariance = centred.T @ centred / n
    trace, square = covariance.diagonal().sum(), (covariance**2).sum()
    return {
        "encoder.h_t_batch_cosine": (total - n) / max(1, n * (n - 1)),
        "encoder.h_t_participation_ratio": torch.where(trace > 0, trace**2 / square.clamp_min(1e-300), 0.0),
        "encoder.h_t_unit_std_min": h.std(dim=0, unbiased=False).min(),
    }


def values(w: World, c: Collector, b: Mapping[str, torch.Tensor]) -> Numbers:
    """C51, value and their agreement with the policy, on the acting rows."""
    q, action, n = b["q_values"].double(), c.outcome.executed, b["action"].numel()
    rows = torch.arange(n, device=q.device)
    p = torch.softmax(b["q_logits"][rows, action].double(), dim=-1)
    support = w.support().double()
    mean = (p * support).sum(-1)
    top = q.topk(2, dim=1).values
    q_legal = q.masked_fill(~b["legal"], float("-inf"))
    pi_legal = b["pi_logits"].masked_fill(~b["legal"], float("-inf"))
    counts = _counts(q.argmax(1))
    return {
        "q.taken_mean": q[rows, action].mean(),
        "q.q_std": q.std(unbiased=False),
        "q.q_max_mean": top[:, 0].mean(),
        "q.q_gap": (top[:, 0] - top[:, 1]).mean(),
        "q.q_spread": (top[:, 0] - q.min(1).values).mean(),
        "q.dist_entropy_mean": heads.entropy(p).mean(),
        "q.dist_std_mean": ((p * support**2).sum(-1) - mean**2).clamp_min(0).sqrt().mean(),
        "q.argmax_entropy": heads.entropy(counts.double() / n),
        **{f"q.mean_by_action.{name}": q[:, i].mean() for i, name in enumerate(ACTIONS)},
        "c51.edge_mass_lo": p[:, 0].mean(),
        "c51.edge_mass_hi": p[:, -1].mean(),
        "q_pi.agree_step": (q_legal.argmax(1) == pi_legal.argmax(1)).double().mean(),
        "v.pred_mean": b["v_t"].double().mean(),
        "v.pred_std": b["v_t"].double().std(unbiased=False),
        "v.td_abs_mean": c.td_abs,
    }


def policy(w: World, c: Collector, b: Mapping[str, torch.Tensor]) -> Numbers:
    """The policy before floor and gates, and what was sampled from it."""
    legal, logits = b["legal"], b["pi_logits"]
    p = heads.masked_softmax(logits.double(), legal)
    entropy = heads.entropy(p)
    top = b["pi"].double().topk(2, dim=1).values
    taken = p.gather(1, b["action"][:, None])[:, 0]
    behaviour = heads.behaviour(logits.double(), legal, w.pi_floor).gather(1, b["action"][:, None])[:, 0]
    out: Numbers = {
        "pi.entropy_mean": entropy.mean(),
        "pi.entropy_min": entropy.min(),
        "pi.max_prob_mean": p.max(1).values.mean(),
        "pi.hold_prob_mean": p[:, HOLD].mean(),
        "pi.long_minus_short_prob": (_columns(p, LONG_ENTRIES) - _columns(p, SHORT_ENTRIES)).mean(),
        "pi.logit_abs_max": logits.abs().max(),
        "pi.log_pi_old_mean": behaviour.log().clamp_max(0).mean(),
        "pi.floor_active_frac": ((p < w.config.learning.pi_floor) & legal).double().mean(),
        "gates.conf_mean": taken.mean(),
        "audit.action_draw_mean": ((b["action_draw"] >> 8).double() * 2.0**-24).mean(),
        "audit.near_tie_frac": (top[:, 0] - top[:, 1] < NEAR_TIE).double().mean(),
    }
    return out | _actions(c, b, p)


def _actions(c: Collector, b: Mapping[str, torch.Tensor], p: torch.Tensor) -> Numbers:
    """Histograms of this step and of the last HISTORY rows of the phase."""
    sampled, executed, n = b["action"], c.outcome.executed, b["action"].numel()
    counts, pregate = _counts(executed), _counts(sampled)
    rows = b["diag_rows"]
    b["diag_history"][rows % HISTORY] = counts[None]
    windowed = b["diag_history"].sum(0).double() / (n * (rows + 1).clamp_max(HISTORY))
    switched = (executed != b["diag_last_action"]) & ~c.outcome.episode_start
    b["diag_last_action"].copy_(executed)
    one_hot = torch.nn.functional.one_hot(executed, N_ACTIONS).double()
    shares = b["diag_account_shares"]
    shares.copy_(torch.where(rows > 0, shares + ACCOUNT_RATE * (one_hot - shares), one_hot))
    account_entropy = heads.entropy(shares)
    share = counts.double() / n
    kl = (torch.special.xlogy(share, share) - torch.special.xlogy(share, p.mean(0).clamp_min(1e-38))).sum()
    return {
        **{f"act_hist.{name}": counts[i] for i, name in enumerate(ACTIONS)},
        **{f"pregate_act_hist.{name}": pregate[i] for i, name in enumerate(ACTIONS)},
        **{f"windowed_act_hist.{name}": windowed[i] for i, name in enumerate(ACTIONS)},
        "actions.switch_frac": switched.double().mean(),
        "actions.pregate_entropy": heads.entropy(pregate.double() / n),
        "sac.action_entropy_step": heads.entropy(share),
        "sac.account_entropy_mean": account_entropy.mean(),
        "sac.account_entropy_min": account_entropy.min(),
        "sac.exec_policy_kl": kl,
        "health.action_entropy": (heads.entropy(windowed) / math.log(N_ACTIONS)).clamp(0, 1),
    }


def forward_returns(w: World, c: Collector, b: Mapping[str, torch.Tensor]) -> Numbers:
    """The FRD head on the acting rows, out of sample in evaluation; its per-horizon losses and their mean."""
    p = torch.softmax(b["frd_logits"].double(), dim=-1)
    labels = w.tape.labels[c.anchor]
    valid = labels >= 0
    nll = -torch.log_softmax(b["frd_logits"].double(), -1).gather(-1, labels.clamp_min(0)[..., None])[..., 0]
    n = valid.sum(0)
    losses = (nll * valid).sum(0) / n.clamp_min(1)
    hit = ((p.argmax(-1) == labels) & valid).sum(0).double() / n.clamp_min(1)
    out: Numbers = {}
    for i in range(labels.shape[1]):
        out |= {
            f"frd.h{i + 1}.entropy_mean": heads.entropy(p[:, i]).mean(),
            f"frd.h{i + 1}.argmax_mean": p[:, i].argmax(-1).double().mean(),
            f"frd.h{i + 1}.loss": losses[i],
            f"frd.h{i + 1}.accuracy": hit[i],
            f"frd.h{i + 1}.label_valid_frac": valid[:, i].double().mean(),
            f"frd.h{i + 1}.expected_sigma": (p[:, i] * c.frd_sigmas).sum(-1).mean(),
            f"frd.h{i + 1}.upper_tail_mass": p[:, i, -1].mean(),
            f"frd.h{i + 1}.lower_tail_mass": p[:, i, 0].mean(),
        }
    whole = torch.zeros_like(losses[0]) if w.evaluating else (nll * valid).sum() / valid.sum().clamp_min(1)
    return out | {"loss.frd": whole}


def rewards(w: World, c: Collector, b: Mapping[str, torch.Tensor]) -> Numbers:
    """Rewards of the step, from cents to whitened."""
    o, raw, scaled, final = c.outcome, b["reward_raw"].double(), b["reward_scaled"].double(), b["reward"].double()
    core, fees = o.core_cents.double() / c.point_lot_cents, -o.fee_cents.double() / c.point_lot_cents
    total = raw.abs().sum()
    b["diag_shaped_close_cum"].add_((raw * o.trade_closed).sum())
    gap = (final - scaled).abs().mean()
    return {
        "rewards.sum": final.sum(),
        "rewards.std": final.std(unbiased=False),
        "rewards.min": final.min(),
        "rewards.max": final.max(),
        "rewards.raw_nonzero_frac": (raw != 0).double().mean(),
        "rewards.raw_abs_mean": raw.abs().mean(),
        "rewards.close_abs_share": torch.where(
            total > 0, (raw.abs() * o.trade_closed).sum() / total.clamp_min(1e-300), 0.0
        ),
        "reward_terms.core_pnl": core.mean(),
        "reward_terms.tx_cost": fees.mean(),
        "reward_terms.sum_residual_abs_max": (raw - (core + fees)).abs().max(),
        "reward_contrib.popart": gap / (gap + scaled.abs().mean()).clamp_min(1e-300),
        "popart.tail_frac": (final.abs() > 5).double().mean(),
        "trading.raw_reward_sum": raw.sum(),
        "trading.shaped_reward_close_event_cum": b["diag_shaped_close_cum"][0],
    }


def end_row(b: Mapping[str, torch.Tensor]) -> Numbers:
    """Last of a row's measurements: the phase is one row older."""
    b["diag_rows"].add_(1)
    return {}


def _counts(actions: torch.Tensor) -> torch.Tensor:
    """int64 [A]: how often each action occurs."""
    return (actions[:, None] == torch.arange(N_ACTIONS, device=actions.device)).sum(0)


def _columns(p: torch.Tensor, actions: tuple[int, ...]) -> torch.Tensor:
    """Sum of some columns, [B]."""
    return torch.stack([p[:, a] for a in actions]).sum(0)


def _tick_points(w: World) -> float:
    return w.tape.spec.segments[0].tick / 1e9
