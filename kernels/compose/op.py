"""Weights of a state-space block, composed: a step of the block is then two products of its rows. No autograd here.

u = W_in x + b_in, the gates' inputs W_ab u + b_ab and the output W_out (w_c s) + b_out are linear one behind the
other, so that u and the gates' inputs are one product of x, and w_c belongs to the output's matrix.
"""

from __future__ import annotations

from typing import NamedTuple

import torch

from kernels import build
from kernels.arguments import FLOATS, check
from kernels.compose import kernel, reference


class Block(NamedTuple):
    """Parameters of a block, or their gradients: I inputs, H channels; `ab` is a over b."""

    w_in: torch.Tensor  # [H, I]
    b_in: torch.Tensor  # [H]
    w_ab: torch.Tensor  # [2H, H]
    b_ab: torch.Tensor  # [2H]
    w_c: torch.Tensor  # [H]
    w_out: torch.Tensor  # [H, H]
    b_out: torch.Tensor  # [H]


class Composed(NamedTuple):
    """What rows are multiplied by, or its gradient."""

    joint: torch.Tensor  # [3H, I]: W_in over W_ab W_in
    gates: torch.Tensor  # [2H]: W_ab b_in + b_ab
    out: torch.Tensor  # [H, H]: W_out diag(w_c)
    shift: torch.Tensor  # [H]: b_in + b_out


def compose(block: Block) -> Composed:
    """The composed weights of a block."""
    _check(block)
    return Composed(*(kernel if build.on_gpu(block.w_in) else reference).compose(*block))


def compose_backward(block: Block, d: Composed, into: Block) -> None:
    """Write the gradients of a block's parameters from those of its composed weights."""
    _check(block)
    _check(into)
    h, inputs = block.w_in.shape
    shapes: tuple[tuple[int, ...], ...] = ((3 * h, inputs), (2 * h,), (h, h), (h,))
    for name, x, shape in zip(Composed._fields, d, shapes):
        check(name, x, shape, block.w_in.dtype)
    (kernel if build.on_gpu(block.w_in) else reference).compose_backward(block, d, into)


def _check(block: Block) -> None:
    check("w_in", block.w_in, (None, None), *FLOATS)
    h, inputs = block.w_in.shape
    shapes: tuple[tuple[int, ...], ...] = ((h, inputs), (h,), (2 * h, h), (2 * h,), (h,), (h, h), (h,))
    for name, x, shape in zip(Block._fields, block, shapes):
        check(name, x, shape, block.w_in.dtype)
