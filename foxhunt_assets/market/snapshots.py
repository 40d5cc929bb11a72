"""From one Databento file to a snapshots folder: snapshots.arrow and segments.parquet, in constant memory.

What lies in such a folder, and whether it is what its contract says, is `snapshot_folder`'s; its `validate` and
`content_hash` are named here too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from foxhunt_assets.contracts.instruments import ContractFacts
from foxhunt_assets.contracts.tables import SEGMENTS, SNAPSHOTS, arrow_schema
from foxhunt_assets.errors import BadInput
from foxhunt_assets.market import batch, book, grid
from foxhunt_assets.market.databento_csv import CsvReader
from foxhunt_assets.market.dbn import FLAG_NAMES, DbnReader, Header
from foxhunt_assets.market.formats import header_of, open_book
from foxhunt_assets.market.passes import (
    ACTIONS,
    FLAG_COUNT,
    NOT_KEPT,
    R_ID,
    R_RECORDS,
    R_SLOT,
    R_START,
    SNAPSHOT_COUNT,
    UNMAPPED_COUNT,
    Decoder,
)
from foxhunt_assets.market.roll import FRONT_MONTH, Selection, is_spread, select
from foxhunt_assets.market.snapshot_folder import SEGMENTS_NAME, SNAPSHOTS_NAME, content_hash, validate
from foxhunt_assets.storage import file_sha256

__all__ = ["DATASET", "EVENT_CLOCK", "content_hash", "decode", "source_facts", "validate"]

DATASET = "GLBX.MDP3"  # the calendar and the contract facts are those of CME Globex
EVENT_CLOCK = 0  # as grid_ms: a row an event; for inspection and checks
_SYNTHETIC = ".synthetic."  # generated files say so in their name: their header must please the official tools


def source_facts(path: Path) -> dict[str, Any]:
    """What the header of a file says, and its size. BadInput where it is neither DBN 1 to 3 nor Databento's CSV."""
    header = header_of(path)
    return {**_header_facts(path, header), "bytes": path.stat().st_size}


def decode(
    path: Path,
    out: Path,
    facts: ContractFacts,
    grid_ms: int,
    instrument_mode: str = FRONT_MONTH,
    progress: Callable[[float], None] | None = None,
) -> dict[str, Any]:
    """Write snapshots.arrow and segments.parquet of one file into the folder `out`; returns the report.

    grid_ms: distance of the rows, 0 for the event clock. instrument_mode: front_month, or one outright symbol.
    progress: told the share of the file read. BadInput on anything that cannot be used, and where no row comes out.
    """
    if grid_ms < 0:
        raise BadInput(f"grid_ms {grid_ms} is negative; use a multiple of 250, or 0 for the event clock")
    sha256 = file_sha256(path) if path.is_file() else ""
    download = batch.check(path, sha256) if path.is_file() else None
    with open_book(path) as reader, ExitStack() as stack:
        header = reader.header
        if header.dataset != DATASET:
            raise BadInput(f"{path}: dataset {header.dataset}; only {DATASET} (CME Globex) is known here")
        selection = select(path, header, facts, instrument_mode)
        decoder = Decoder(path, header, facts, selection, grid_ms * 10**6)
        schema = arrow_schema(SNAPSHOTS, _file_metadata(header, facts, grid_ms, sha256))
        writer = stack.enter_context(pa.ipc.new_file(str(out / SNAPSHOTS_NAME), schema))
        segments = _write_all(reader, decoder, writer, schema, facts, progress)
    pq.write_table(segments, out / SEGMENTS_NAME)
    report = {**_header_facts(path, header), "source_sha256": sha256, "grid_ms": grid_ms}
    report |= _report(header, decoder, selection, segments)
    report |= _quality(reader, download)
    _refuse_empty(path, report)
    return report


