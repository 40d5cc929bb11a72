"""Host side of ring.cu."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from kernels import build

COLUMNS = 16  # sources of a launch: arguments, so that they may be any tensors, in a captured graph too
_THREADS = 128


def table(columns: Sequence[torch.Tensor]) -> torch.Tensor:
    """int64 [columns, 2]: address and bytes of a row."""
    rows = [(x.data_ptr(), _row_bytes(x)) for x in columns]
    return torch.tensor(rows, dtype=torch.int64, device=columns[0].device)


def put(
    addresses: torch.Tensor,
    columns: Sequence[torch.Tensor],
    sources: Sequence[torch.Tensor | None],
    start: torch.Tensor,
    scale: int,
    offset: int,
    rows: int,
) -> None:
    """Rows of the sources to slots from start scale + offset on."""
    repeated = sum(1 << c for c, x in enumerate(sources) if x is not None and x.shape[0] == 1 < rows)
    where = (start, scale, offset, columns[0].shape[0], rows)
    others = [None if x is None else _bytes(x.contiguous()) for x in sources]
    grid = _grid(columns, rows)
    build.launch("ring", "ring_put", grid, (_THREADS,), addresses, *where, repeated, *_padded(others), through=columns)


def take(
    addresses: torch.Tensor,
    columns: Sequence[torch.Tensor],
    outs: Sequence[torch.Tensor],
    at: torch.Tensor | None,
    start: torch.Tensor | None,
    scale: int,
    offset: int,
    rows: int,
) -> None:
    """Rows of the columns, by number or from start scale + offset on."""
    where = (at, start, scale, offset, columns[0].shape[0], rows)
    others = [_bytes(x) for x in outs]
    grid = _grid(columns, rows)
    build.launch("ring", "ring_take", grid, (_THREADS,), addresses, *where, *_padded(others), through=columns)


def tally(at: torch.Tensor, counts: torch.Tensor) -> None:
    """counts[at[i]] += 1."""
    rows = at.numel()
    build.launch("ring", "ring_tally", (build.ceil_div(rows, _THREADS),), (_THREADS,), at.contiguous(), rows, counts)


def _grid(columns: Sequence[torch.Tensor], rows: int) -> tuple[int, int]:
    """Blocks for the widest column, in its units."""
    widths = [_row_bytes(x) for x in columns]
    units = max(width // next(unit for unit in (16, 8, 4, 1) if width % unit == 0) for width in widths)
    return build.ceil_div(rows * units, _THREADS), len(columns)


def _padded(others: list[torch.Tensor | None] | list[torch.Tensor]) -> list[torch.Tensor | None]:
    return [*others, *[None] * (COLUMNS - len(others))]


def _row_bytes(x: torch.Tensor) -> int:
    return x[0].numel() * x.element_size()


def _bytes(x: torch.Tensor) -> torch.Tensor:
    """The same memory as bytes, which any type's pointer passes for."""
    return x.detach().reshape(-1).view(torch.uint8)
