"""Leaves of what the simulator measured of a step: the divisions, on the host, in plain Python.

Definitions are those of contracts/diag_leaves.tsv; an empty denominator gives 0. The names of the numbers are those
of measure.py.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Literal

from foxhunt_assets.contracts.diag import leaves as contract_leaves
from foxhunt_assets.simulator.config import MAX_UNITS
from foxhunt_assets.simulator.state import N_HORIZONS

Leaves = dict[str, int | float | bool]

SIZE_CLASSES = ("quarter", "half", "full")
DEPTHS = (1, 2, 3, 5, 10)
IMBALANCE_DEPTHS = (1, 5, 10)

_FAMILIES = ("pyramid.", "trail.", "position.", "trading.", "lob.")
_OF_THE_TRAINER = ("trading.shaped_reward_close_event_cum", "trading.raw_reward_sum", "trading.trade_duration_ema")
_SINGLE = (
    "data.anchor_mean", "data.anchor_min", "data.anchor_max", "data.anchor_unique_frac",
    "data.segment_count_in_batch", "data.episode_starts_step", "data.episode_age_mean", "data.terminated_step",
    "data.truncated_step", "data.purge_margin_min", "data.segment_rows_left_min", "gates.pyramid_add_step",
    "gates.ineffective_frac", "audit.hold_one_lot_usd_cum",
    *(f"frd.h{h + 1}.agree_pnl_usd_cum" for h in range(N_HORIZONS)),
)  # fmt: skip

# What `leaves` gives, here in contract order.
LEAVES: tuple[str, ...] = tuple(
    leaf.path
    for leaf in contract_leaves()
    if leaf.path in _SINGLE or (leaf.path.startswith(_FAMILIES) and leaf.path not in _OF_THE_TRAINER)
)


# Names of what comes in series: a row is finished within a captured step.
_AGREED = [(f"frd.h{h + 1}.agree_pnl_usd_cum", f"agree_pnl_h{h + 1}") for h in range(N_HORIZONS)]
_UNITS = [
    (*(f"pyramid.unit{u}.{leaf}" for leaf in ("active_frac", "lots_mean", "age_mean")),
     *(f"unit{u}_{what}" for what in ("active", "lots", "age")))
    for u in range(1, MAX_UNITS + 1)
]  # fmt: skip
_FIRED = [
    (f"trail.{leaf}_{size}", f"{of}_{size}", f"{over}_{size}")
    for size in SIZE_CLASSES
    for leaf, of, over in (("trail_fire_rate", "trail_steps", "steps"), ("hold_time_at_exit", "close_hold", "closes"))
]
_HELD = [(f"position.action_dist_eval_{size}", f"steps_{size}") for size in SIZE_CLASSES]
_TILTS = [(f"lob.imbalance_l{d}", f"imbalance_l{d}") for d in IMBALANCE_DEPTHS]
_DEEP = [(f"lob.{side}_depth_l{d}", f"{side}_depth_l{d}") for side in ("bid", "ask") for d in DEPTHS]


def _over(value: float, count: float) -> float:
    """A mean; an empty denominator gives 0."""
    return value / count if count else 0.0


def leaves(
    accounts: int,
    tick_cents: int,
    phase: Literal["train", "eval"],
    ints: Mapping[str, int],
    floats: Mapping[str, float],
    totals: Mapping[str, int],
    pnl_squares: float,
) -> Leaves:
    """LEAVES, from one packed row (by the names of ROW_INTS, ROW_FLOATS) and the totals after it (TOTALS)."""
    found: Leaves = {
        **_data_leaves(accounts, ints),
        **_unit_leaves(accounts, ints, floats, totals),
        **_position_leaves(accounts, ints, totals, phase),
        **_trading_leaves(accounts, tick_cents, ints, floats, totals, pnl_squares),
        **_lob_leaves(accounts, ints, floats),
        "gates.pyramid_add_step": ints["units_added"],
        "gates.ineffective_frac": ints["ineffective"] / accounts,
        "audit.hold_one_lot_usd_cum": totals["market_half_ticks"] * tick_cents / 200,
    }
    for leaf, total in _AGREED:
        found[leaf] = totals[total] / 100
    return found


def _data_leaves(accounts: int, i: Mapping[str, int]) -> Leaves:
    return {
        "data.anchor_mean": i["anchor"] / accounts,
        "data.anchor_min": i["anchor_min"],
        "data.anchor_max": i["anchor_max"],
        "data.anchor_unique_frac": i["anchor_distinct"] / accounts,
        "data.segment_count_in_batch": i["segment_distinct"],
        "data.episode_starts_step": i["starts"],
        "data.episode_age_mean": i["age"] / accounts,
        "data.terminated_step": i["terminated"],
        "data.truncated_step": i["truncated"],
        "data.purge_margin_min": i["purge_margin_min"],
        "data.segment_rows_left_min": i["segment_rows_left_min"],
    }


def _unit_leaves(accounts: int, i: Mapping[str, int], f: Mapping[str, float], t: Mapping[str, int]) -> Leaves:
    out: Leaves = {
        "pyramid.max_units_reached": i["full_stack"] > 0,
        "pyramid.open_r_mean": _over(f["open_r"], i["units"]),
        "pyramid.units_max": i["units_max"],
        "pyramid.full_stack_frac": i["full_stack"] / accounts,
        "pyramid.unit_close_step": i["closed_singly"],
        "trail.distance_mean": _over(f["distance"], i["units"]),
        "trail.distance_min": f["distance_min"],
        "trail.distance_max": f["distance_max"],
        "trail.initial_r_mean": _over(f["initial_r"], i["units"]),
        "trail.tighten_step": i["tightened"],
        "trail.loosen_step": i["loosened"],
        "trail.fired_step": i["trail_closes"],
        "trail.fired_pnl_usd_cum": t["trail_pnl"] / 100,
    }
    for active_frac, lots_mean, age_mean, active, lots, age in _UNITS:
        out[active_frac] = i[active] / accounts
        out[lots_mean] = _over(i[lots], i[active])
        out[age_mean] = _over(i[age], i[active])
    for leaf, of, over in _FIRED:
        out[leaf] = _over(t[of], t[over])
    return out


def _position_leaves(
    accounts: int, i: Mapping[str, int], t: Mapping[str, int], phase: Literal["train", "eval"]
) -> Leaves:
    out: Leaves = {
        "position.flat_steps_max": i["flat_steps_max"],
        "position.abs_lots_mean": i["lots_abs"] / accounts,
        "position.abs_lots_max": i["lots_abs_max"],
        "position.long_frac": i["long"] / accounts,
        "position.short_frac": i["short"] / accounts,
        "position.net_lots_sum": i["lots_net"],
        "position.gross_notional_usd": i["gross_notional"] / 100,
        "position.unrealized_pnl_usd_sum": i["open"] / 100,
        "position.unrealized_pnl_usd_min": i["open_min"] / 100,
        "position.hold_steps_mean": _over(i["hold_steps"], i["long"] + i["short"]),
        "position.net_notional_usd": i["net_notional"] / 100,
    }
    for leaf, steps in _HELD:
        out[leaf] = _over(t[steps], t["account_steps"]) if phase == "eval" else 0.0
    return out


def _trading_leaves(
    accounts: int,
    tick_cents: int,
    i: Mapping[str, int],
    f: Mapping[str, float],
    t: Mapping[str, int],
    pnl_squares: float,
) -> Leaves:
    trades, losses = t["trades"], t["trades"] - t["wins"]
    return {
        "trading.realized_pnl_usd_delta": i["pnl"] / 100,
        "trading.realized_pnl_usd_cum": t["pnl"] / 100,
        "trading.total_trades": trades,
        "trading.win_rate": _over(t["wins"], trades),
        "trading.avg_hold_steps": _over(t["hold_steps"], trades),
        "trading.closes_step": i["closes"],
        "trading.account_pnl_usd_max": i["account_high"] / 100,
        "trading.account_pnl_usd_min": i["account_low"] / 100,
        "trading.avg_win_usd": _over(t["win_pnl"], t["wins"]) / 100,
        "trading.avg_loss_usd": _over(t["win_pnl"] - t["pnl"], losses) / 100,
        "trading.forced_close_pnl_usd_cum": t["forced_pnl"] / 100,
        "trading.long_pnl_usd_cum": t["long_pnl"] / 100,
        "trading.large_entry_pnl_usd_cum": t["large_pnl"] / 100,
        "trading.cash_flow_usd_cum": i["cash"] / 100,
        "trading.best_trade_usd": t["trade_high"] / 100 if trades else 0.0,
        "trading.worst_trade_usd": t["trade_low"] / 100 if trades else 0.0,
        "trading.equity_usd": i["equity"] / 100,
        "trading.drawdown_usd": (t["equity_high"] - i["equity"]) / 100,
        "trading.max_drawdown_usd": t["drawdown_high"] / 100,
        "trading.per_close_ratio": _mean_over_std(trades, t["pnl"], pnl_squares),
        "trading.fees_usd_cum": t["fees"] / 100,
        "trading.slippage_usd_cum": t["slippage_half_ticks"] * tick_cents / 200,
        "trading.account_pnl_usd_std": f["account_std"] / 100,
        "trading.accounts_profitable_frac": i["profitable"] / accounts,
    }


def _mean_over_std(n: int, total: int, squares: float) -> float:
    """Mean over sample standard deviation (ddof 1); 0 below two values or without spread."""
    if n < 2:
        return 0.0
    variance = (squares - total * total / n) / (n - 1)
    return total / n / math.sqrt(variance) if variance > 0 else 0.0


def _lob_leaves(accounts: int, i: Mapping[str, int], f: Mapping[str, float]) -> Leaves:
    out: Leaves = {
        "lob.spread_ticks_mean": _over(i["spread"], i["two_sided"]),
        "lob.spread_ticks_max": i["spread_max"] if i["two_sided"] else 0,
        "lob.microprice_dev_ticks_mean": _over(f["microprice_dev"], i["two_sided"]),
        "lob.orders_step": i["orders"],
        "lob.fills_step": i["fills"],
        "lob.fill_lots_step": i["fill_lots"],
        "lob.touch_take_frac_mean": _over(f["touch_take"], i["touch_fills"]),
        "lob.rejected_step": i["rejected"],
        "lob.slippage_ticks_mean": _over(i["slippage_half_ticks"], 2 * i["fill_lots"]),
        "lob.levels_consumed_max": i["levels_max"],
        "lob.fees_usd_step": i["fees"] / 100,
        "lob.policy_orders_step": i["policy_orders"],
        "lob.buy_lots_step": i["buy_lots"],
        "lob.fill_lag_ms_mean": _over(i["lag_ns"], i["fills"]) / 1e6,
    }
    for leaf, tilt in _TILTS:
        out[leaf] = f[tilt] / accounts
    for leaf, depth in _DEEP:
        out[leaf] = i[depth] / accounts
    return out
