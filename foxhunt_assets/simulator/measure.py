"""What the simulator alone can measure of a diag row: positions, orders, units, trails, money.

A step's numbers are gathered on the device (`Counters.update`) into two packed rows and the running totals, as exact
integers where the definition allows it; what leaves are made of them on the host is in measure_leaves.py.
"""

from __future__ import annotations

from typing import Literal

import torch

from foxhunt_assets.contracts.buffers import BufferSpec
from foxhunt_assets.contracts.tables import ABSENT_PX
from foxhunt_assets.simulator.actions import LARGE_ENTRIES
from foxhunt_assets.simulator.config import MAX_UNITS, EnvConfig
from foxhunt_assets.simulator.market_view import MarketView
from foxhunt_assets.simulator.measure_leaves import DEPTHS, IMBALANCE_DEPTHS, LEAVES, SIZE_CLASSES, Leaves, leaves
from foxhunt_assets.simulator.simulator import Simulator, StepOutcome
from foxhunt_assets.simulator.state import N_HORIZONS, Buffers, Units, load_units
from foxhunt_assets.simulator.units import REASONS, TRADE_FIELDS
from kernels import build
from kernels.tally import op as tally

_NEVER = torch.iinfo(torch.int64).min
_FIRST_FORCED = REASONS.index("session")
_AT = {name: i for i, name in enumerate(TRADE_FIELDS)}

# Sums since the phase began. "_high" and "_low" are extremes, not sums.
TOTALS: tuple[str, ...] = (
    "trades", "wins", "pnl", "win_pnl", "hold_steps", "forced_pnl", "long_pnl", "large_pnl", "trail_pnl",
    "fees", "slippage_half_ticks", "market_half_ticks", "account_steps",
    *(f"agree_pnl_h{h + 1}" for h in range(N_HORIZONS)),
    *(f"{what}_{size}" for what in ("steps", "trail_steps", "closes", "close_hold") for size in SIZE_CLASSES),
    "equity_high", "drawdown_high", "trade_high", "trade_low",
)  # fmt: skip

ROW_INTS: tuple[str, ...] = (
    "starts", "age", "terminated", "truncated", "anchor", "anchor_min", "anchor_max", "anchor_distinct",
    "segment_distinct", "segment_rows_left_min", "purge_margin_min",
    "units_added", "ineffective", "closes", "pnl", "equity", "cash", "net_notional", "gross_notional", "open",
    "open_min", "account_high", "account_low", "profitable", "lots_abs", "lots_abs_max", "lots_net", "long", "short",
    "flat_steps_max", "hold_steps", "units", "units_max", "full_stack", "closed_singly", "tightened", "loosened",
    "trail_closes", "orders", "policy_orders", "fills", "fill_lots", "buy_lots", "rejected", "levels_max",
    "slippage_half_ticks", "fees", "touch_fills", "lag_ns", "two_sided", "spread", "spread_max",
    *(f"unit{u + 1}_{what}" for u in range(MAX_UNITS) for what in ("active", "lots", "age")),
    *(f"{side}_depth_l{d}" for side in ("bid", "ask") for d in DEPTHS),
)  # fmt: skip

ROW_FLOATS: tuple[str, ...] = (
    "distance", "distance_min", "distance_max", "initial_r", "open_r", "touch_take", "microprice_dev", "account_std",
    *(f"imbalance_l{d}" for d in IMBALANCE_DEPTHS),
)  # fmt: skip

Row = dict[str, torch.Tensor]

# What kernels.tally takes of an outcome, and of the state.
_MEASURED = (
    "anchor", "episode_age", "mark_half_ticks", "mark_change_half_ticks", "lots", "units_before",
    "open_cents", "phase_equity_cents", "realised_cents", "fee_cents", "orders", "policy_orders", "fills",
    "fill_lots", "buy_lots", "rejected", "levels_max", "slippage_half_ticks", "touch_fills", "lag_ns",
    "units_added", "units_closed_singly", "tightened", "loosened", "episode_start", "terminated", "truncated",
    "ineffective", "trades", "trade_mask", "touch_take",
)  # fmt: skip
_STATE = (
    "acct_step", "acct_side", "acct_cash_cents", "acct_flat_steps", "acct_hold_steps", "acct_mark_half_ticks",
    "unit_lots", "unit_entry_step", "unit_open_tick_lots", "unit_initial_r", "unit_trail_distance",
)  # fmt: skip


