"""Attention pooling by one learned query and its gradient, in plain torch."""

from __future__ import annotations

import math

import torch


def pool(q: torch.Tensor, x: torch.Tensor, beside: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """(weights [R, K], [context, beside] [R, H + A])."""
    weights = torch.softmax((x @ q) / math.sqrt(q.numel()), dim=1)
    return weights, torch.cat([(weights[:, :, None] * x).sum(dim=1), beside], dim=1)


def pool_backward(
    q: torch.Tensor, x: torch.Tensor, weights: torch.Tensor, d_out: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """(dq [H], dx [R, K, H]) from dL/d[context, beside].

    dw_k = dc . x_k; ds_k = w_k (dw_k - sum(w dw)) / sqrt(H); dx_k = w_k dc + ds_k q; dq = sum of ds_k x_k.
    """
    d_context = d_out[:, : q.numel()]
    dw = (x @ d_context[:, :, None])[..., 0]
    ds = weights * (dw - (weights * dw).sum(dim=1, keepdim=True)) / math.sqrt(q.numel())
    dx = (weights[:, :, None] * d_context[:, None]).addcmul_(ds[:, :, None], q)
    return ds.flatten() @ x.flatten(0, 1), dx
