"""Expected value over a support of atoms (Bellemare 2017, 1707.06887: Q is the mean of its distribution)."""

from __future__ import annotations

import torch

from kernels import build
from kernels.arguments import FLOATS, check
from kernels.expectation import kernel, reference


def expected(logits: torch.Tensor, support: torch.Tensor) -> torch.Tensor:
    """[...]: support [N] weighted by the softmax of logits [..., N] over its last axis, in the support's unit.

    Carries no gradient.
    """
    check("support", support, (None,), *FLOATS)
    check("logits", logits, (*logits.shape[:-1], support.shape[0]), support.dtype)
    if support.shape[0] == 0:
        raise ValueError("support: no atom")
    return (kernel if build.on_gpu(logits) else reference).expected(logits.detach(), support.detach())