def specs() -> list[BufferSpec]:
    """The buffers of `Counters`."""
    return [
        BufferSpec("diag_sim_totals", (len(TOTALS),), "int64", "diag", ("total",)),
        BufferSpec("diag_sim_pnl_squares", (1,), "float64", "diag"),
        BufferSpec("diag_sim_ints", (len(ROW_INTS),), "int64", "diag", ("value",)),
        BufferSpec("diag_sim_floats", (len(ROW_FLOATS),), "float64", "diag", ("value",)),
    ]


class Counters:
    """Running totals of one phase and the packed row of its last step, in buffers (updated in place)."""

    def __init__(self, env: EnvConfig, accounts: int, tick_cents: int, buffers: Buffers):
        self.env, self.accounts, self.tick_cents, self.buffers = env, accounts, tick_cents, buffers
        self._tally: tally.Tally | None = None

    def reset(self) -> None:
        """Begin a phase: every total anew."""
        start = dict.fromkeys(TOTALS, 0) | {"trade_high": _NEVER, "trade_low": -(_NEVER + 1)}
        self.buffers["diag_sim_totals"].copy_(torch.tensor([start[name] for name in TOTALS]))
        self.buffers["diag_sim_pnl_squares"].zero_()

    def update(self, sim: Simulator, out: StepOutcome) -> None:
        """Measure a step: after sim.step, before sim.advance. No host synchronisation but at the first.

        On a CUDA device two launches do it; the integers are equal to those of the torch operations below.
        """
        if build.on_gpu(sim.market.ts):
            self._tally = self._tally or self._on_device(sim)
            self._tally.update({name: getattr(out, name) for name in _MEASURED})
            return
        row = {
            **_walk_row(sim, out),
            **_flow_row(out),
            **_account_row(self.tick_cents, sim.buffers, out),
            **_unit_row(self.env, sim.buffers),
            **_book_row(sim.market, out.anchor),
        }
        totals = self._add_up(row, out)
        self.buffers["diag_sim_totals"].copy_(_pack(totals, TOTALS, torch.int64))
        self.buffers["diag_sim_ints"].copy_(_pack(row, ROW_INTS, torch.int64))
        self.buffers["diag_sim_floats"].copy_(_pack(row, ROW_FLOATS, torch.float64))

    def _on_device(self, sim: Simulator) -> tally.Tally:
        market = sim.market
        state = {name: sim.buffers[name] for name in _STATE}
        return tally.Tally(
            self.accounts,
            {
                **{name: getattr(market, name) for name in ("bid_px", "ask_px", "bid_sz", "ask_sz", "segment")},
                "segment_last": sim.segment_last,
                **state,
                **{spec.name: self.buffers[spec.name] for spec in specs()},
            },
            max_units=self.env.max_units,
            tick_cents=self.tick_cents,
            absent=ABSENT_PX,
            segments=int(market.segment.max()) + 1,
            last_usable_row=sim.walk.last_usable_row,
        )

    def leaves(self, phase: Literal["train", "eval"]) -> Leaves:
        """The last step's leaves in contract order. Waits for the device."""
        read = {name: self.buffers[f"diag_sim_{name}"].tolist() for name in ("ints", "floats", "totals", "pnl_squares")}
        found = self.finish(phase, **read)
        return {path: found[path] for path in LEAVES}

    def finish(
        self,
        phase: Literal["train", "eval"],
        ints: list[int],
        floats: list[float],
        totals: list[int],
        pnl_squares: list[float],
    ) -> Leaves:
        """Leaves of a step from its four buffers as they were read back: no device is asked."""
        return leaves(
            self.accounts, self.tick_cents, phase, dict(zip(ROW_INTS, ints)), dict(zip(ROW_FLOATS, floats)),
            dict(zip(TOTALS, totals)), pnl_squares[0],
        )  # fmt: skip

    def _add_up(self, row: Row, out: StepOutcome) -> Row:
        old = dict(zip(TOTALS, self.buffers["diag_sim_totals"].unbind()))
        mask, trades = out.trade_mask, out.trades * out.trade_mask[:, :, None]
        field = {name: trades[:, :, at] for name, at in _AT.items()}
        pnl, zero = field["pnl_cents"], torch.zeros_like(trades[:, :, 0])
        held = (field["exit_step"] - field["entry_step"]) * mask
        trail = mask & (field["reason"] == REASONS.index("trail"))
        large = (field["entry_action"] == LARGE_ENTRIES[0]) | (field["entry_action"] == LARGE_ENTRIES[1])
        step: Row = {
            "trades": mask.sum(),
            "wins": (mask & (pnl > 0)).sum(),
            "pnl": pnl.sum(),
            "win_pnl": pnl.clamp(min=0).sum(),
            "hold_steps": held.sum(),
            "forced_pnl": torch.where(field["reason"] >= _FIRST_FORCED, pnl, zero).sum(),
            "long_pnl": torch.where(field["side"] > 0, pnl, zero).sum(),
            "large_pnl": torch.where(large, pnl, zero).sum(),
            "trail_pnl": torch.where(trail, pnl, zero).sum(),
            "fees": row["fees"],
            "slippage_half_ticks": row["slippage_half_ticks"],
            "market_half_ticks": out.mark_change_half_ticks.sum(),
            "account_steps": torch.ones_like(row["fees"]) * self.accounts,
        }
        for h in range(N_HORIZONS):
            agrees = field[f"sign_h{h + 1}"] == field["side"]
            step[f"agree_pnl_h{h + 1}"] = torch.where(agrees, pnl, zero).sum()
        cap, units = self.env.max_units, out.units_before
        quarter, half = units * 4 <= cap, units * 2 <= cap
        for size, inside in zip(SIZE_CLASSES, (quarter, half & ~quarter, ~half)):
            among = inside & (units > 0)
            step[f"steps_{size}"] = among.sum()
            step[f"trail_steps_{size}"] = (among & trail.any(1)).sum()
            step[f"closes_{size}"] = (mask & among[:, None]).sum()
            step[f"close_hold_{size}"] = (held * among[:, None]).sum()
        totals = {name: old[name] + value for name, value in step.items()}
        totals["equity_high"] = old["equity_high"].maximum(row["equity"])
        totals["drawdown_high"] = old["drawdown_high"].maximum(totals["equity_high"] - row["equity"])
        totals["trade_high"] = old["trade_high"].maximum(torch.where(mask, pnl, _NEVER).amax())
        totals["trade_low"] = old["trade_low"].minimum(torch.where(mask, pnl, -(_NEVER + 1)).amin())
        self.buffers["diag_sim_pnl_squares"].add_((pnl * pnl).sum().to(torch.float64))
        return totals