def _quality(reader: DbnReader | CsvReader, download: batch.Batch | None) -> dict[str, Any]:
    """What speaks against the file though it decodes: assumptions of its reader, its request, its batch folder."""
    header = reader.header
    span = header.start, header.end or header.start + 1
    said = [*reader.warnings, *batch.warnings(download, reader.path, *span)]
    if header.not_found:
        said.append(f"symbols the venue does not know: {', '.join(header.not_found[:5])}")
    return {
        "warnings": said,
        "bad_days": download.bad_days(*span) if download else {},
        "symbols_partial": list(header.partial),
        "symbols_not_found": list(header.not_found),
    }


def _write_all(
    reader: DbnReader | CsvReader,
    decoder: Decoder,
    writer: pa.RecordBatchFileWriter,
    schema: pa.Schema,
    facts: ContractFacts,
    progress: Callable[[float], None] | None,
) -> pa.Table:
    """Drive the pass: each time it has rows they go to the file. Returns the segment table."""
    found: list[np.ndarray] = []

    def drain(ready: Iterator[None]) -> None:
        for _ in ready:
            found.append(decoder.state["segments"][: int(decoder.state["n_segments_out"])].copy())
            writer.write_batch(_batch(decoder, schema))

    for records in reader.batches():
        drain(decoder.feed(records))
        if progress:
            progress(reader.fraction)
    drain(decoder.finish())
    rows = np.concatenate([np.zeros((0, 5), np.int64), *found])
    slots = [decoder.selection.slots[slot] for slot in rows[:, 0]]
    columns: list[Any] = [
        np.arange(len(rows)),
        [s.symbol for s in slots],
        [s.instrument_id for s in slots],
        [decoder.dates[w].isoformat() for w in rows[:, 1]],
        rows[:, 2],
        rows[:, 3],
        [grid.ENDED_BY[why] for why in rows[:, 4]],
        [facts.tick] * len(rows),
        [facts.multiplier_cents] * len(rows),
    ]
    want = arrow_schema(SEGMENTS)
    return pa.Table.from_arrays([pa.array(list(c), f.type) for c, f in zip(columns, want, strict=True)], schema=want)


def _batch(decoder: Decoder, schema: pa.Schema) -> pa.RecordBatch:
    """The rows of the output buffers as a batch that shares their memory: write it before the pass goes on."""
    clock, n = decoder.state, int(decoder.state["n_out"])
    column = {
        **dict(zip(grid.WIDE, clock["wide"], strict=True)),
        **dict(zip(grid.NARROW, clock["narrow"], strict=True)),
        **dict(zip(grid.OCTETS, clock["octets"], strict=True)),
        **dict(zip(grid.PLANES, clock["levels"], strict=True)),
    }
    ids = np.array([s.instrument_id for s in decoder.selection.slots], np.uint32)
    column["instrument_id"] = ids[column.pop("slot")[:n]]
    return pa.RecordBatch.from_arrays([_array(field.type, column[field.name][:n]) for field in schema], schema=schema)


def _array(kind: pa.DataType, values: np.ndarray) -> pa.Array:
    if pa.types.is_fixed_size_list(kind):
        inner = pa.Array.from_buffers(kind.value_type, values.size, [None, pa.py_buffer(values)])
        return pa.FixedSizeListArray.from_arrays(inner, type=kind)
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(values)])


def _header_facts(path: Path, header: Header) -> dict[str, Any]:
    return {
        "schema": header.schema,
        "version": header.version,
        "dataset": header.dataset,
        "start": header.start,
        "end": header.end,
        "symbols": list(header.symbols),
        "synthetic": _SYNTHETIC in path.name,
    }


def _file_metadata(header: Header, facts: ContractFacts, grid_ms: int, sha256: str) -> dict[str, str]:
    """What a reader of the Arrow file alone should know. No path and no time: same source, same bytes."""
    return {
        "grid_ms": str(grid_ms),
        "source_sha256": sha256,
        "source_schema": str(header.schema),
        "tick": str(facts.tick),
        "root": facts.root,
    }


