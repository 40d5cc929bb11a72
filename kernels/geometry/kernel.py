"""Host side of geometry.cu: the function of reference.py."""

from __future__ import annotations

import torch

from kernels import build
from kernels.geometry.reference import NUMBERS

_TILE, _THREADS, _PART_ROWS, _MERGE = 16, 256, 8, (32, 16)  # as in the source


def geometry(h: torch.Tensor, before: torch.Tensor, left_out: torch.Tensor) -> torch.Tensor:
    """float64 [len(NUMBERS)]."""
    rows, units = h.shape
    side, parts = build.ceil_div(units, _TILE), build.ceil_div(rows, _PART_ROWS)
    sizes = (side * side, side * side, parts * units, 2 * parts)
    found = [torch.empty(n, dtype=torch.float64, device=h.device) for n in sizes]
    inputs = [x.detach().contiguous() for x in (h, before, left_out)]
    build.launch("geometry", "geometry_parts", (side * side + parts,), (_THREADS,), *inputs, rows, units, side, *found)
    out = torch.empty(len(NUMBERS), dtype=torch.float64, device=h.device)
    build.launch("geometry", "geometry_merge", (1,), _MERGE, *found, side * side, parts, units, out)
    return out
