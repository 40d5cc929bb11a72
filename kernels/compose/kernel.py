"""Host side of compose.cu: the functions of reference.py."""

from __future__ import annotations

from typing import Any

import torch

from kernels import build

_COLUMNS, _LANES = 32, 8  # of a block: columns of a row, and the threads that share the sum of one


def compose(
    w_in: torch.Tensor, b_in: torch.Tensor, w_ab: torch.Tensor, b_ab: torch.Tensor, w_c: torch.Tensor,
    w_out: torch.Tensor, b_out: torch.Tensor,
) -> tuple[torch.Tensor, ...]:  # fmt: skip
    """(joint [3H, I], gates [2H], out [H, H], shift [H])."""
    hidden, inputs = w_in.shape
    joint, gates = w_in.new_empty(3 * hidden, inputs), w_in.new_empty(2 * hidden)
    out, shift = w_in.new_empty(hidden, hidden), w_in.new_empty(hidden)
    args = (w_in, b_in, w_ab, b_ab, w_c, w_out, b_out, hidden, inputs, joint, gates, out, shift)
    build.launch("compose", "compose_weights", (_tiles(hidden, inputs), 4 * hidden), (_COLUMNS, _LANES), *args)
    return joint, gates, out, shift


def compose_backward(block: Any, d: Any, into: Any) -> None:
    """Written into the fields of `into`."""
    hidden, inputs = block.w_in.shape
    given = (block.w_in, block.b_in, block.w_ab, block.w_c, block.w_out, d.joint, d.gates, d.out, d.shift)
    args = (*given, hidden, inputs, *into)
    build.launch("compose", "compose_gradients", (_tiles(hidden, inputs), 4 * hidden + 1), (_COLUMNS, _LANES), *args)


def _tiles(hidden: int, inputs: int) -> int:
    """Blocks of the longest row: the inputs and a bias, or the channels."""
    return build.ceil_div(max(hidden, inputs + 1), _COLUMNS)
