"""Softmax less the label, over the number of labels; 0 where there is none."""

from __future__ import annotations

import torch


def gradient(logits: torch.Tensor, labels: torch.Tensor, anchors: torch.Tensor) -> torch.Tensor:
    """[R, S, N]."""
    here = labels[anchors]
    valid = here >= 0
    chosen = torch.nn.functional.one_hot(here.clamp_min(0), logits.shape[-1])
    slope = (torch.softmax(logits, dim=-1) - chosen) / valid.sum().clamp_min(1)
    return torch.where(valid[..., None], slope, 0.0)
