"""The softmax gate over features and its gradient, in plain torch."""

from __future__ import annotations

import torch


def select(logits: torch.Tensor, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """(mask, mask x F), each [..., F]."""
    mask = torch.softmax(logits, dim=-1)
    return mask, mask * x * x.shape[-1]


def select_backward(mask: torch.Tensor, x: torch.Tensor, dy: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """(dL/dlogits [..., F], its sum over the rows [F]): m (t - sum(m t)) with t = dy x F."""
    mt = (dy * x).mul_(mask).mul_(x.shape[-1])
    along = mt.sum(dim=-1, keepdim=True)
    d_logits = mt.addcmul_(mask, along, value=-1.0)
    return d_logits, d_logits.reshape(-1, x.shape[-1]).sum(dim=0)
