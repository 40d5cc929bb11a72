"""Sums of which cosine, participation ratio and distance moved are made, in plain torch and float64."""

from __future__ import annotations

import torch

NUMBERS = ("unit_sum_square", "trace", "square", "moved", "counted")
LEAST = 1e-300  # norm under which a row has no direction


def geometry(h: torch.Tensor, before: torch.Tensor, left_out: torch.Tensor) -> torch.Tensor:
    """float64 [len(NUMBERS)]."""
    x = h.double()
    unit = x / x.norm(dim=1, keepdim=True).clamp_min(LEAST)
    off = x - x[0]  # about a row, not about 0: a large common mean would drown the spread
    shift = off.mean(0)
    covariance = off.T @ off / x.shape[0] - shift[:, None] * shift
    moved = (h - before).double().norm(dim=1)
    square, trace = (covariance**2).sum(), covariance.diagonal().sum()
    return torch.stack([(unit.sum(0) ** 2).sum(), trace, square, (moved * ~left_out).sum(), (~left_out).sum().double()])
