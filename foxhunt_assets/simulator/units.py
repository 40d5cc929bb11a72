"""Pure functions on the units of an account: opening, closing by lots, splitting money over parts, stops.

Every sum is an exact integer. A close takes lots from the oldest unit first; the first lots filled are the oldest
unit's. entry_tick_lots and entry fee of a part are floor(total x part / lots of the entry), the remainder goes to
the unit's last part, so that parts add up to the unit and nothing is lost to rounding.
"""

from __future__ import annotations

from typing import NamedTuple

import torch

from foxhunt_assets.simulator.orders import Execution, deal
from foxhunt_assets.simulator.state import Units

REASONS: tuple[str, ...] = ("", "policy", "trail", "session", "gap", "length", "blown", "phase_end")
TRADE_FIELDS: tuple[str, ...] = (
    "account", "side", "lots", "entry_step", "exit_step", "entry_ts", "exit_ts", "entry_tick_lots",
    "exit_tick_lots", "fees_cents", "pnl_cents", "reason", "entry_action", "exit_action",
    "sign_h1", "sign_h2", "sign_h3",
)  # fmt: skip
PNL = TRADE_FIELDS.index("pnl_cents")
_FIELDS_BY_DTYPE = (
    ("lots", "entry_lots", "entry_step", "entry_ts", "entry_tick_lots", "open_tick_lots", "entry_fee", "open_fee",
     "entry_action", "best_px"),
    ("initial_r", "trail_distance"),
    ("triggered",),
)  # fmt: skip


class Close(NamedTuple):
    """Why and where lots are closed, [B] each, int64; tick_cents is a number."""

    side: torch.Tensor  # side of the position
    reason: torch.Tensor  # index into REASONS
    action: torch.Tensor  # action due
    step: torch.Tensor
    ts: torch.Tensor  # of the fill book
    fee: torch.Tensor  # cents a lot
    tick_cents: int


def stop_px(units: Units, side: torch.Tensor) -> torch.Tensor:
    """int64 [B, U] ticks: the best touch since the entry less (long) or plus (short) the trail distance, rounded up."""
    return units.best_px - side[:, None] * torch.ceil(units.trail_distance).to(torch.int64)


def deal_to_units(units: Units, done: Execution) -> tuple[torch.Tensor, torch.Tensor]:
    """(lots, exit tick-lots) int64 [B, U] of a single order ([B, 1]), the oldest unit first."""
    mine = deal(units.lots, done.lots_at[:, 0])
    return mine.sum(2), (mine * done.px_at[:, :1]).sum(2)


def close_lots(
    units: Units, taken: torch.Tensor, exit_tick_lots: torch.Tensor, close: Close
) -> tuple[Units, torch.Tensor, torch.Tensor]:
    """Close taken lots of each unit: (units left, trade rows [B, U, len(TRADE_FIELDS)], which rows are there)."""
    last = taken == units.lots
    entry_tick_lots = _part(units.entry_tick_lots, units.open_tick_lots, taken, units.entry_lots, last)
    entry_fee = _part(units.entry_fee, units.open_fee, taken, units.entry_lots, last)
    fees = entry_fee + taken * close.fee[:, None]
    side = close.side[:, None].expand_as(taken)
    pnl = side * (exit_tick_lots - entry_tick_lots) * close.tick_cents - fees
    account = torch.arange(taken.shape[0], device=taken.device)
    signs = units.entry_signs.to(torch.int64)
    columns = (
        account[:, None], side, taken, units.entry_step, close.step[:, None], units.entry_ts, close.ts[:, None],
        entry_tick_lots, exit_tick_lots, fees, pnl, close.reason[:, None], units.entry_action, close.action[:, None],
        *signs.unbind(2),
    )  # fmt: skip
    there = taken > 0
    rows = torch.stack([c.expand_as(taken) for c in columns], dim=2) * there[:, :, None]
    left = units._replace(
        lots=units.lots - taken,
        open_tick_lots=units.open_tick_lots - entry_tick_lots,
        open_fee=units.open_fee - entry_fee,
    )
    return compact(left), rows, there


def _part(
    total: torch.Tensor, still_open: torch.Tensor, part: torch.Tensor, lots: torch.Tensor, last: torch.Tensor
) -> torch.Tensor:
    share = torch.div(total * part, lots.clamp(min=1), rounding_mode="floor")
    return torch.where(last, still_open, share)


def compact(units: Units) -> Units:
    """Move the open units to the front in order of age and zero the empty slots."""
    order = torch.argsort((~units.active).to(torch.int8), dim=1, stable=True)
    live = units.active.gather(1, order)[:, :, None]
    moved: dict[str, torch.Tensor] = {}
    for names in _FIELDS_BY_DTYPE:  # one gather a type instead of one a field
        packed = torch.stack([getattr(units, name) for name in names], 2)
        here = packed.gather(1, order[:, :, None].expand_as(packed)) * live
        moved |= zip(names, here.unbind(2))
    signs = units.entry_signs
    moved["entry_signs"] = signs.gather(1, order[:, :, None].expand_as(signs)) * live
    return Units(**moved)


def open_unit(units: Units, opened: torch.Tensor, unit: Units) -> Units:
    """Put unit ([B, 1] fields) into the first empty slot of the accounts where opened (bool [B]) is True."""
    slot = torch.arange(units.lots.shape[1], device=opened.device)
    here = opened[:, None] & (slot == units.number[:, None])
    return Units(*(torch.where(_like(here, old), new, old) for old, new in zip(units, unit)))


def follow(units: Units, side: torch.Tensor, touch: torch.Tensor, seen: torch.Tensor) -> Units:
    """Let the best touch of open units follow touch (int64 [B]: bid for a long, ask for a short) where seen."""
    better = torch.where(
        side[:, None] > 0, units.best_px.maximum(touch[:, None]), units.best_px.minimum(touch[:, None])
    )
    return units._replace(best_px=torch.where(units.active & seen[:, None], better, units.best_px))


def _like(mask: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    return mask if value.dim() == 2 else mask[:, :, None]
