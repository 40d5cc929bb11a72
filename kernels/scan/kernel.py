"""Host side of scan.cu: the functions of reference.py."""

from __future__ import annotations

import torch

from kernels import build
from kernels.reduce import kernel as reduce

_THREADS = 128
_COLUMNS, _LANES = 32, 8  # channels and rows of a block of the backward


def scan(pre: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """(decay, state, y), each [R, K, H]."""
    rows, steps, channels = *pre.shape[:2], w.shape[0]
    decay, state, y = (pre.new_empty(rows, steps, channels) for _ in range(3))
    inputs = (pre.contiguous(), w.contiguous())
    grid = (build.ceil_div(rows * channels, _THREADS),)
    build.launch("scan", "scan_forward", grid, (_THREADS,), *inputs, rows, steps, channels, decay, state, y)
    return decay, state, y


def scan_backward(
    decay: torch.Tensor, state: torch.Tensor, w: torch.Tensor, dy: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """(dpre [R, K, 2H], its sum over rows and steps [2H], dw [H]) from dL/dy."""
    rows, steps, channels = decay.shape
    grid = (build.ceil_div(channels, _COLUMNS), build.ceil_div(rows, _LANES))
    dpre, parts = decay.new_empty(rows, steps, 2 * channels), decay.new_empty(grid[1], 3 * channels)
    args = (decay, state, w.contiguous(), dy.contiguous(), rows, steps, channels, dpre, parts)
    build.launch("scan", "scan_backward", grid, (_COLUMNS, _LANES), *args)
    dbias, dw = reduce.sum_rows(parts).split((2 * channels, channels))
    return dpre, dbias, dw
