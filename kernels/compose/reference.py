"""The composed weights of a state-space block and their gradient, in plain torch."""

from __future__ import annotations

from typing import Any

import torch

Tensors = tuple[torch.Tensor, ...]


def compose(
    w_in: torch.Tensor, b_in: torch.Tensor, w_ab: torch.Tensor, b_ab: torch.Tensor, w_c: torch.Tensor,
    w_out: torch.Tensor, b_out: torch.Tensor,
) -> Tensors:  # fmt: skip
    """(joint [3H, I], gates [2H], out [H, H], shift [H])."""
    return torch.cat([w_in, w_ab @ w_in]), w_ab @ b_in + b_ab, w_out * w_c, b_in + b_out


def compose_backward(block: Any, d: Any, into: Any) -> None:
    """The chain rule of `compose`, written into the fields of `into`."""
    h = block.w_in.shape[0]
    d_u, d_ab = d.joint[:h], d.joint[h:]
    torch.add(d_u, block.w_ab.t() @ d_ab, out=into.w_in)
    torch.add(d.shift, block.w_ab.t() @ d.gates, out=into.b_in)
    torch.addr(d_ab @ block.w_in.t(), d.gates, block.b_in, out=into.w_ab)
    into.b_ab.copy_(d.gates)
    torch.sum(d.out * block.w_out, dim=0, out=into.w_c)
    torch.mul(d.out, block.w_c, out=into.w_out)
    into.b_out.copy_(d.shift)
