"""Host side of reduce.cu: the function of reference.py."""

from __future__ import annotations

import torch

from kernels import build
from kernels.reduce.reference import LANES, PART_ROWS

_COLUMNS = 32  # of a block, one a thread of a warp


def sum_rows(x: torch.Tensor, into: torch.Tensor | None = None) -> torch.Tensor:
    """[C] sums over the rows of x [R, C]; a launch each time the rows become a 256th."""
    rows, columns = x.shape
    n_parts = build.ceil_div(rows, PART_ROWS)
    parts = x.new_empty(n_parts, columns) if n_parts > 1 or into is None else into[None]
    grid = (build.ceil_div(columns, _COLUMNS), n_parts)
    build.launch("reduce", "reduce_parts", grid, (_COLUMNS, LANES), x.contiguous(), rows, columns, PART_ROWS, parts)
    return parts[0] if n_parts == 1 else sum_rows(parts, into)
