"""The mean of a categorical distribution, in plain torch."""

from __future__ import annotations

import torch


def expected(logits: torch.Tensor, support: torch.Tensor) -> torch.Tensor:
    """[...] from logits [..., N] and support [N]."""
    return (torch.softmax(logits, dim=-1) * support).sum(dim=-1)
