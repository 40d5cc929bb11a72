"""Host side of cfc.cu: the functions of reference.py."""

from __future__ import annotations

import torch

from kernels import build
from kernels.reduce import kernel as reduce

_COLUMNS, _LANES = 32, 8  # units and rows of a block


def cell(x: torch.Tensor, z: torch.Tensor, dt: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """(h, gate), each [R, H]."""
    rows, units = x.shape[0], x.shape[1] // 4
    h, gate = x.new_empty(rows, units), x.new_empty(rows, units)
    grid = (build.ceil_div(units, _COLUMNS), build.ceil_div(rows, _LANES))
    inputs = (x.contiguous(), z.contiguous(), dt.contiguous())
    build.launch("cfc", "cfc_forward", grid, (_COLUMNS, _LANES), *inputs, rows, units, h, gate)
    return h, gate


def cell_backward(
    x: torch.Tensor, z: torch.Tensor, dt: torch.Tensor, gate: torch.Tensor, dh: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """(dL/d(x + z) [R, 4H], its sum over the rows [4H])."""
    rows, units = gate.shape
    grid = (build.ceil_div(units, _COLUMNS), build.ceil_div(rows, _LANES))
    d, parts = x.new_empty(rows, 4 * units), x.new_empty(grid[1], 4 * units)
    inputs: list[build.Argument] = [a.contiguous() for a in (x, z, dt, gate, dh)]
    build.launch("cfc", "cfc_backward", grid, (_COLUMNS, _LANES), *inputs, rows, units, d, parts)
    return d, reduce.sum_rows(parts)
