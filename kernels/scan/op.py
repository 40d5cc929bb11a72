"""Selective scan over the K snapshots of a window, gates included, and its backward. No autograd here."""

from __future__ import annotations

import torch

from kernels import build
from kernels.arguments import FLOATS, check, check_wide
from kernels.scan import kernel, reference


def scan(pre: torch.Tensor, bias: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """(a, s), each [R, K, H]: a = sigmoid(p), s_k = a_k s_{k-1} + (1 - a_k) b_k with s_{-1} = 0.

    p and b are the last 2H columns of pre [R, K, W] plus bias [2H]: R rows, K >= 1 steps, H channels.
    Gu & Dao 2023 (2312.00752), Algorithm 2 with a diagonal state of one a channel and the discretised a, b given.
    """
    check("bias", bias, (None,), *FLOATS)
    if bias.shape[0] % 2:
        raise ValueError(f"bias: {bias.shape[0]} columns, expected two of each channel")
    check("pre", pre, (None, None, None), bias.dtype)
    check_wide("pre", pre, bias.shape[0])
    if pre.shape[1] == 0:
        raise ValueError("pre: no step to scan, expected K >= 1")
    return (kernel if build.on_gpu(pre) else reference).scan(pre, bias)


def scan_backward(a: torch.Tensor, s: torch.Tensor, ds: torch.Tensor, into: torch.Tensor) -> torch.Tensor:
    """dL/dbias [2H] from a and s of `scan` and dL/ds [R, K, H].

    dL/dpre, whose sum that is, is written into the last 2H columns of `into` [R, K, W]; the others are left alone.
    """
    check("a", a, (None, None, None), *FLOATS)
    for name, x in (("s", s), ("ds", ds)):
        check(name, x, tuple(a.shape), a.dtype)
    check("into", into, (*a.shape[:2], None), a.dtype)
    check_wide("into", into, 2 * a.shape[2])
    return (kernel if build.on_gpu(a) else reference).scan_backward(a, s, ds, into)
