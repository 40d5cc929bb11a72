"""A snapshots folder as its readers see it: memory-mapped rows, the segment table, and what must hold of both."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from foxhunt_assets.contracts.tables import ABSENT_PX, LEVELS, NO_SEGMENT, SEGMENTS, SNAPSHOTS, arrow_schema
from foxhunt_assets.errors import BadInput, ContractBroken
from foxhunt_assets.market.grid import ENDED_BY

SNAPSHOTS_NAME, SEGMENTS_NAME = "snapshots.arrow", "segments.parquet"
# How the rows of a file lie: all in order of time, or series after series (one an instrument), each in order of time.
ROW_ORDERS = ("time", "series")
_PRICE_LIMIT = 2**30  # ticks: far beyond any contract, far below where sums of two would wrap

Columns = Mapping[str, np.ndarray]


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


def validate(folder: Path) -> None:
    """Raise ContractBroken naming the first thing in a snapshots folder that is not what its contract says.

    A batch at a time, so memory does not grow with the file."""
    rows, segments = open_snapshots(folder), open_segments(folder)
    place = folder / SNAPSHOTS_NAME
    for table, columns, name in ((rows, SNAPSHOTS, SNAPSHOTS_NAME), (segments, SEGMENTS, SEGMENTS_NAME)):
        if not table.schema.equals(arrow_schema(columns), check_metadata=False):
            raise ContractBroken(f"{folder / name}: columns are not those of the contract: {table.schema.names}")
    grid, by_series = _clock(place, rows.schema.metadata or {})
    table = segments.to_pylist()
    for text in _segment_problems(table, rows.num_rows):
        raise ContractBroken(f"{folder / SEGMENTS_NAME}: {text}")
    starts, ends, ids = (np.array([s[n] for s in table], np.int64) for n in ("row_start", "row_end", "instrument_id"))
    first, before = 0, None
    for batch in rows.to_batches():
        if not len(batch):
            continue
        column = {name: values(batch[name]) for name in batch.schema.names}
        at = np.arange(first, first + len(batch))
        segment = np.searchsorted(ends, at, side="right")
        inside = (segment < len(ends)) & (at >= np.append(starts, 0)[segment])
        painted = np.where(inside, segment, NO_SEGMENT)
        _raise_first(place, first, _row_problems(column, grid, by_series, before))
        _raise_first(place, first, _place_problems(column, grid, painted, ids, before))
        _raise_first(place, first, _book_problems(column))
        before = {name: column[name][-1] for name in ("ts", "source_row", "instrument_id", "segment")}
        first += len(batch)


def _clock(place: Path, metadata: Mapping[bytes, bytes]) -> tuple[int, bool]:
    """(grid in ns, 0 on the event clock; whether series lie one after another) by the metadata of the file."""
    grid_ms, order = metadata.get(b"grid_ms", b"").decode(), metadata.get(b"row_order", b"").decode()
    if not grid_ms.isdecimal():
        raise ContractBroken(f"{place}: no grid_ms in the metadata of the file")
    if order not in ROW_ORDERS:
        raise ContractBroken(f"{place}: row_order {order!r} in the metadata of the file, none of {ROW_ORDERS}")
    return int(grid_ms) * 10**6, order == "series"


def _raise_first(place: Path, first_row: int, problems: Iterator[tuple[str, Any]]) -> None:
    """problems: text and bool [n], true where a row is wrong."""
    for text, wrong in problems:
        if wrong.any():
            raise ContractBroken(
                f"{place}: row {first_row + int(wrong.argmax())}: {text} ({int(wrong.sum())} such rows of a batch)"
            )


def _row_problems(
    c: Columns, grid: int, by_series: bool, before: Mapping[str, Any] | None
) -> Iterator[tuple[str, np.ndarray]]:
    """before: the row before the batch. A new instrument may begin a new series, whose times start again."""
    step, rows = _change(c["ts"], before, "ts"), _change(c["source_row"], before, "source_row")
    same = (_change(c["instrument_id"], before, "instrument_id") == 0) | (not by_series)
    yield "ts does not rise", same & (step < 0 if grid == 0 else step <= 0)
    if grid:
        yield f"ts is no multiple of {grid} ns", c["ts"] % grid != 0
    yield "received after its ts", c["ts_recv"] > c["ts"]
    yield "source_row falls", same & (rows < 0)
    for name in ("buy_lots", "sell_lots", "n_trades", "n_events"):
        yield f"{name} is negative", c[name] < 0
    lots = c["buy_lots"].astype(np.int64) + c["sell_lots"]
    yield "trades without an event", (c["n_trades"] > 0) & (c["n_events"] == 0)
    yield "lots without a trade", (lots > 0) & (c["n_trades"] == 0)
    yield "unknown action", ~np.isin(c["action"], np.frombuffer(b"ACMTFN", np.uint8))


def _place_problems(
    c: Columns, grid: int, painted: np.ndarray, ids: np.ndarray, before: Mapping[str, Any] | None
) -> Iterator[tuple[str, np.ndarray]]:
    """painted: int64 [n], the segment that the table puts each row in. ids: instrument of each segment."""
    yield "another segment than the table says", c["segment"] != painted
    inside = painted >= 0
    yield "another instrument than its segment's", inside & (c["instrument_id"] != np.append(ids, 0)[painted])
    if grid:
        goes_on = inside & (_change(c["segment"], before, "segment") == 0)
        yield f"not {grid} ns after the row before", goes_on & (_change(c["ts"], before, "ts") != grid)


def _change(column: np.ndarray, before: Mapping[str, Any] | None, name: str) -> np.ndarray:
    """int64 [n]: how much each value lies above the one before it; the very first counts as a rise of one."""
    wide = column.astype(np.int64)
    return np.diff(wide, prepend=wide[0] - 1 if before is None else np.int64(before[name]))


def _book_problems(c: Columns) -> Iterator[tuple[str, Any]]:
    for side, sign in (("bid", 1), ("ask", -1)):
        px, sz, ct = c[f"{side}_px"], c[f"{side}_sz"], c[f"{side}_ct"]
        there = px != ABSENT_PX
        yield f"{side} size or count is negative", ((sz < 0) | (ct < 0)).any(axis=1)
        yield f"absent {side} level with size or count", (~there & ((sz != 0) | (ct != 0))).any(axis=1)
        yield f"absent {side} level before one that is there", (there[:, 1:] & ~there[:, :-1]).any(axis=1)
        ordered = sign * px[:, :-1].astype(np.int64) > sign * px[:, 1:].astype(np.int64)
        yield f"{side} prices are not best first", (there[:, 1:] & there[:, :-1] & ~ordered).any(axis=1)
        yield f"{side} price beyond 2^30 ticks", (there & (np.abs(px.astype(np.int64)) >= _PRICE_LIMIT)).any(axis=1)
    bid, ask, low, high = c["bid_px"][:, 0], c["ask_px"][:, 0], c["low_bid_px"], c["high_ask_px"]
    yield "low_bid_px above the best bid", (bid != ABSENT_PX) & ((low > bid) | (low == ABSENT_PX))
    yield "high_ask_px below the best ask", (ask != ABSENT_PX) & ((high < ask) | (high == ABSENT_PX))


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