def _walk_row(sim: Simulator, out: StepOutcome) -> Row:
    anchor = out.anchor
    return {
        "starts": out.episode_start.sum(),
        "age": out.episode_age.sum(),
        "terminated": out.terminated.sum(),
        "truncated": out.truncated.sum(),
        "anchor": anchor.sum(),
        "anchor_min": anchor.amin(),
        "anchor_max": anchor.amax(),
        "anchor_distinct": _distinct(anchor),
        "segment_distinct": _distinct(sim.market.segment[anchor]),
        "segment_rows_left_min": (sim.segment_last[anchor] - anchor).amin(),
        "purge_margin_min": sim.walk.last_usable_row - anchor.amax(),
    }


def _flow_row(out: StepOutcome) -> Row:
    summed = (
        "units_added", "ineffective", "tightened", "loosened", "orders", "policy_orders", "fills", "fill_lots",
        "buy_lots", "rejected", "slippage_half_ticks", "touch_fills", "lag_ns", "touch_take",
    )  # fmt: skip
    trail = out.trade_mask & (out.trades[:, :, _AT["reason"]] == REASONS.index("trail"))
    return {
        **{name: getattr(out, name).sum() for name in summed},
        "closes": out.trade_mask.sum(),
        "pnl": out.realised_cents.sum(),
        "fees": out.fee_cents.sum(),
        "levels_max": out.levels_max.amax(),
        "closed_singly": out.units_closed_singly.sum(),
        "trail_closes": trail.sum(),
    }


