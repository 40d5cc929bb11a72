"""Host side of layernorm.cu: the functions of reference.py."""

from __future__ import annotations

import torch

from kernels import build
from kernels.reduce import kernel as reduce

_LANES, _ROWS = 32, 8  # of a block of the forward
_DEPTH = 12  # rows a block of the backward has in hand
_CHANNELS = 256  # most of a row of the backward
_PARTS = 256  # blocks of the backward at most: as many as one launch of `reduce` adds


def normalise(
    x: torch.Tensor, z: torch.Tensor, gain: torch.Tensor, bias: torch.Tensor, eps: float
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """(out, t = x + z, each [..., H]; mean, reciprocal standard deviation of t, each [...])."""
    channels = gain.numel()
    out, total = x.new_empty(x.shape), x.new_empty(x.shape)
    mean, rstd = x.new_empty(x.shape[:-1]), x.new_empty(x.shape[:-1])
    rows = mean.numel()
    inputs: list[build.Argument] = [a.contiguous() for a in (x, z, gain, bias)]
    args = (*inputs, float(eps), rows, channels, out, total, mean, rstd)
    build.launch("layernorm", "layernorm_forward", (build.ceil_div(rows, _ROWS),), (_LANES, _ROWS), *args)
    return out, total, mean, rstd


def normalise_backward(
    total: torch.Tensor, mean: torch.Tensor, rstd: torch.Tensor, gain: torch.Tensor, dy: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """(dt [..., H]; dgain, dbias, sum of dt over the rows, each [H]) from dL/dout."""
    rows, channels = mean.numel(), gain.numel()
    if channels > _CHANNELS:
        raise ValueError(f"total: {channels} channels, a row of the kernel holds at most {_CHANNELS}")
    part_rows = _DEPTH * build.ceil_div(rows, _DEPTH * _PARTS)
    blocks = build.ceil_div(rows, part_rows)
    dt, parts = total.new_empty(total.shape), total.new_empty(blocks, 3 * channels)
    inputs: list[build.Argument] = [a.contiguous() for a in (total, mean, rstd, gain, dy)]
    args = (*inputs, rows, channels, part_rows, dt, parts)
    build.launch("layernorm", "layernorm_backward", (blocks,), (_LANES, _DEPTH), *args)
    dgain, dbias, shift = reduce.sum_rows(parts).split(channels)
    return dt, dgain, dbias, shift
