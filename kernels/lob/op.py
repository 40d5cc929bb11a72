"""Market orders of B accounts, each against its own book row: L levels of the opposing side, best first.

Prices are int32 ticks, sizes int32 lots, sums int64: the same on every device. A level that is not there has the
price `absent` and size 0. A crossed or one-sided book is the caller's to refuse (side 0 or 0 lots fill nothing).
"""

from __future__ import annotations

import torch

from kernels import build
from kernels.arguments import check
from kernels.lob import kernel, reference
from kernels.lob.reference import ABSENT, Fill, Memory

__all__ = ["ABSENT", "Fill", "Memory", "available", "fill", "mid_half_ticks", "take"]


def fill(
    side: torch.Tensor,
    lots: torch.Tensor,
    px: torch.Tensor,
    avail: torch.Tensor,
    force: torch.Tensor,
    absent: int = ABSENT,
) -> Fill:
    """Take what the levels hold, best first; the rest is cancelled, or with force filled at the deepest price.

    side: int [B], +1 buys from asks, -1 sells to bids, 0 sends nothing; px and avail are of that opposing side.
    lots: int64 [B], 0 or less sends nothing. px: int32 [B, L] ticks. avail: int32 [B, L] lots still takeable
    (from `available`), not negative. force: bool [B]; forced lots beyond the book fill at the price of its deepest
    present level and are told apart as forced_rest; a side without any level fills nothing, forced or not.
    """
    check("px", px, (None, None), torch.int32)
    rows = (px.shape[0],)
    check("side", side, rows, torch.int8, torch.int32, torch.int64)
    check("lots", lots, rows, torch.int64)
    check("avail", avail, tuple(px.shape), torch.int32)
    check("force", force, rows, torch.bool)
    if px.shape[1] == 0:
        raise ValueError("px: no level")
    return (kernel if build.on_gpu(px) else reference).fill(side, lots, px, avail, force, absent)


def mid_half_ticks(bid0: torch.Tensor, ask0: torch.Tensor, absent: int = ABSENT) -> tuple[torch.Tensor, torch.Tensor]:
    """(best bid + best ask int64, valid bool): the mid in half-ticks, 0 and False where a side is missing.

    bid0, ask0: int32 ticks of one shape. A crossed book still has a mid.
    """
    check("bid0", bid0, tuple(bid0.shape), torch.int32)
    check("ask0", ask0, tuple(bid0.shape), torch.int32)
    return reference.mid_half_ticks(bid0, ask0, absent)


def available(memory: Memory, px: torch.Tensor, sz: torch.Tensor) -> tuple[torch.Tensor, Memory]:
    """(avail int32 [B, L], memory): displayed sizes less what each account took, and the memory of this book.

    px, sz: int32 [B, L] of one side. What was taken at a price is remembered while the tape shows that price at
    the size it had when it was taken, whatever its rank; another size, or the price gone from the levels, drops
    it. Call it on every row an account sees, traded or not, or a change between two trades goes unseen. A change
    inside one row that returns to the same size cannot be seen.
    """
    check("px", px, (None, None), torch.int32)
    check("sz", sz, tuple(px.shape), torch.int32)
    for name, x in zip(Memory._fields, memory):
        check(name, x, (px.shape[0], None), torch.int32)
    return (kernel if build.on_gpu(px) else reference).available(memory, px, sz)


def take(memory: Memory, per_level: torch.Tensor) -> Memory:
    """The memory `available` gave for a book, with per_level int64 [B, L] of a fill on that book added."""
    check("per_level", per_level, tuple(memory.taken_lots.shape), torch.int64)
    return (kernel if build.on_gpu(per_level) else reference).take(memory, per_level)
