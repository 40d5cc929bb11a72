"""Reading snapshots by rows of a tape: memory-mapped Arrow files copied once, column by column, into tensors.

A tensor never views a file: the file may be replaced while a training runs, and a copy lands on any device. Tensors
are made for the whole tape and filled in pieces, so the host holds a few pieces and no column.
"""

from __future__ import annotations

import bisect
import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import torch

from foxhunt_assets.contracts.tables import LEVELS, NO_SEGMENT, SNAPSHOTS, arrow_schema
from foxhunt_assets.errors import BadInput, ContractBroken
from foxhunt_assets.market.upload import Upload

if TYPE_CHECKING:
    from foxhunt_assets.market.folds import FoldSpec, TapeSource

SNAPSHOTS_FILE = "snapshots.arrow"
SEGMENTS_FILE = "segments.parquet"
PIECE_BYTES = 8 << 20  # of one column at a time

# torch has few unsigned types and fewer operators on them: uint8 becomes int32, uint32 becomes int64.
_WIDENED = {"uint8": torch.int32, "uint32": torch.int64, "int32": torch.int32, "int64": torch.int64}
_SCHEMA = arrow_schema(SNAPSHOTS)
_NUMPY = {c.name: np.dtype(c.type if c.type in _WIDENED else ("int32", LEVELS)) for c in SNAPSHOTS}


class Snapshots:
    """One snapshots.arrow, memory-mapped. Slices are numpy views valid while this object lives."""

    def __init__(self, folder: Path):
        self.path = folder / SNAPSHOTS_FILE
        try:
            # over the mapped bytes: a reader of the file itself asks for read-ahead buffer by buffer, ten times slower
            self._mapped = pa.memory_map(str(self.path)).read_buffer()
            self._reader = pa.ipc.open_file(pa.BufferReader(self._mapped))
            self._batches = [self._reader.get_batch(i) for i in range(self._reader.num_record_batches)]
        except FileNotFoundError:
            raise BadInput(f"{self.path}: no such file; materialise the snapshots of {folder.name}") from None
        except (pa.ArrowException, OSError) as error:
            raise BadInput(f"{self.path}: not a whole Arrow file ({error}); materialise it again") from None
        schema = self._reader.schema
        for field in _SCHEMA:
            found = schema.get_field_index(field.name)
            if found < 0 or schema.field(found).type != field.type:
                raise ContractBroken(f"{self.path}: column {field.name} of type {field.type} is not there")
        self._column = {field.name: schema.get_field_index(field.name) for field in _SCHEMA}
        self._ends = list(accumulate(batch.num_rows for batch in self._batches))
        self.n_rows = self._ends[-1] if self._ends else 0

    @property
    def grid_ms(self) -> int:
        """Milliseconds between rows, 0 on the event clock."""
        said = (self._reader.schema.metadata or {}).get(b"grid_ms", b"").decode()
        if not said.isdecimal():
            raise ContractBroken(f"{self.path}: no grid_ms in the metadata of the file; materialise it again")
        return int(said)

    def slices(self, name: str, start: int, end: int) -> Iterator[np.ndarray]:
        """Rows [start, end) of a column in file order, a batch at a time: [m], or [m, 10] for a level list."""
        for block in self.blocks(name, start, end):
            yield from block

    def blocks(self, name: str, start: int, end: int) -> Iterator[np.ndarray]:
        """The same rows with batches that lie at equal distances in one array: [batches, m] or [batches, m, 10].

        A decoder's batches do, and one copy of many batches holds no interpreter lock; a copy each does in between.
        """
        self.must_hold(start, end)
        dtype, shape = _NUMPY[name].base, _NUMPY[name].shape
        spans = self._spans(name, start, end)
        while spans:
            offset, rows = spans[0]
            step = max(spans[1][0] - offset, 0) if len(spans) > 1 else 0
            n = 1
            while n < len(spans) and spans[n] == (offset + n * step, rows):
                n += 1
            strides = (step, _NUMPY[name].itemsize, dtype.itemsize)[: 2 + len(shape)]
            yield np.ndarray((n, rows, *shape), dtype, self._mapped, offset, strides)
            spans = spans[n:]

    def must_hold(self, start: int, end: int) -> None:
        """ContractBroken where rows [start, end) are not all in the file."""
        if not 0 <= start <= end <= self.n_rows:
            raise ContractBroken(f"{self.path}: rows {start}..{end} asked for, {self.n_rows} there")

    def _spans(self, name: str, start: int, end: int) -> list[tuple[int, int]]:
        """(byte of the file, rows) of a column's rows [start, end), a batch each."""
        column, width = self._column[name], _NUMPY[name].itemsize
        spans = []
        at = bisect.bisect_right(self._ends, start)
        while start < end:
            batch, last = self._batches[at], min(end, self._ends[at])
            *validity, values = batch.column(column).buffers()
            offset = values.address - self._mapped.address
            if any(validity):
                raise ContractBroken(f"{self.path}: column {name} has missing values; materialise it again")
            if values.size < batch.num_rows * width or not 0 <= offset <= self._mapped.size - values.size:
                raise ContractBroken(f"{self.path}: column {name} is compressed or cut; materialise it again")
            spans.append((offset + (start - self._ends[at] + batch.num_rows) * width, last - start))
            start, at = last, at + 1
        return spans

    def sha256(self, start: int, end: int) -> str:
        """Content of rows [start, end): names, types and values column by column, whatever the batches are."""
        digest = hashlib.sha256()
        for field in _SCHEMA:
            digest.update(f"{field.name}:{field.type};".encode())
            for values in self.slices(field.name, start, end):
                digest.update(np.ascontiguousarray(values).data)
        return digest.hexdigest()


