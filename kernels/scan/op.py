"""Selective scan over the K snapshots of a window, differentiable in both inputs."""

from __future__ import annotations

from typing import Any

import torch
from torch.autograd.function import once_differentiable

from kernels import build
from kernels.arguments import FLOATS, check
from kernels.scan import kernel, reference


class _SelectiveScan(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        h = (kernel if build.on_gpu(a) else reference).scan(a, b)
        ctx.save_for_backward(a, h)  # h is kept, not recomputed: K is one window
        return h

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dh: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        a, h = ctx.saved_tensors
        return (kernel if build.on_gpu(a) else reference).scan_backward(a, h, dh)


def selective_scan(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """h_k = a_k h_{k-1} + b_k for k = 0..K-1, h_{-1} = 0, elementwise in R and H.

    a (decay), b (input): [R, K, H], same shape and type, R rows, K >= 1 steps, H channels. Returns h [R, K, H].
    Gu & Dao 2023 (2312.00752), Algorithm 2 with the discretised a, b given. Differentiable once.
    """
    check("a", a, (None, None, None), *FLOATS)
    check("b", b, tuple(a.shape), a.dtype)
    if a.shape[1] == 0:
        raise ValueError("a: no step to scan, expected K >= 1")
    return _SelectiveScan.apply(a, b)
