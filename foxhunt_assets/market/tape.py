"""Reading snapshots by rows of a tape: memory-mapped Arrow files copied column by column into tensors.

A tensor never views a file: the file may be replaced while a training runs, and a copy lands on any device.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import torch

from foxhunt_assets.contracts.tables import LEVELS, NO_SEGMENT, SNAPSHOTS, arrow_schema
from foxhunt_assets.errors import BadInput, ContractBroken

if TYPE_CHECKING:
    from foxhunt_assets.market.folds import FoldSpec, TapeSource

SNAPSHOTS_FILE = "snapshots.arrow"
SEGMENTS_FILE = "segments.parquet"

# torch has few unsigned types and fewer operators on them: uint8 becomes int32, uint32 becomes int64.
_WIDENED = {"uint8": torch.int32, "uint32": torch.int64, "int32": torch.int32, "int64": torch.int64}
_SCHEMA = arrow_schema(SNAPSHOTS)


class Snapshots:
    """One snapshots.arrow, memory-mapped. Slices are numpy views valid while this object lives."""

    def __init__(self, folder: Path):
        self.path = folder / SNAPSHOTS_FILE
        try:
            self._reader = pa.ipc.open_file(pa.memory_map(str(self.path)))
        except FileNotFoundError:
            raise BadInput(f"{self.path}: no such file; materialise the snapshots of {folder.name}") from None
        except pa.ArrowInvalid as error:
            raise BadInput(f"{self.path}: not a whole Arrow file ({error}); materialise it again") from None
        for field in _SCHEMA:
            found = self._reader.schema.get_field_index(field.name)
            if found < 0 or self._reader.schema.field(found).type != field.type:
                raise ContractBroken(f"{self.path}: column {field.name} of type {field.type} is not there")
        self._batches = [self._reader.get_batch(i) for i in range(self._reader.num_record_batches)]
        self.n_rows = sum(b.num_rows for b in self._batches)

    @property
    def grid_ms(self) -> int:
        """Milliseconds between rows, 0 on the event clock."""
        said = (self._reader.schema.metadata or {}).get(b"grid_ms", b"").decode()
        if not said.isdecimal():
            raise ContractBroken(f"{self.path}: no grid_ms in the metadata of the file; materialise it again")
        return int(said)

    def slices(self, name: str, start: int, end: int) -> Iterator[np.ndarray]:
        """Rows [start, end) of a column in file order, a batch at a time: [m], or [m, 10] for a level list."""
        if not 0 <= start <= end <= self.n_rows:
            raise ContractBroken(f"{self.path}: rows {start}..{end} asked for, {self.n_rows} there")
        first = 0
        for batch in self._batches:
            a, b = max(start - first, 0), min(end - first, batch.num_rows)
            if a < b:
                column = batch.column(name).slice(a, b - a)
                if pa.types.is_fixed_size_list(column.type):
                    yield column.flatten().to_numpy(zero_copy_only=True).reshape(-1, LEVELS)
                else:
                    yield column.to_numpy(zero_copy_only=True)
            first += batch.num_rows

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
    for source in sources:
        snapshots = Snapshots(folder_of(source.key))
        for name, tensor in out.items():
            row = at
            for values in snapshots.slices(name, source.row_start, source.row_end):
                # astype always copies here: torch must not hold a read-only map
                chunk = torch.from_numpy(values.astype(_numpy_name(tensor.dtype), copy=True))
                tensor[row : row + len(chunk)].copy_(chunk)
                row += len(chunk)
        at += source.row_end - source.row_start
    return out


def segment_of_rows(spec: FoldSpec, device: str | torch.device = "cpu") -> torch.Tensor:
    """Tape-wide segment number of every tape row: int32 [n_rows], -1 outside every session."""
    out = torch.full((spec.n_rows,), NO_SEGMENT, dtype=torch.int32)
    for s in spec.segments:
        out[s.row_start : s.row_end] = s.segment
    return out.to(device)


def _numpy_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
