"""Host side of layernorm.cu: the functions of reference.py."""

from __future__ import annotations

import torch

from kernels import build
from kernels.reduce import kernel as reduce

_LANES, _ROWS = 32, 8  # of a block of the forward
_DEPTH = 12  # rows a block of the backward has in hand
_CHANNELS = 256  # most of a row
_PARTS = 256  # blocks of the backward at most: as many as one launch of `reduce` adds


def normalise(
    x: torch.Tensor, z: torch.Tensor, shift: torch.Tensor, gain: torch.Tensor, bias: torch.Tensor, eps: float
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """(out, t = x + z + shift, each [..., H]; mean, reciprocal standard deviation of t, each [...])."""
    channels = _channels(gain)
    out, total = z.new_empty(z.shape), z.new_empty(z.shape)
    mean, rstd = z.new_empty(z.shape[:-1]), z.new_empty(z.shape[:-1])
    rows = mean.numel()
    inputs: list[build.Argument] = [a.contiguous() for a in (x, z, shift, gain, bias)]
    args = (*inputs, float(eps), rows, channels, x.shape[-1], out, total, mean, rstd)
    build.launch("layernorm", "layernorm_forward", (build.ceil_div(rows, _ROWS),), (_LANES, _ROWS), *args)
    return out, total, mean, rstd


def normalise_backward(
    total: torch.Tensor,
    mean: torch.Tensor,
    rstd: torch.Tensor,
    gain: torch.Tensor,
    dy: torch.Tensor,
    into: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """(dgain, dbias, sum of dt over the rows, each [H]) from dL/dout; dt goes into the first H columns of `into`."""
    rows, channels = mean.numel(), _channels(gain)
    part_rows = _DEPTH * build.ceil_div(rows, _DEPTH * _PARTS)
    blocks = build.ceil_div(rows, part_rows)
    parts = total.new_empty(blocks, 3 * channels)
    inputs: list[build.Argument] = [a.contiguous() for a in (total, mean, rstd, gain, dy)]
    args = (*inputs, rows, channels, into.shape[-1], part_rows, into, parts)
    build.launch("layernorm", "layernorm_backward", (blocks,), (_LANES, _DEPTH), *args)
    dgain, dbias, shift = reduce.sum_rows(parts).split(channels)
    return dgain, dbias, shift


def _channels(gain: torch.Tensor) -> int:
    if gain.numel() > _CHANNELS:
        raise ValueError(f"gain: {gain.numel()} channels, a row of the kernel holds at most {_CHANNELS}")
    return gain.numel()
