"""The state of B accounts as named buffers: everything a step reads from the step before, and nothing else.

Slots of a unit are kept in order of age, the oldest first, with no hole between them. An empty slot is all zeros.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import torch

from foxhunt_assets.contracts.buffers import BufferSpec
from foxhunt_assets.contracts.tables import ABSENT_PX, LEVELS
from foxhunt_assets.simulator.actions import HOLD
from foxhunt_assets.simulator.config import EnvConfig

N_HORIZONS = 3  # horizons of the forward-return distribution whose signs a unit carries from its decision
Buffers = Mapping[str, torch.Tensor]


class Units(NamedTuple):
    """The open units, [B, U] each. The units of one account lie on one side (acct_side)."""

    lots: torch.Tensor  # int64, lots still open
    entry_lots: torch.Tensor  # int64, lots its entry filled
    entry_step: torch.Tensor  # int64
    entry_ts: torch.Tensor  # int64, ns, of the book the entry filled on
    entry_tick_lots: torch.Tensor  # int64, of the whole entry
    open_tick_lots: torch.Tensor  # int64, not yet given to a closed part
    entry_fee: torch.Tensor  # int64 cents, of the whole entry
    open_fee: torch.Tensor  # int64 cents, not yet given to a closed part
    entry_action: torch.Tensor  # int64
    entry_signs: torch.Tensor  # int8 [B, U, 3], sign of the expected forward return at the decision, by horizon
    initial_r: torch.Tensor  # float32 ticks
    trail_distance: torch.Tensor  # float32 ticks
    best_px: torch.Tensor  # int64 ticks, best bid (long) or ask (short) on a row since the entry
    triggered: torch.Tensor  # bool, the stop was touched and has not filled

    @property
    def active(self) -> torch.Tensor:
        return self.lots > 0

    @property
    def number(self) -> torch.Tensor:
        return self.active.sum(1)


_UNIT_BUFFERS: dict[str, tuple[str, str]] = {
    "lots": ("unit_lots", "int64"),
    "entry_lots": ("unit_entry_lots", "int64"),
    "entry_step": ("unit_entry_step", "int64"),
    "entry_ts": ("unit_entry_ts", "int64"),
    "entry_tick_lots": ("unit_entry_tick_lots", "int64"),
    "open_tick_lots": ("unit_open_tick_lots", "int64"),
    "entry_fee": ("unit_entry_fee_cents", "int64"),
    "open_fee": ("unit_open_fee_cents", "int64"),
    "entry_action": ("unit_entry_action", "int64"),
    "entry_signs": ("unit_entry_signs", "int8"),
    "initial_r": ("unit_initial_r", "float32"),
    "trail_distance": ("unit_trail_distance", "float32"),
    "best_px": ("unit_best_px", "int64"),
    "triggered": ("unit_stop_triggered", "bool"),
}

# Per account: name -> (dtype, fill).
_ACCOUNT_BUFFERS: dict[str, tuple[str, float]] = {
    "acct_row": ("int64", 0),  # tape row the account stands on
    "acct_episode_start": ("bool", 0),  # an episode starts on this row
    "acct_episode_age": ("int64", 0),  # steps since the episode started
    "acct_ended": ("bool", 0),  # the episode ended with the step just made; the account has not jumped yet
    "acct_side": ("int64", 0),  # +1 long, -1 short, 0 flat
    "acct_realised_cents": ("int64", 0),  # net pnl of the closes of this episode
    "acct_equity_cents": ("int64", 0),  # start equity + realised + open, this episode
    "acct_phase_realised_cents": ("int64", 0),  # net pnl of all closes of this phase
    "acct_cash_cents": ("int64", 0),  # sell value - buy value - fees of all fills of this phase
    "acct_mark_half_ticks": ("int64", 0),  # last valid mid, in half ticks
    "acct_mark_valid": ("bool", 0),  # a mid was seen since the episode started
    "acct_last_bid": ("int64", 0),  # touches of the last two-sided, uncrossed book
    "acct_last_ask": ("int64", 0),
    "acct_loss_streak": ("int64", 0),  # closes at or below 0 in a row, this episode
    "acct_flat_steps": ("int64", 0),  # current run of flat steps, across episodes
    "acct_hold_steps": ("int64", 0),  # steps since the account left flat
    "pyramid_units_count": ("int64", 0),
}

_MEMORY_FIELDS = (("px", ABSENT_PX), ("lots", 0), ("sz", 0))


def specs(accounts: int, env: EnvConfig) -> list[BufferSpec]:
    """Every buffer the simulator and its walk need, group "account", for the registry to allocate."""
    per_unit, axes = (accounts, env.max_units), ("account", "unit")
    out = [BufferSpec("acct_step", (1,), "int64", "account")]  # the next step to decide on
    for name, (dtype, fill) in _ACCOUNT_BUFFERS.items():
        out.append(BufferSpec(name, (accounts,), dtype, "account", axes[:1], fill))
    out.append(BufferSpec("unit_active", per_unit, "uint8", "account", axes))
    for field, (name, dtype) in _UNIT_BUFFERS.items():
        tail, tail_axes = ((N_HORIZONS,), ("horizon",)) if field == "entry_signs" else ((), ())
        out.append(BufferSpec(name, per_unit + tail, dtype, "account", axes + tail_axes))
    for side in ("bid", "ask"):
        for field, fill in _MEMORY_FIELDS:
            name = f"acct_taken_{side}_{field}"
            out.append(BufferSpec(name, (accounts, LEVELS), "int32", "account", ("account", "level"), fill))
    return out + _pending_specs(accounts, env.latency_steps - 1)


def _pending_specs(accounts: int, waiting: int) -> list[BufferSpec]:
    """Decided actions on their way to the book, the one due next first; none at a latency of one row."""
    if waiting == 0:
        return []
    shape, axes = (accounts, waiting), ("account", "wait")
    return [
        BufferSpec("acct_pending_action", shape, "int64", "account", axes, HOLD),
        BufferSpec("acct_pending_signs", (*shape, N_HORIZONS), "int8", "account", (*axes, "horizon")),
    ]


def load_units(buffers: Buffers) -> Units:
    """The unit buffers as one value; the tensors are the buffers themselves."""
    return Units(**{field: buffers[name] for field, (name, _) in _UNIT_BUFFERS.items()})


def store_units(buffers: Buffers, units: Units) -> None:
    """Write the units back in place, and what is derived from them."""
    for field, (name, _) in _UNIT_BUFFERS.items():
        buffers[name].copy_(getattr(units, field))
    buffers["unit_active"].copy_(units.active)
    buffers["pyramid_units_count"].copy_(units.number)
