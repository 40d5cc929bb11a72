"""Host side of attention.cu: the functions of reference.py."""

from __future__ import annotations

import math

import torch

from kernels import build
from kernels.reduce import kernel as reduce

_BLOCK = (32, 8)
_STEPS = 64  # most of a row


def _sizes(x: torch.Tensor, out_width: int) -> tuple[int, int, int, int]:
    rows, steps, channels = x.shape
    if steps > _STEPS:
        raise ValueError(f"x: {steps} steps, a row of the kernel holds at most {_STEPS}")
    return rows, steps, channels, out_width - channels


def pool(q: torch.Tensor, x: torch.Tensor, beside: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """(weights [R, K], [context, beside] [R, H + A])."""
    sizes = _sizes(x, x.shape[2] + beside.shape[1])
    weights, out = x.new_empty(sizes[:2]), x.new_empty(sizes[0], sizes[2] + sizes[3])
    inputs = (q.contiguous(), x.contiguous(), beside.contiguous(), 1 / math.sqrt(sizes[2]))
    build.launch("attention", "attention_forward", sizes[:1], _BLOCK, *inputs, *sizes, weights, out)
    return weights, out


def pool_backward(
    q: torch.Tensor, x: torch.Tensor, weights: torch.Tensor, d_out: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """(dq [H], dx [R, K, H]) from dL/d[context, beside]."""
    sizes = _sizes(x, d_out.shape[1])
    dx, parts = x.new_empty(sizes[:3]), x.new_empty(sizes[0], sizes[2])
    inputs = (q.contiguous(), x.contiguous(), weights, d_out.contiguous(), 1 / math.sqrt(sizes[2]))
    build.launch("attention", "attention_backward", sizes[:1], _BLOCK, *inputs, *sizes, dx, parts)
    return reduce.sum_rows(parts), dx
