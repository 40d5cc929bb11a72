"""What the simulator sees of a tape: books, extremes, times and fees by row, on the device it runs on."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from foxhunt_assets.contracts.tables import LEVELS
from foxhunt_assets.errors import BadInput

_BOOK_COLUMNS = ("bid_px", "ask_px", "bid_sz", "ask_sz")


@dataclass(frozen=True)
class MarketView:
    """A tape of N rows. Prices in ticks (an absent level has ABSENT_PX and size 0), sizes in lots.

    bid_px, ask_px, bid_sz, ask_sz: int32 [N, 10], best first. low_bid_px, high_ask_px: int32 [N], extremes since
    the row before. ts, ts_event: int64 [N], ns, when the row is known and when its last event happened. segment:
    int32 [N], -1 outside every session. fee_cents: int64 [N], cents a side and lot for a fill on that row.
    tick_cents: cents one tick of one lot is worth.

    Marks are in half ticks. Where tick_cents is odd (MES: 125) half a tick is half a cent; the mark of an account
    is then rounded down to a cent, so that cash, realised and open pnl still add up exactly.
    """

    bid_px: torch.Tensor
    ask_px: torch.Tensor
    bid_sz: torch.Tensor
    ask_sz: torch.Tensor
    low_bid_px: torch.Tensor
    high_ask_px: torch.Tensor
    ts: torch.Tensor
    ts_event: torch.Tensor
    segment: torch.Tensor
    fee_cents: torch.Tensor
    tick_cents: int

    def __post_init__(self) -> None:
        rows = self.ts.shape[0]
        wanted = {
            **dict.fromkeys(_BOOK_COLUMNS, ((rows, LEVELS), torch.int32)),
            **dict.fromkeys(("low_bid_px", "high_ask_px", "segment"), ((rows,), torch.int32)),
            **dict.fromkeys(("ts", "ts_event", "fee_cents"), ((rows,), torch.int64)),
        }
        for name, (shape, dtype) in wanted.items():
            tensor = getattr(self, name)
            if tuple(tensor.shape) != shape or tensor.dtype != dtype or tensor.device != self.ts.device:
                raise BadInput(
                    f"market view: {name} is {tensor.dtype} {tuple(tensor.shape)} on {tensor.device}; "
                    f"{dtype} {shape} on {self.ts.device} is needed"
                )
        if self.tick_cents <= 0:
            raise BadInput(f"market view: tick_cents is {self.tick_cents}; it must be positive")

    @property
    def rows(self) -> int:
        return self.ts.shape[0]

    @property
    def device(self) -> torch.device:
        return self.ts.device


def segment_bounds(segment: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """(first row, last row) int64 [N] of the run of equal segment numbers each row lies in."""
    rows = torch.arange(segment.shape[0], device=segment.device)
    inside = segment[1:] == segment[:-1]  # the row has the same segment as the row before
    first = torch.where(torch.nn.functional.pad(inside, (1, 0)), 0, rows).cummax(0).values
    last = torch.where(torch.nn.functional.pad(inside, (0, 1)), rows[-1], rows).flip(0).cummin(0).values.flip(0)
    return first, last
