"""The heads' gradients written out: products and sums go straight into the buffers that keep them, none is copied."""

from __future__ import annotations

import torch

from kernels.outer import op as outer


def linear(slope: torch.Tensor, x: torch.Tensor, w: torch.Tensor, grad_x: torch.Tensor, grad: torch.Tensor) -> None:
    """Gradients of y = x w^T + b from slope = dL/dy, whose first axis is the rows of x [R, I]; w: [O, I].

    Written: grad_x [R, I], and grad [O I + O], that of w with that of b behind it.
    """
    slope = slope.reshape(x.shape[0], -1)
    torch.mm(slope, w, out=grad_x)
    outer.weight_gradient(slope, x, grad)


def frd(
    slope: torch.Tensor, hidden: torch.Tensor, h: torch.Tensor, w1: torch.Tensor, w2: torch.Tensor,
    grad_h: torch.Tensor, grad1: torch.Tensor, grad2: torch.Tensor,
) -> None:  # fmt: skip
    """The forward-return head of two layers. hidden [R, 64]: what its ReLU gave, whose gradient at 0 is 0."""
    grad_hidden = torch.empty_like(hidden)
    linear(slope, hidden, w2, grad_hidden, grad2)
    linear(torch.ops.aten.threshold_backward(grad_hidden, hidden, 0), h, w1, grad_h, grad1)
