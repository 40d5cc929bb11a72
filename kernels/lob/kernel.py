"""Host side of lob.cu: the functions of reference.py."""

from __future__ import annotations

import torch

from kernels import build
from kernels.lob.reference import Fill, Memory

_THREADS = 128
_FEW = 16_384  # accounts under which smaller blocks spread better over the chip
_TILE = 1280  # words of a side a block holds, and the most levels a side may have


def fill(
    side: torch.Tensor,
    lots: torch.Tensor,
    px: torch.Tensor,
    avail: torch.Tensor,
    force: torch.Tensor,
    absent: int,
) -> Fill:
    """What one order an account took."""
    accounts, levels = px.shape
    inputs = [x.contiguous() for x in (side.to(torch.int64), lots, px, avail, force)]
    filled, tick_lots, consumed, rest = (torch.empty_like(inputs[1]) for _ in range(4))
    per_level = torch.empty(accounts, levels, dtype=torch.int64, device=px.device)
    outputs = (filled, tick_lots, per_level, consumed, rest)
    if levels > _TILE:
        raise ValueError(f"px: {levels} levels, the kernel holds at most {_TILE}")
    threads = 32 if accounts < _FEW else _THREADS
    grid = (build.ceil_div(accounts, min(threads, _TILE // levels)),)
    build.launch("lob", "lob_fill", grid, (threads,), *inputs, absent, accounts, levels, *outputs)
    return Fill(*outputs)


def available(memory: Memory, px: torch.Tensor, sz: torch.Tensor) -> tuple[torch.Tensor, Memory]:
    """(lots an account may still take [B, L], the memory lined up with this book)."""
    accounts, levels = px.shape
    inputs = [x.contiguous() for x in (*memory, px, sz)]
    avail, px_now, lots_now, sz_now = (torch.empty_like(inputs[3]) for _ in range(4))
    grid = (build.ceil_div(accounts * levels, _THREADS),)
    sizes = (accounts, levels, memory.taken_px.shape[1])
    build.launch("lob", "lob_available", grid, (_THREADS,), *inputs, *sizes, avail, px_now, lots_now, sz_now)
    return avail, Memory(px_now, lots_now, sz_now)


def take(memory: Memory, per_level: torch.Tensor) -> Memory:
    """The memory with the lots of a fill added, level by level."""
    lots = memory.taken_lots.contiguous()
    now = torch.empty_like(lots)
    grid = (build.ceil_div(now.numel(), _THREADS),)
    build.launch("lob", "lob_take", grid, (_THREADS,), lots, per_level.contiguous(), now.numel(), now)
    return memory._replace(taken_lots=now)
