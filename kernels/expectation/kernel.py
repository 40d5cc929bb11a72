"""Host side of expectation.cu: the function of reference.py."""

from __future__ import annotations

import torch

from kernels import build

_THREADS = 64  # of a block: few, so that the rows of a small batch reach many multiprocessors


def expected(logits: torch.Tensor, support: torch.Tensor) -> torch.Tensor:
    """[...] from logits [..., N] and support [N]."""
    out = logits.new_empty(logits.shape[:-1])
    rows, inputs = out.numel(), (logits.contiguous(), support.contiguous())
    grid = (build.ceil_div(rows, _THREADS),)
    build.launch("expectation", "expectation_rows", grid, (_THREADS,), *inputs, rows, support.numel(), out)
    return out
