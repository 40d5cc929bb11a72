"""A snapshots folder as its readers see it: memory-mapped rows, the segment table, and what must hold of both."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from foxhunt_assets.contracts.tables import LEVELS, SEGMENTS, SNAPSHOTS, arrow_schema
from foxhunt_assets.errors import BadInput, ContractBroken
from foxhunt_assets.market.grid import ENDED_BY
from foxhunt_assets.market.row_rules import RowRules, Rows, Table
from foxhunt_assets.storage import Hashed, file_state

SNAPSHOTS_NAME, SEGMENTS_NAME = "snapshots.arrow", "segments.parquet"
# How the rows of a file lie: all in order of time, or series after series (one an instrument), each in order of time.
ROW_ORDERS = ("time", "series")


@dataclass
class Written:
    """What a decode found out about snapshots.arrow while its rows were in the cache, for whoever commits the folder.

    file: its hash and the state it was left in. fault: the first rule that its rows broke, empty if none.
    """

    file: Hashed | None = None
    fault: str = ""

    @property
    def hashes(self) -> dict[str, Hashed]:
        """By file name, as `storage.build_folder` takes them."""
        return {SNAPSHOTS_NAME: self.file} if self.file else {}


def open_snapshots(folder: Path) -> pa.Table:
    """The rows of a snapshots folder as a memory-mapped table."""
    path = folder / SNAPSHOTS_NAME
    if not path.is_file():
        raise BadInput(f"{path}: no such file; materialise the snapshots again")
    try:
        return pa.ipc.open_file(pa.memory_map(str(path))).read_all()
    except pa.ArrowInvalid as error:
        raise ContractBroken(f"{path}: not an Arrow file ({error}); materialise the snapshots again") from None


def open_segments(folder: Path) -> pa.Table:
    """The segment table of a snapshots folder."""
    path = folder / SEGMENTS_NAME
    if not path.is_file():
        raise BadInput(f"{path}: no such file; materialise the snapshots again")
    try:
        return pq.read_table(path)
    except pa.ArrowInvalid as error:
        raise ContractBroken(f"{path}: not a Parquet file ({error}); materialise the snapshots again") from None


def content_hash(folder: Path, row_start: int, row_end: int) -> str:
    """sha256 over the raw column bytes of rows [row_start, row_end), column after column; batches leave no trace."""
    table = open_snapshots(folder)
    if not 0 <= row_start <= row_end <= table.num_rows:
        raise BadInput(f"{folder / SNAPSHOTS_NAME}: rows {row_start} to {row_end} asked for, it has {table.num_rows}")
    part = table.slice(row_start, row_end - row_start)
    digest = hashlib.sha256()
    for name in part.column_names:
        digest.update(f"{name}:{part[name].type}:{len(part)};".encode())
        for chunk in part[name].chunks:
            digest.update(values(chunk).data)
    return digest.hexdigest()


def values(chunk: pa.Array) -> np.ndarray:
    """One chunk of a column without a copy: [n], or [n, LEVELS] of a level column."""
    if pa.types.is_fixed_size_list(chunk.type):
        return chunk.flatten().to_numpy(zero_copy_only=True).reshape(-1, LEVELS)
    return chunk.to_numpy(zero_copy_only=True)


def validate(folder: Path, written: Written | None = None) -> None:
    """Raise ContractBroken naming the first thing in a snapshots folder that is not what its contract says.

    written: what `snapshots.decode` said of the rows; it holds while the file is in the state that was left. Else the
    rows are read and judged here, a batch at a time, because mapped rows would all count as memory of the process."""
    rows, segments = open_snapshots(folder), open_segments(folder)
    place = folder / SNAPSHOTS_NAME
    for table, columns, name in ((rows, SNAPSHOTS, SNAPSHOTS_NAME), (segments, SEGMENTS, SEGMENTS_NAME)):
        if not table.schema.equals(arrow_schema(columns), check_metadata=False):
            raise ContractBroken(f"{folder / name}: columns are not those of the contract: {table.schema.names}")
    grid, by_series = _clock(place, rows.schema.metadata or {})
    table = segments.to_pylist()
    for text in _segment_problems(table, rows.num_rows):
        raise ContractBroken(f"{folder / SEGMENTS_NAME}: {text}")
    if written and written.file and written.file.state == file_state(place):
        if written.fault:
            raise ContractBroken(f"{place}: {written.fault}")
        return
    rules = RowRules(grid, by_series, segment_table(segments))
    with pa.OSFile(str(place)) as source:
        reader = pa.ipc.open_file(source)
        for n in range(reader.num_record_batches):
            batch = reader.get_batch(n)
            fault = rules.first_broken(Rows(*(values(batch[name]) for name in Rows._fields)))
            if fault:
                raise ContractBroken(f"{place}: {fault}")


def segment_table(segments: pa.Table) -> Table:
    """What the rules of rows look at of a segment table."""
    names = ("row_start", "row_end", "instrument_id")
    return Table(*(segments[name].to_numpy().astype(np.int64) for name in names))


def _clock(place: Path, metadata: Mapping[bytes, bytes]) -> tuple[int, bool]:
    """(grid in ns, 0 on the event clock; whether series lie one after another) by the metadata of the file."""
    grid_ms, order = metadata.get(b"grid_ms", b"").decode(), metadata.get(b"row_order", b"").decode()
    if not grid_ms.isdecimal():
        raise ContractBroken(f"{place}: no grid_ms in the metadata of the file")
    if order not in ROW_ORDERS:
        raise ContractBroken(f"{place}: row_order {order!r} in the metadata of the file, none of {ROW_ORDERS}")
    return int(grid_ms) * 10**6, order == "series"


def _segment_problems(segments: list[dict[str, Any]], n_rows: int) -> Iterator[str]:
    end = 0
    for n, s in enumerate(segments):
        a, b, where = s["row_start"], s["row_end"], f"segment {s['segment']}"
        if s["segment"] != n:
            yield f"segment {s['segment']} stands at place {n}"
        if not end <= a < b <= n_rows:
            yield f"{where}: rows {a} to {b} overlap, are empty or lie outside the {n_rows} rows"
        end = b
        if s["ended_by"] not in ENDED_BY:
            yield f"{where}: ended_by {s['ended_by']!r}, none of {', '.join(ENDED_BY)}"
        if s["tick"] <= 0 or s["multiplier_cents"] <= 0 or not s["symbol"]:
            yield f"{where}: no tick, multiplier or symbol"
        try:
            date.fromisoformat(s["trade_date"])
        except ValueError:
            yield f"{where}: trade_date {s['trade_date']!r} is no date"
