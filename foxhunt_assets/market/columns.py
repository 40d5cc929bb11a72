"""Columns of an uncompressed Arrow file by their places in the file, so that bytes are read without a mapping.

A file of a long session has thousands of batches; asking pyarrow for each and for the buffers of its columns takes
longer than the bytes take to a GPU. Batches of equal metadata are laid out alike, so pyarrow parses one of a kind and
the footer says where the others lie. A read is a plain read of the open file: a page of a mapping costs a fault, and
faults of one process wait for each other.
"""

from __future__ import annotations

import bisect
import mmap
import os
import struct
import threading
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import torch

from foxhunt_assets.errors import ContractBroken
from foxhunt_assets.market.upload import Piece, Upload

_BLOCK = np.dtype([("offset", "<i8"), ("metadata", "<i4"), ("", "<i4"), ("body", "<i8")])  # of the footer
_GAP = 1 << 18  # bytes between columns that are read rather than skipped by another call, which would cost more
_FORGOTTEN = threading.local()  # where a thread reads them to; nobody looks
_IOVECS = 1000  # Linux takes 1024 in a call

Span = tuple[int, int, int, int]  # byte of the file, bytes, column, byte of the column's output


class ColumnFile:
    """An open Arrow file with the fields of `wanted`. OSError or ArrowException where it is not a whole file."""

    def __init__(self, path: Path, wanted: pa.Schema):
        self.path = path
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        weakref.finalize(self, os.close, self._fd)
        self._stamp = _stamp(self._fd)
        # over the mapped bytes: a reader of the file itself asks for read-ahead buffer by buffer, ten times slower
        mapped = mmap.mmap(self._fd, 0, access=mmap.ACCESS_READ) if self._stamp[0] else b""
        self._mapped = pa.py_buffer(mapped)
        reader = pa.ipc.open_file(pa.BufferReader(self._mapped))
        self.schema = reader.schema
        for field in wanted:
            found = self.schema.get_field_index(field.name)
            if found < 0 or self.schema.field(found).type != field.type:
                raise ContractBroken(f"{path}: column {field.name} of type {field.type} is not there")
        self._lay_out(reader)

    def _lay_out(self, reader: pa.RecordBatchFileReader) -> None:
        """The batches that have rows: where each begins in the file and which kind it is of."""
        raw = memoryview(self._mapped)
        kinds: dict[bytes, tuple[int, int, pa.RecordBatch]] = {}
        blocks = _blocks(raw) if reader.num_record_batches else np.empty(0, _BLOCK)
        of = np.empty(len(blocks), np.int64)
        for i, (a, n) in enumerate(zip(blocks["offset"].tolist(), blocks["metadata"].tolist())):
            key = bytes(raw[a : a + n])
            if key not in kinds:
                kinds[key] = len(kinds), a, reader.get_batch(i)
            of[i] = kinds[key][0]
        self._kinds = [(a, batch) for _, a, batch in kinds.values()]
        rows = np.array([batch.num_rows for _, batch in self._kinds], np.int64)[of]
        self._at, self._kind, self._rows = blocks["offset"][rows > 0], of[rows > 0], rows[rows > 0]
        self._ends = self._rows.cumsum()
        self.n_rows = int(rows.sum())

    def stored(self, name: str) -> np.dtype:
        """numpy's type of a row of a column."""
        return row_type(self.schema.field(name).type)

    def slices(self, name: str, start: int, end: int) -> Iterator[np.ndarray]:
        """Rows [start, end) of a column in file order, a batch at a time: [m], or [m, 10] for a level list.

        Views of the mapped file, valid while this object lives.
        """
        self.must_hold(start, end)
        dtype = self.stored(name)
        first, last, batch, skipped = self._runs(start, np.array([end]))
        at = self._places(name)[batch] + skipped * dtype.itemsize
        for a, rows in zip(at.tolist(), (last - first).tolist()):
            yield np.ndarray((rows, *dtype.shape), dtype.base, self._mapped, a)

    def pieces(self, names: Sequence[str], start: int, end: int, rows: int) -> Iterator[Piece]:
        """(first, one past the last row, its read) of pieces of at most `rows` rows that cover [start, end).

        They end with batches where they can: a column's part of a batch then is one run of bytes, and neighbours of
        the schema are one run together.
        """
        self.must_hold(start, end)
        stops = self._stops(start, end, rows)
        starts = np.array([start, *stops[:-1]])
        first, last, batch, skipped = self._runs(start, np.array(stops, np.int64))
        piece = np.searchsorted(stops, first, "right")
        spans = []
        for column, name in enumerate(names):
            width = self.stored(name).itemsize
            at, to = self._places(name)[batch] + skipped * width, (first - starts[piece]) * width
            spans.append(np.stack((piece, at, (last - first) * width, np.full_like(at, column), to), axis=1))
        every = np.concatenate(spans)
        every = every[np.lexsort((every[:, 1], every[:, 0]))]
        ends = np.searchsorted(every[:, 0], np.arange(len(stops)), "right").tolist()
        for a, b, i, j in zip(starts.tolist(), stops, [0, *ends], ends):
            yield a, b, partial(self.read, every[i:j, 1:].tolist())

    def _stops(self, start: int, end: int, rows: int) -> list[int]:
        """Where pieces of at most `rows` rows end: at the last end of a batch that they reach, if there is one."""
        ends, stops = self._ends.tolist(), []
        while start < end:
            stop = min(start + rows, end)
            whole = bisect.bisect_right(ends, stop)
            if stop < end and whole and ends[whole - 1] > start:
                stop = ends[whole - 1]
            stops.append(stop)
            start = stop
        return stops

    def _runs(self, start: int, stops: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Rows from `start` to the last of `stops`, cut at ends of batches and at stops.

        int64 [runs] each: first row, one past the last, number of their batch, rows of it before them.
        """
        inside = self._ends[(self._ends > start) & (self._ends < stops.max(initial=start))]
        cuts = np.unique(np.concatenate(([start], inside, stops)))
        batch = np.searchsorted(self._ends, cuts[:-1], "right")
        return cuts[:-1], cuts[1:], batch, cuts[:-1] - self._ends[batch] + self._rows[batch]

    def must_hold(self, start: int, end: int) -> None:
        """ContractBroken where rows [start, end) are not all in the file."""
        if not 0 <= start <= end <= self.n_rows:
            raise ContractBroken(f"{self.path}: rows {start}..{end} asked for, {self.n_rows} there")

    def read(self, spans: Sequence[Span], out: Sequence[memoryview]) -> None:
        """Spans in order of the file into out, a byte view of each column. ContractBroken where the file changes."""
        try:
            read_spans(self._fd, spans, out)
        except EOFError:
            raise ContractBroken(f"{self.path}: cut while it was read; materialise it again") from None
        if _stamp(self._fd) != self._stamp:
            raise ContractBroken(f"{self.path}: changed while it was read; start again")

    def _places(self, name: str) -> np.ndarray:
        """int64 [batches]: byte of the file where a batch's values of a column start."""
        inside = np.array([self._inside(name, *kind) for kind in self._kinds], np.int64)
        places = self._at + inside[self._kind]
        if (places + self._rows * self.stored(name).itemsize > self._mapped.size).any():
            raise ContractBroken(f"{self.path}: column {name} is compressed or cut; materialise it again")
        return places

    def _inside(self, name: str, at: int, batch: pa.RecordBatch) -> int:
        """Bytes from the start of a batch to a column's values, 0 where it has no rows."""
        if not batch.num_rows:
            return 0
        *validity, values = batch.column(self.schema.get_field_index(name)).buffers()
        offset = values.address - self._mapped.address
        if any(validity):
            raise ContractBroken(f"{self.path}: column {name} has missing values; materialise it again")
        size = batch.num_rows * self.stored(name).itemsize
        if values.size < size or not 0 <= offset <= self._mapped.size - size:
            raise ContractBroken(f"{self.path}: column {name} is compressed or cut; materialise it again")
        return offset - at


def fill_rows(out: Mapping[str, torch.Tensor], schema: pa.Schema, parts: Iterable[tuple[ColumnFile, int, int]]) -> None:
    """Rows [start, end) of files that hold `schema`, end to end, into the tensors [n, ...] of its columns."""
    names = list(out)
    stored = [getattr(torch, row_type(schema.field(name).type).base.name) for name in names]
    upload = Upload(list(out.values()), stored)

    def pieces() -> Iterator[Piece]:
        at = 0
        for file, start, end in parts:
            for first, last, fill in file.pieces(names, start, end, upload.rows):
                yield at + first - start, at + last - start, fill
            at += end - start

    upload.run(pieces())


def row_type(kind: pa.DataType) -> np.dtype:
    """numpy's type of a row: a scalar, or of shape [m] for a list of m."""
    if pa.types.is_fixed_size_list(kind):
        return np.dtype((kind.value_type.to_pandas_dtype(), kind.list_size))
    return np.dtype(kind.to_pandas_dtype())


def read_spans(fd: int, spans: Sequence[Span], out: Sequence[memoryview]) -> None:
    """Spans in order of the file, as many in a call as lie together. EOFError where the file ends before."""
    views: list[memoryview] = []
    padding, at, end = _padding(), 0, 0
    for offset, size, column, to in spans:
        gap = offset - end
        if views and not (0 <= gap <= _GAP and len(views) < _IOVECS):
            _read_all(fd, views, at)
            views = []
        if not views:
            at = offset
        elif gap:
            views.append(padding[:gap])
        views.append(out[column][to : to + size])
        end = offset + size
    _read_all(fd, views, at)


def _padding() -> memoryview:
    """Room for a gap, of this thread alone: threads that write the same bytes wait for each other's caches."""
    if not hasattr(_FORGOTTEN, "room"):
        _FORGOTTEN.room = memoryview(bytearray(_GAP))
    return _FORGOTTEN.room


def _read_all(fd: int, views: list[memoryview], at: int) -> None:
    """Bytes of the file from `at` on into the views; a call may return before all are full."""
    while views:
        got = os.preadv(fd, views, at)
        if not got:
            raise EOFError
        at += got
        while views and got >= len(views[0]):
            got -= len(views.pop(0))
        if got:
            views[0] = views[0][got:]


def _stamp(fd: int) -> tuple[int, int]:
    found = os.fstat(fd)
    return found.st_size, found.st_mtime_ns


def _blocks(raw: memoryview) -> np.ndarray:
    """[batches] of _BLOCK: where the batches of a whole Arrow file lie, which pyarrow does not say.

    Source: Arrow columnar format, "IPC File Format", and File.fbs: the file ends with the footer, its length and
    ARROW1; recordBatches is the fourth field of the flatbuffer table Footer.
    """

    def number(kind: str, at: int) -> int:
        return struct.unpack_from(kind, raw, at)[0]

    end = len(raw) - 10
    footer = end - number("<i", end)
    table = footer + number("<I", footer)
    field = table + number("<H", table - number("<i", table) + 4 + 2 * 3)
    vector = field + number("<I", field)
    return np.frombuffer(raw, _BLOCK, number("<I", vector), vector + 4)
