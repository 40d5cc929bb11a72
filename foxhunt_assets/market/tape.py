"""Reading snapshots by rows of a tape: Arrow files copied once, all columns together, into tensors.

A tensor never views a file: the file may be replaced while a training runs, and a copy lands on any device. Tensors
are made for the whole tape and filled in pieces, so the host holds a few pieces and no column.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import torch

from foxhunt_assets.contracts.tables import LEVELS, NO_SEGMENT, SNAPSHOTS, arrow_schema
from foxhunt_assets.errors import BadInput, ContractBroken
from foxhunt_assets.market.columns import ColumnFile, fill_rows

if TYPE_CHECKING:
    from foxhunt_assets.market.folds import FoldSpec, TapeSource

SNAPSHOTS_FILE = "snapshots.arrow"
SEGMENTS_FILE = "segments.parquet"

# torch has few unsigned types and fewer operators on them: uint8 becomes int32, uint32 becomes int64.
_WIDENED = {"uint8": torch.int32, "uint32": torch.int64, "int32": torch.int32, "int64": torch.int64}
_SCHEMA = arrow_schema(SNAPSHOTS)


class Snapshots(ColumnFile):
    """One snapshots.arrow."""

    def __init__(self, folder: Path):
        path = folder / SNAPSHOTS_FILE
        try:
            super().__init__(path, _SCHEMA)
        except FileNotFoundError:
            raise BadInput(f"{path}: no such file; materialise the snapshots of {folder.name}") from None
        except (pa.ArrowException, OSError) as error:
            raise BadInput(f"{path}: not a whole Arrow file ({error}); materialise it again") from None

    @property
    def grid_ms(self) -> int:
        """Milliseconds between rows, 0 on the event clock."""
        said = (self.schema.metadata or {}).get(b"grid_ms", b"").decode()
        if not said.isdecimal():
            raise ContractBroken(f"{self.path}: no grid_ms in the metadata of the file; materialise it again")
        return int(said)

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
    for s in sources:
        if s.row_end < s.row_start:
            raise ContractBroken(f"{folder_of(s.key)}: rows {s.row_start}..{s.row_end} asked for; make the fold again")
    n = sum(s.row_end - s.row_start for s in sources)
    out = {}
    for name in names:
        is_list = types[name] not in _WIDENED
        dtype = torch.int32 if is_list else _WIDENED[types[name]]
        out[name] = torch.empty((n, LEVELS) if is_list else (n,), dtype=dtype, device=device)
    fill_rows(out, _SCHEMA, ((Snapshots(folder_of(s.key)), s.row_start, s.row_end) for s in sources))
    return out


def segment_of_rows(spec: FoldSpec, device: str | torch.device = "cpu") -> torch.Tensor:
    """Tape-wide segment number of every tape row: int32 [n_rows], -1 outside every session."""
    out = torch.full((spec.n_rows,), NO_SEGMENT, dtype=torch.int32, device=device)
    for s in spec.segments:
        out[s.row_start : s.row_end] = s.segment
    return out
