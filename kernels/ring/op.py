"""A ring of rows over many columns of any type, written and read a whole row at a time, one launch either way.

Rows are moved as bits. Where a write begins is a number on the device, so nothing here synchronises with the host.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from kernels import build
from kernels.arguments import check
from kernels.ring import kernel, reference


class Ring:
    """Fixed columns [C, ...] of one capacity C; they must stay allocated and contiguous.

    What one call moves of a column is less than 2 GiB.

    A window of T rows of B accounts is a ring of its flat [T B, ...] columns, of which row t is B slots from t B on.
    """

    def __init__(self, columns: Sequence[torch.Tensor]) -> None:
        if not 1 <= len(columns) <= kernel.COLUMNS:
            raise ValueError(f"columns: {len(columns)}, expected 1 to {kernel.COLUMNS}")
        self.columns = [x.detach() for x in columns]
        self.capacity = columns[0].shape[0]
        for i, x in enumerate(columns):
            if x.shape[0] != self.capacity or not x.is_contiguous():
                raise ValueError(f"columns[{i}]: expected {self.capacity} contiguous rows, as the first has")
        self._table = kernel.table(self.columns) if any(map(build.on_gpu, self.columns)) else None

    def put(
        self,
        sources: Sequence[torch.Tensor | None],
        start: torch.Tensor,
        rows: int,
        scale: int = 1,
        offset: int = 0,
    ) -> None:
        """Write row i of every source to slot (start scale + offset + i) modulo C, i below rows <= C.

        sources: one a column, [rows, ...] of the column's type; of one row: written to all slots; None: zeros.
        start: int64 [1] on the device.
        """
        check("start", start, (1,), torch.int64)
        self._check_rows(rows)
        for i, (x, column) in enumerate(zip(sources, self.columns, strict=True)):
            if x is not None:
                check(f"sources[{i}]", x, (1 if x.shape[0] == 1 else rows, *column.shape[1:]), column.dtype)
        if self._table is None:
            reference.put(self.columns, reference.slots(start, scale, offset, rows, self.capacity), sources)
        else:
            kernel.put(self._table, self.columns, sources, start, scale, offset, rows)

    def take(self, at: torch.Tensor, into: Sequence[torch.Tensor] | None = None) -> list[torch.Tensor]:
        """Rows at int64 [R] of every column: [R, ...] each, new or written into the given contiguous ones."""
        check("at", at, (None,), torch.int64)
        outs = self._outs(at.numel(), into)
        if self._table is None:
            reference.take(self.columns, at, outs)
        else:
            kernel.take(self._table, self.columns, outs, at.contiguous(), None, 0, 0, at.numel())
        return outs

    def take_run(
        self,
        start: torch.Tensor,
        rows: int,
        scale: int = 1,
        offset: int = 0,
        into: Sequence[torch.Tensor] | None = None,
    ) -> list[torch.Tensor]:
        """What `put` of the same numbers wrote."""
        check("start", start, (1,), torch.int64)
        self._check_rows(rows)
        outs = self._outs(rows, into)
        if self._table is None:
            reference.take(self.columns, reference.slots(start, scale, offset, rows, self.capacity), outs)
        else:
            kernel.take(self._table, self.columns, outs, None, start, scale, offset, rows)
        return outs

    def _check_rows(self, rows: int) -> None:
        if not 0 < rows <= self.capacity:
            raise ValueError(f"rows: {rows}, expected 1 to the capacity {self.capacity}")

    def _outs(self, rows: int, into: Sequence[torch.Tensor] | None) -> list[torch.Tensor]:
        if into is None:
            return [torch.empty(rows, *x.shape[1:], dtype=x.dtype, device=x.device) for x in self.columns]
        for i, (out, column) in enumerate(zip(into, self.columns, strict=True)):
            check(f"into[{i}]", out, (rows, *column.shape[1:]), column.dtype)
            if not out.is_contiguous():
                raise ValueError(f"into[{i}]: not contiguous")
        return list(into)


def tally(at: torch.Tensor, counts: torch.Tensor) -> None:
    """counts[at[i]] += 1 for at int64 [R], duplicates included; counts int32 [N], in place."""
    check("at", at, (None,), torch.int64)
    check("counts", counts, (None,), torch.int32)
    (kernel if build.on_gpu(counts) else reference).tally(at, counts)
