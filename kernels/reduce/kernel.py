"""Host side of reduce.cu: the function of reference.py."""

from __future__ import annotations

import torch

from kernels import build
from kernels.reduce.reference import LANES, PART_ROWS

_COLUMNS = 32  # of a block, one a thread of a warp


def sum_rows(x: torch.Tensor) -> torch.Tensor:
    """[C] sums over the rows of x [R, C]; a second launch where there are several parts."""
    x = x.contiguous()
    rows, columns = x.shape
    n_parts = build.ceil_div(rows, PART_ROWS)
    parts = x.new_empty(n_parts, columns)
    grid = (build.ceil_div(columns, _COLUMNS), n_parts)
    build.launch("reduce", "reduce_parts", grid, (_COLUMNS, LANES), x, rows, columns, PART_ROWS, parts)
    if n_parts == 1:
        return parts[0]
    out = x.new_empty(columns)
    build.launch("reduce", "reduce_finish", (build.ceil_div(columns, 64),), (64,), parts, n_parts, columns, out)
    return out
