"""From one Databento file to a snapshots folder: snapshots.arrow and segments.parquet, in constant memory.

What lies in such a folder, and whether it is what its contract says, is `snapshot_folder`'s; its `validate` and
`content_hash` are named here too.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from foxhunt_assets.contracts.instruments import ContractFacts
from foxhunt_assets.contracts.tables import SEGMENTS, SNAPSHOTS, arrow_schema
from foxhunt_assets.errors import BadInput
from foxhunt_assets.market import batch, decode_report, grid
from foxhunt_assets.market.databento_csv import CsvReader
from foxhunt_assets.market.dbn import DbnReader, Header
from foxhunt_assets.market.formats import header_of, is_synthetic, open_book
from foxhunt_assets.market.passes import R_ID, R_RECORDS, Decoder
from foxhunt_assets.market.roll import FRONT_MONTH, VOLUME, Lead, Selection, select
from foxhunt_assets.market.row_rules import RowRules, Rows
from foxhunt_assets.market.snapshot_folder import (
    ROW_ORDERS,
    SEGMENTS_NAME,
    SNAPSHOTS_NAME,
    Written,
    content_hash,
    segment_table,
    validate,
    values,
)
from foxhunt_assets.market.volume import FileVolume, complete_sessions, file_volume, lead_by_volume
from foxhunt_assets.storage import Hashed, HashingFile, file_state, hashed

__all__ = ["DATASET", "EVENT_CLOCK", "Written", "content_hash", "decode", "source_facts", "validate"]

DATASET = "GLBX.MDP3"  # the calendar and the contract facts are those of CME Globex
EVENT_CLOCK = 0  # as grid_ms: a row an event; for inspection and checks


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
    earlier: Sequence[FileVolume] = (),
    known: Hashed | None = None,
    written: Written | None = None,
) -> dict[str, Any]:
    """Write snapshots.arrow and segments.parquet of one file into the folder `out`; returns the report.

    grid_ms: distance of the rows, 0 for the event clock. instrument_mode: see `roll.select`. With `all`, and with
    several names, the rows of each instrument lie together, nearest month first; the file is read once for each.
    progress: told the share of the work done, at each percent. earlier: what earlier files traded, for the mode
    `volume`. known: the file as the caller hashed it; without, it is hashed here.
    written: where given, rows are judged and hashed as they are written, and it holds what came of that.
    BadInput on anything that cannot be used, where no row comes out, and on a file that changed since it was hashed.
    """
    if grid_ms < 0:
        raise BadInput(f"grid_ms {grid_ms} is negative; use a multiple of 250, or 0 for the event clock")
    source = known or hashed(path)
    download = batch.check(path, source.sha256)
    with open_book(path) as reader:
        header, said = reader.header, reader.warnings
    if header.dataset != DATASET:
        raise BadInput(f"{path}: dataset {header.dataset}; only {DATASET} (CME Globex) is known here")
    lead = _lead_by_volume(path, facts, earlier) if instrument_mode == VOLUME else None
    selections = select(path, header, facts, instrument_mode, lead)
    metadata = _file_metadata(header, facts, grid_ms, source.sha256, instrument_mode, len(selections))
    rules = RowRules(grid_ms * 10**6, len(selections) > 1) if written else None
    place = out / SNAPSHOTS_NAME
    with contextlib.closing(HashingFile(place) if written else place.open("wb")) as file:
        passes, segments = _write_series(path, file, rules, facts, grid_ms, selections, metadata, progress)
    pq.write_table(segments, out / SEGMENTS_NAME)
    if written and rules and isinstance(file, HashingFile):
        written.fault = rules.fault or rules.off_table(segment_table(segments))
        written.file = file.hashed()
    if file_state(path) != source.state:
        raise BadInput(f"{path}: changed while it was decoded; decode it again when nothing writes to it")
    report = {**_header_facts(path, header), "source_sha256": source.sha256, "grid_ms": grid_ms}
    report |= {"instrument_mode": instrument_mode, **decode_report.report(header, passes, segments)}
    report |= _quality(path, header, [*said, *decode_report.remarks(report, passes)], download)
    decode_report.refuse_empty(path, report)
    return report


def _lead_by_volume(path: Path, facts: ContractFacts, earlier: Sequence[FileVolume]) -> Lead:
    own = file_volume(path, facts)
    return lead_by_volume(complete_sessions([*earlier, *([own] if own else [])]), facts)


def _write_series(
    path: Path,
    file: Any,
    rules: RowRules | None,
    facts: ContractFacts,
    grid_ms: int,
    selections: Sequence[Selection],
    metadata: dict[str, str],
    progress: Callable[[float], None] | None,
) -> tuple[list[Decoder], pa.Table]:
    """One pass a selection into one file; returns the decoders and the segment table of all."""
    schema = arrow_schema(SNAPSHOTS, metadata)
    passes: list[Decoder] = []
    tables: list[pa.Table] = []
    with pa.ipc.new_file(file, schema) as writer:
        for selection in selections:
            if passes and not _records_of(passes[0], selection):
                continue  # the first pass has counted: nothing of this instrument is in the file
            with open_book(path) as reader:
                decoder = Decoder(path, reader.header, facts, selection, grid_ms * 10**6)
                if passes:
                    decoder.state["rows"] = passes[-1].state["rows"]
                    decoder.state["n_segments"] = passes[-1].state["n_segments"]
                share = _share(progress, len(passes), len(selections))
                tables.append(_write_all(reader, decoder, rules, writer, schema, facts, share))
            passes.append(decoder)
    if progress and len(passes) < len(selections):
        progress(1.0)
    return passes, pa.concat_tables(tables)


def _records_of(counted: Decoder, selection: Selection) -> int:
    ids = [slot.instrument_id for slot in selection.slots]
    return int(counted.routes[np.isin(counted.routes[:, R_ID], ids), R_RECORDS].sum())


def _share(progress: Callable[[float], None] | None, done: int, of: int) -> Callable[[float], None] | None:
    return None if progress is None else lambda fraction: progress((done + fraction) / of)


def _quality(path: Path, header: Header, assumed: Sequence[str], download: batch.Batch | None) -> dict[str, Any]:
    """What speaks against the file though it decodes: assumptions of its reader, its request, its batch folder."""
    span = header.start, header.end or header.start + 1
    said = [*assumed, *batch.warnings(download, path, *span)]
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
    rules: RowRules | None,
    writer: pa.RecordBatchFileWriter,
    schema: pa.Schema,
    facts: ContractFacts,
    progress: Callable[[float], None] | None,
) -> pa.Table:
    """Drive the pass: each time it has rows they are judged and go to the file. Returns the segment table."""
    found: list[np.ndarray] = []
    output = grid.rows_of(decoder.clock, schema)
    columns_of = Rows(*(values(output[name]) for name in Rows._fields))

    def drain(ready: Iterator[None]) -> None:
        for _ in ready:
            found.append(decoder.state["segments"][: int(decoder.state["n_segments_out"])].copy())
            n = int(decoder.state["n_out"])
            if rules:
                rules.first_broken(Rows(*(column[:n] for column in columns_of)))
            writer.write_batch(output.slice(0, n))

    told = -1
    for records in reader.batches():
        drain(decoder.feed(records))
        if progress and (percent := int(100 * reader.fraction)) > told:
            told = percent
            progress(reader.fraction)
    drain(decoder.finish())
    rows = np.concatenate([np.zeros((0, 5), np.int64), *found])
    slots = [decoder.selection.slots[slot] for slot in rows[:, 0]]
    columns: list[Any] = [
        int(decoder.state["n_segments"]) - len(rows) + np.arange(len(rows)),
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


def _header_facts(path: Path, header: Header) -> dict[str, Any]:
    return {
        "schema": header.schema,
        "version": header.version,
        "dataset": header.dataset,
        "start": header.start,
        "end": header.end,
        "symbols": list(header.symbols),
        "synthetic": is_synthetic(path),
    }


def _file_metadata(
    header: Header, facts: ContractFacts, grid_ms: int, sha256: str, instrument_mode: str, series: int
) -> dict[str, str]:
    """What a reader of the Arrow file alone should know. No path and no time: same source, same bytes."""
    return {
        "grid_ms": str(grid_ms),
        "instrument_mode": instrument_mode,
        "row_order": ROW_ORDERS[series > 1],
        "source_sha256": sha256,
        "source_schema": str(header.schema),
        "tick": str(facts.tick),
        "root": facts.root,
    }
