"""Variable selection over the features of a row (Lim 2021, 1912.09363, as a plain softmax gate). No autograd here."""

from __future__ import annotations

import torch

from kernels import build
from kernels.arguments import FLOATS, check
from kernels.vsn import kernel, reference


def select(logits: torch.Tensor, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """(mask, mask x F), each [..., F]: mask = softmax(logits); the factor F keeps the scale of x at a uniform gate.

    logits, x: [..., F], F >= 1.
    """
    check("x", x, tuple(x.shape), *FLOATS)
    check("logits", logits, tuple(x.shape), x.dtype)
    return (kernel if build.on_gpu(x) else reference).select(logits, x)


def select_backward(mask: torch.Tensor, x: torch.Tensor, dy: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """(dL/dlogits [..., F], its sum over the rows [F]) from the mask of `select` and dL/dout dy [..., F]."""
    check("x", x, tuple(x.shape), *FLOATS)
    for name, a in (("mask", mask), ("dy", dy)):
        check(name, a, tuple(x.shape), x.dtype)
    return (kernel if build.on_gpu(x) else reference).select_backward(mask, x, dy)
