"""Fills and liquidity memory on integer tensors; B accounts, L levels a side, best level first.

Assumes `partial_fill` up to the displayed size, `no_impact` on the tape itself, `no_latency` (the caller chose the
book) and `taken_stays_taken`: what an account took at a price is gone for it until the tape shows that level change.
"""

from __future__ import annotations

from typing import NamedTuple

import torch

ABSENT = torch.iinfo(torch.int32).min  # price of a level that is not there


class Fill(NamedTuple):
    """What one order an account took; lots asked less `filled` were cancelled."""

    filled: torch.Tensor  # int64 [B], lots, forced_rest included
    tick_lots: torch.Tensor  # int64 [B], sum of price x lots over the filled lots
    per_level: torch.Tensor  # int64 [B, L], lots taken from what each level holds
    levels_consumed: torch.Tensor  # int64 [B], deepest level a lot was filled at, 1 is the touch; 0 without a fill
    forced_rest: torch.Tensor  # int64 [B], lots filled beyond the book at its deepest price


class Memory(NamedTuple):
    """Lots an account took at prices of one side; lots are 0 where it took none."""

    taken_px: torch.Tensor  # int32 [B, L], ticks
    taken_lots: torch.Tensor  # int32 [B, L]
    taken_sz: torch.Tensor  # int32 [B, L], lots the tape displayed when they were taken


def fill(
    side: torch.Tensor,
    lots: torch.Tensor,
    px: torch.Tensor,
    avail: torch.Tensor,
    force: torch.Tensor,
    absent: int,
) -> Fill:
    """Take from the touch downwards until the order or the book is exhausted."""
    wanted = torch.where(side != 0, lots, 0).clamp(min=0)
    present = px != absent
    held = torch.where(present, avail, 0).to(torch.int64)
    above = held.cumsum(1) - held  # lots held by the better levels
    per_level = torch.minimum(held, (wanted[:, None] - above).clamp(min=0))
    rank = torch.arange(1, px.shape[1] + 1, dtype=torch.int64, device=px.device)
    deepest = (present * rank).amax(1)
    rest = torch.where(force & (deepest > 0), wanted - per_level.sum(1), 0)
    deepest_px = px.gather(1, (deepest - 1).clamp(min=0)[:, None])[:, 0]
    reached = ((per_level > 0) * rank).amax(1)
    return Fill(
        filled=per_level.sum(1) + rest,
        tick_lots=(per_level * px).sum(1) + rest * deepest_px,
        per_level=per_level,
        levels_consumed=torch.where(rest > 0, deepest, reached),
        forced_rest=rest,
    )


def mid_half_ticks(bid0: torch.Tensor, ask0: torch.Tensor, absent: int) -> tuple[torch.Tensor, torch.Tensor]:
    """(bid + ask, valid): the mid in half-ticks, 0 where a side is missing."""
    valid = (bid0 != absent) & (ask0 != absent)
    return torch.where(valid, bid0.to(torch.int64) + ask0.to(torch.int64), 0), valid


def available(memory: Memory, px: torch.Tensor, sz: torch.Tensor) -> tuple[torch.Tensor, Memory]:
    """(lots the account may still take [B, L], the memory lined up with this book)."""
    same = (memory.taken_px[:, None, :] == px[:, :, None]) & (memory.taken_sz[:, None, :] == sz[:, :, None])
    taken = torch.where(same, memory.taken_lots[:, None, :], 0).sum(2, dtype=torch.int32)
    return sz - taken, Memory(px.clone(), taken, sz.clone())


def take(memory: Memory, per_level: torch.Tensor) -> Memory:
    """The memory with the lots of a fill added, level by level."""
    return memory._replace(taken_lots=memory.taken_lots + per_level.to(torch.int32))
