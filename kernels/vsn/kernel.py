"""Host side of vsn.cu: the functions of reference.py."""

from __future__ import annotations

import torch

from kernels import build
from kernels.reduce import kernel as reduce

_LANES, _ROWS = 32, 8  # of a block of the forward
_DEPTH = 12  # rows a block of the backward has in hand
_FEATURES = 256  # most of a row
_PARTS = 256  # blocks of the backward at most: as many as one launch of `reduce` adds


def select(logits: torch.Tensor, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """(mask, mask x F), each [..., F]."""
    features = _features(x)
    rows = x.numel() // features
    mask, out = x.new_empty(x.shape), x.new_empty(x.shape)
    args = (logits.contiguous(), x.contiguous(), rows, features, mask, out)
    build.launch("vsn", "vsn_forward", (build.ceil_div(rows, _ROWS),), (_LANES, _ROWS), *args)
    return mask, out


def select_backward(mask: torch.Tensor, x: torch.Tensor, dy: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """(dL/dlogits [..., F], its sum over the rows [F])."""
    features = _features(x)
    rows = x.numel() // features
    part_rows = _DEPTH * build.ceil_div(rows, _DEPTH * _PARTS)
    blocks = build.ceil_div(rows, part_rows)
    d_logits, parts = x.new_empty(x.shape), x.new_empty(blocks, features)
    args = (mask.contiguous(), x.contiguous(), dy.contiguous(), rows, features, part_rows, d_logits, parts)
    build.launch("vsn", "vsn_backward", (blocks,), (_LANES, _DEPTH), *args)
    return d_logits, reduce.sum_rows(parts)


def _features(x: torch.Tensor) -> int:
    if x.shape[-1] > _FEATURES:
        raise ValueError(f"x: {x.shape[-1]} features, a row of the kernel holds at most {_FEATURES}")
    return x.shape[-1]
