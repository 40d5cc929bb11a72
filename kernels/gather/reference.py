"""Gathers by advanced indexing."""

from __future__ import annotations

import torch


def windows(table: torch.Tensor, segment_start: torch.Tensor, anchors: torch.Tensor, steps: int) -> torch.Tensor:
    """[R, K, C]: rows anchor - K + 1 .. anchor, the segment's first row standing in for what is before it."""
    back = torch.arange(1 - steps, 1, device=anchors.device)
    return table[torch.maximum(anchors[:, None] + back, segment_start[anchors][:, None])]


def rows(table: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
    """[R, C]."""
    return table[at]