def _account_row(tick_cents: int, b: Buffers, out: StepOutcome) -> Row:
    value = (out.lots * out.mark_half_ticks * tick_cents) // 2
    equity = out.phase_equity_cents
    lots = out.lots.abs()
    return {
        "equity": equity.sum(),
        "account_high": equity.amax(),
        "account_low": equity.amin(),
        "account_std": equity.to(torch.float64).std(correction=0),
        "profitable": (equity > 0).sum(),
        "cash": b["acct_cash_cents"].sum(),
        "net_notional": value.sum(),
        "gross_notional": value.abs().sum(),
        "open": out.open_cents.sum(),
        "open_min": out.open_cents.amin(),
        "lots_abs": lots.sum(),
        "lots_abs_max": lots.amax(),
        "lots_net": out.lots.sum(),
        "long": (out.lots > 0).sum(),
        "short": (out.lots < 0).sum(),
        "flat_steps_max": b["acct_flat_steps"].amax(),
        "hold_steps": (b["acct_hold_steps"] * (lots > 0)).sum(),
    }


def _unit_row(env: EnvConfig, b: Buffers) -> Row:
    units = load_units(b)
    open_, count = units.active, units.number
    distance = units.trail_distance.to(torch.float64)
    row = {
        "units": count.sum(),
        "units_max": count.amax(),
        "full_stack": (count == env.max_units).sum(),
        "distance": distance.sum(),
        "distance_min": torch.where(open_, distance, torch.inf).amin().nan_to_num(posinf=0.0),
        "distance_max": distance.amax(),
        "initial_r": units.initial_r.to(torch.float64).sum(),
        "open_r": _open_r(units, b).sum(),
    }
    age = torch.where(open_, b["acct_step"] - 1 - units.entry_step, 0)
    for u in range(MAX_UNITS):
        there = u < env.max_units
        row[f"unit{u + 1}_active"] = open_[:, u].sum() if there else torch.zeros_like(row["units"])
        row[f"unit{u + 1}_lots"] = units.lots[:, u].sum() if there else torch.zeros_like(row["units"])
        row[f"unit{u + 1}_age"] = age[:, u].sum() if there else torch.zeros_like(row["units"])
    return row


def _open_r(units: Units, b: Buffers) -> torch.Tensor:
    """float64 [B, U]: side x (mid - entry) over the unit's initial R, 0 for an empty slot."""
    mid = b["acct_mark_half_ticks"].to(torch.float64)[:, None] / 2
    entry = units.open_tick_lots / units.lots.clamp(min=1).to(torch.float64)
    gain = b["acct_side"][:, None] * (mid - entry)
    return torch.where(units.active, gain / units.initial_r.clamp(min=1e-6).to(torch.float64), 0.0)


def _book_row(market: MarketView, row: torch.Tensor) -> Row:
    bid, ask = market.bid_px[row, 0].to(torch.int64), market.ask_px[row, 0].to(torch.int64)
    both = (bid != ABSENT_PX) & (ask != ABSENT_PX)
    depth = {"bid": market.bid_sz[row].cumsum(1), "ask": market.ask_sz[row].cumsum(1)}
    spread = torch.where(both, ask - bid, 0)
    bid_sz, ask_sz = depth["bid"][:, 0], depth["ask"][:, 0]
    # size-weighted touch - mid = spread x (bid size - ask size) / (2 x (bid size + ask size))
    tilt = _imbalance(bid_sz, ask_sz)
    out: Row = {
        "two_sided": both.sum(),
        "spread": spread.sum(),
        "spread_max": torch.where(both, spread, _NEVER).amax(),
        "microprice_dev": (spread * tilt / 2).sum(),
    }
    for d in IMBALANCE_DEPTHS:
        out[f"imbalance_l{d}"] = _imbalance(depth["bid"][:, d - 1], depth["ask"][:, d - 1]).sum()
    for side, sizes in depth.items():
        out |= {f"{side}_depth_l{d}": sizes[:, d - 1].sum() for d in DEPTHS}
    return out


def _imbalance(bid: torch.Tensor, ask: torch.Tensor) -> torch.Tensor:
    return (bid - ask).to(torch.float64) / (bid + ask).clamp(min=1)


def _distinct(values: torch.Tensor) -> torch.Tensor:
    ordered = values.sort().values
    return (ordered[1:] != ordered[:-1]).sum() + 1


def _pack(values: Row, names: tuple[str, ...], dtype: torch.dtype) -> torch.Tensor:
    return torch.stack([values[name].to(dtype) for name in names])