def read_columns(
    sources: Sequence[TapeSource],
    folder_of: Callable[[str], Path],
    names: Sequence[str],
    device: str | torch.device = "cpu",
) -> dict[str, torch.Tensor]:
    """The named snapshot columns over a whole tape, each [n] or [n, 10] and contiguous on `device`.

    int32 and int64 keep their type, uint8 is widened to int32 and uint32 to int64. folder_of gives the
    snapshots folder of a source key.
    """
    types = {c.name: c.type for c in SNAPSHOTS}
    unknown = [name for name in names if name not in types]
    if unknown:
        raise BadInput(f"no snapshot column {unknown[0]!r}; known: {', '.join(types)}")
    n = sum(s.row_end - s.row_start for s in sources)
    out = {}
    for name in names:
        is_list = types[name] not in _WIDENED
        dtype = torch.int32 if is_list else _WIDENED[types[name]]
        out[name] = torch.empty((n, LEVELS) if is_list else (n,), dtype=dtype, device=device)
    at = 0
    with Upload(device, PIECE_BYTES) as upload:
        for source in sources:
            snapshots = Snapshots(folder_of(source.key))
            snapshots.must_hold(source.row_start, source.row_end)
            for name, first, last in _pieces(out, source.row_start, source.row_end):
                to = at + first - source.row_start
                fill = partial(_copy, list(snapshots.blocks(name, first, last)))
                upload(out[name][to : to + last - first], fill)
            at += source.row_end - source.row_start
    return out


def _pieces(columns: Mapping[str, torch.Tensor], start: int, end: int) -> Iterator[tuple[str, int, int]]:
    """(column, first, one past the last row) of pieces of PIECE_BYTES, all columns of a stretch before the next."""
    room = {name: PIECE_BYTES // (x.stride(0) * x.element_size()) for name, x in columns.items()}
    stretch = max(room.values(), default=1)
    for a in range(start, end, stretch):
        for name, rows in room.items():
            for first in range(a, min(a + stretch, end), rows):
                yield name, first, min(first + rows, a + stretch, end)


def _copy(blocks: Sequence[np.ndarray], *, out: np.ndarray) -> None:
    """Lay blocks [batches, rows, ...] end to end in out [n, ...], which may be of a wider type."""
    at = 0
    for block in blocks:
        rows = block.shape[0] * block.shape[1]
        np.copyto(out[at : at + rows].reshape(block.shape), block, casting="safe")
        at += rows


def segment_of_rows(spec: FoldSpec, device: str | torch.device = "cpu") -> torch.Tensor:
    """Tape-wide segment number of every tape row: int32 [n_rows], -1 outside every session."""
    out = torch.full((spec.n_rows,), NO_SEGMENT, dtype=torch.int32, device=device)
    for s in spec.segments:
        out[s.row_start : s.row_end] = s.segment
    return out
