"""Differences in float64."""

from __future__ import annotations

from collections.abc import Sequence

import torch


def run(pairs: Sequence[tuple[torch.Tensor, torch.Tensor | None]]) -> torch.Tensor:
    """float64 [pairs, 2]."""
    apart = [(a.double() if b is None else a.double() - b.double()).reshape(-1) for a, b in pairs]
    return torch.stack([torch.stack([x.square().sum().sqrt(), x.abs().max()]) for x in apart])
