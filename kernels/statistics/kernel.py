"""Host side of statistics.cu: the function of reference.py."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import torch

from kernels import build
from kernels.statistics.reference import COLUMN, WHOLE

MOST = 20  # matrices of a launch
_BLOCK, _MERGE_BLOCK, _STATS = (32, 8), (64, 8), 6  # as in the source
_PART_ROWS = 128  # rows a block adds up; a number of the order, so never tuned to a chip


@cache
def _plan(
    shapes: tuple[tuple[int, int, int, bool], ...], device: torch.device
) -> tuple[torch.Tensor, torch.Tensor, int]:
    """(table int64 [S, 7], items int64 [n, 3], words of the parts) of (rows, columns, stride, share) a matrix.

    Made at the first call and kept: a captured graph reads it and copies nothing.
    """
    table, items, first_column, before = [], [], 0, 0
    for i, (rows, columns, stride, share) in enumerate(shapes):
        parts = build.ceil_div(rows, _PART_ROWS)
        table.append((rows, columns, stride, parts, first_column, before, share))
        items += [(i, column, part) for part in range(parts) for column in range(0, columns, _BLOCK[0])]
        first_column += columns
        before += _STATS * parts * columns
    return torch.tensor(table, device=device).long(), torch.tensor(items, device=device).long(), before


def _words(x: torch.Tensor) -> tuple[torch.Tensor, int]:
    """(the words a matrix lies in, words from row to row): columns of a wider matrix are read where they are."""
    rows, columns = x.shape
    if (columns > 1 and x.stride(1) != 1) or x.stride(0) < columns:
        x = x.contiguous()
    stride = max(x.stride(0), columns)
    return x.as_strided(((rows - 1) * stride + columns,), (1,)), stride


def summary(
    sources: Sequence[torch.Tensor], at: torch.Tensor | None, shares: Sequence[bool], limit: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """(whole float64 [S, len(WHOLE)], columns float64 [len(COLUMN), sum of the columns])."""
    device = sources[0].device
    rows = [x.shape[0] if at is None or i else at.shape[0] for i, x in enumerate(sources)]
    words_of = [_words(x.detach()) for x in sources]
    strides = [stride for _, stride in words_of]
    shapes = tuple((n, x.shape[1], stride, share) for n, x, stride, share in zip(rows, sources, strides, shares))
    table, items, words = _plan(shapes, device)
    n_columns = sum(x.shape[1] for x in sources)
    first, parts = (torch.empty(n, dtype=torch.float64, device=device) for n in (n_columns, words))
    columns = torch.empty(len(COLUMN), n_columns, dtype=torch.float64, device=device)
    whole = torch.empty(len(sources), len(WHOLE), dtype=torch.float64, device=device)
    none = [None] * (MOST - len(sources))
    args = (*(x for x, _ in words_of), *none, at, table, items, _PART_ROWS, float(limit), first, parts)
    build.launch("statistics", "statistics_parts", (len(items),), _BLOCK, *args)
    merged = (first, parts, table, n_columns, columns, whole)
    build.launch("statistics", "statistics_merge", (len(sources),), _MERGE_BLOCK, *merged)
    return whole, columns
