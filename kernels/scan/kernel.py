"""Host side of scan.cu: the functions of reference.py."""

from __future__ import annotations

import torch

from kernels import build
from kernels.reduce import kernel as reduce

_THREADS = 128
_COLUMNS, _LANES = 32, 8  # channels and rows of a block of the backward


def scan(pre: torch.Tensor, bias: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """(decay, state), each [R, K, H]."""
    rows, steps, channels = *pre.shape[:2], bias.shape[0] // 2
    decay, state = (pre.new_empty(rows, steps, channels) for _ in range(2))
    sizes = (rows, steps, channels, pre.shape[2])
    grid = (build.ceil_div(rows * channels, _THREADS),)
    build.launch("scan", "scan_forward", grid, (_THREADS,), pre.contiguous(), bias, *sizes, decay, state)
    return decay, state


def scan_backward(decay: torch.Tensor, state: torch.Tensor, ds: torch.Tensor, into: torch.Tensor) -> torch.Tensor:
    """Sums [2H] of what is written into the last 2H columns of `into`."""
    rows, steps, channels = decay.shape
    grid = (build.ceil_div(channels, _COLUMNS), build.ceil_div(rows, _LANES))
    parts = decay.new_empty(grid[1], 2 * channels)
    args = (decay, state, ds.contiguous(), rows, steps, channels, into.shape[2], into, parts)
    build.launch("scan", "scan_backward", grid, (_COLUMNS, _LANES), *args)
    return reduce.sum_rows(parts)
