"""The heads' gradients written out: products and sums go straight into the buffers that keep them, none is copied."""

from __future__ import annotations

from collections.abc import Mapping

import torch

Views = Mapping[str, torch.Tensor]


def linear(
    slope: torch.Tensor,
    x: torch.Tensor,
    w: torch.Tensor,
    grad_x: torch.Tensor,
    grad_w: torch.Tensor,
    grad_b: torch.Tensor,
) -> None:
    """Gradients of y = x w^T + b from slope = dL/dy [R, O]: x [R, I], w [O, I]; the last three are written."""
    torch.mm(slope, w, out=grad_x)
    torch.mm(slope.t(), x, out=grad_w)
    torch.sum(slope, dim=0, out=grad_b)


def head(name: str, slope: torch.Tensor, h: torch.Tensor, p: Views, grads: Views, grad_h: torch.Tensor) -> None:
    """A head of one linear layer, q, pi or v. slope: dL/d(output), its first axis the rows of h."""
    w, b = f"{name}_out_w", f"{name}_out_b"
    linear(slope.reshape(h.shape[0], -1), h, p[w], grad_h, grads[w], grads[b])


def frd(
    slope: torch.Tensor, hidden: torch.Tensor, h: torch.Tensor, p: Views, grads: Views, grad_h: torch.Tensor
) -> None:
    """The forward-return head. hidden [R, 64]: what its ReLU gave, whose gradient at 0 is 0."""
    grad_hidden = torch.empty_like(hidden)
    linear(slope.flatten(1), hidden, p["frd_w2"], grad_hidden, grads["frd_w2"], grads["frd_b2"])
    linear(grad_hidden * (hidden > 0), h, p["frd_w1"], grad_h, grads["frd_w1"], grads["frd_b1"])