def _report(header: Header, decoder: Decoder, selection: Selection, segments: pa.Table) -> dict[str, Any]:
    """What was found in the file and what became of it; every record is in exactly one of the record counts."""
    st, counts, routes = decoder.state, decoder.counts, decoder.routes
    names = {(m.instrument_id, m.start_ns): m.symbol for m in header.mappings}
    records: dict[str, int] = {}
    for instrument_id, start, n in routes[:, [R_ID, R_START, R_RECORDS]].tolist():
        symbol = names[instrument_id, start]
        records[symbol] = records.get(symbol, 0) + n
    whole = ("event_ends", "book_changes", "crossed", "crossed_in_session", "one_sided", "one_sided_in_session")
    lost = ("dropped_events", "dropped_trades", "suspect_events", "past_calendar_close")
    report = {name: int(st[name]) for name in (*whole, *lost)}
    return report | {
        "records": decoder.row,
        "records_by_symbol": {symbol: n for symbol, n in sorted(records.items()) if n},
        "records_unmapped": int(counts[UNMAPPED_COUNT]),
        "records_spread": sum(n for symbol, n in records.items() if is_spread(symbol)),
        "records_not_kept": int(routes[routes[:, R_SLOT] == NOT_KEPT, R_RECORDS].sum()),
        "records_snapshot": int(counts[SNAPSHOT_COUNT]),
        "events_other_month": int(st["other_month"]),
        "trades": int(st["trade_count"]),
        "trade_lots": int(st["trade_lots"]),
        "actions": {a: int(counts[ord(a)]) for a in ACTIONS},
        "flags": {name: int(counts[FLAG_COUNT + bit.bit_length() - 1]) for bit, name in FLAG_NAMES.items()},
        "ts_recv_inversions": int(st["inversions"]),
        "ts_event_undefined": int(st["undefined_ts_event"]),
        "order_errors": _order_errors(decoder),
        "instruments": sorted(set(segments["symbol"].to_pylist())),
        "selection": selection.note,
        "rows": int(st["rows"]),
        "segments": segments.num_rows,
        "rows_in_segments": sum(s["row_end"] - s["row_start"] for s in segments.to_pylist()),
        "spans": _spans(decoder),
    }


def _order_errors(decoder: Decoder) -> dict[str, int]:
    """Records an order book could not take as they were; all 0 where the file opens with a whole book."""
    errors = [0] * len(book.ORDER_ERRORS) if decoder.orders is None else decoder.orders.marks["errors"][0].tolist()
    return dict(zip(book.ORDER_ERRORS, errors, strict=True))


def _spans(decoder: Decoder) -> list[dict[str, Any]]:
    """First and last ts_recv of the events of each instrument that made rows: two files may not overlap in these."""
    ends = decoder.state["slots"][: len(decoder.selection.slots), [grid.FIRST, grid.LAST]].tolist()
    return [
        {"symbol": slot.symbol, "instrument_id": slot.instrument_id, "first": first, "last": last}
        for slot, (first, last) in zip(decoder.selection.slots, ends, strict=True)
        if last >= 0
    ]


def _refuse_empty(path: Path, report: dict[str, Any]) -> None:
    """A file that decodes and yields no row is an error, with the reason the counts give."""
    if report["rows"]:
        return
    n = report["records"]
    reasons = {
        "no record at all; the market was shut or the request was empty": n == 0,
        "no symbol is mapped to the instrument ids of its records on their dates": report["records_unmapped"] == n,
        "holds only calendar spreads; download the outrights": report["records_spread"] == n,
        "holds only the opening book snapshot, no event": report["records_snapshot"] + report["actions"]["R"] == n,
        "no event of the lead month; set data.instrument_mode to a symbol of the file": report["events_other_month"]
        > 0,
        "no record of a kept instrument ends an event (F_LAST)": True,
    }
    why = next(text for text, holds in reasons.items() if holds)
    seen = ", ".join(list(report["records_by_symbol"])[:5]) or "none"
    raise BadInput(f"{path}: {n} records, no usable row: {why} (symbols with records: {seen})")
