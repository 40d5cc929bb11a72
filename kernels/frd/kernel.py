"""Host side of frd.cu: the function of reference.py."""

from __future__ import annotations

import torch

from kernels import build

_THREADS = 128


def gradient(logits: torch.Tensor, labels: torch.Tensor, anchors: torch.Tensor) -> torch.Tensor:
    """[R, S, N]."""
    rows, horizons, atoms = logits.shape
    logits = logits.contiguous()
    grad = torch.empty_like(logits)
    args = (logits, labels.contiguous(), anchors.contiguous(), rows, horizons, atoms, grad)
    build.launch("frd", "frd_gradient", (build.ceil_div(rows * horizons, _THREADS),), (_THREADS,), *args)
    return grad
