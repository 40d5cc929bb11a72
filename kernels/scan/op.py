"""Selective scan over the K snapshots of a window, gates included, and its backward. No autograd here."""

from __future__ import annotations

import torch

from kernels import build
from kernels.arguments import FLOATS, check
from kernels.scan import kernel, reference


def scan(pre: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """(a, s, y), each [R, K, H]: a = sigmoid(p), s_k = a_k s_{k-1} + (1 - a_k) b_k with s_{-1} = 0, y = w s.

    pre: [R, K, 2H], p before b, R rows, K >= 1 steps, H channels. w: [H], the output weight of a channel.
    Gu & Dao 2023 (2312.00752), Algorithm 2 with a diagonal state of one a channel and the discretised a, b given.
    """
    check("w", w, (None,), *FLOATS)
    check("pre", pre, (None, None, 2 * w.shape[0]), w.dtype)
    if pre.shape[1] == 0:
        raise ValueError("pre: no step to scan, expected K >= 1")
    return (kernel if build.on_gpu(pre) else reference).scan(pre, w)


def scan_backward(
    a: torch.Tensor, s: torch.Tensor, w: torch.Tensor, dy: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """(dL/dpre [R, K, 2H], its sum over rows and steps [2H], dL/dw [H]) from a and s of `scan` and dL/dy [R, K, H]."""
    check("a", a, (None, None, w.shape[0]), *FLOATS)
    for name, x in (("s", s), ("dy", dy)):
        check(name, x, tuple(a.shape), a.dtype)
    return (kernel if build.on_gpu(a) else reference).scan_backward(a, s, w, dy)
