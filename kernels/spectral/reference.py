"""Algorithm 1 of the paper, a matrix at a time."""

from __future__ import annotations

from collections.abc import Sequence

import torch


def step(matrices: Sequence[torch.Tensor], vectors: Sequence[torch.Tensor]) -> torch.Tensor:
    """float32 [matrices]: sigma = |W v|, v = W^T u over its length; u becomes W v over its length, in place."""
    found = []
    for w, u in zip(matrices, vectors, strict=True):
        v = w.T @ u
        wv = w @ (v / v.norm().clamp_min(1e-30))
        found.append(wv.norm())
        u.copy_(wv / found[-1].clamp_min(1e-30))
    return torch.stack(found)
