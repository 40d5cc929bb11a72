"""Rows traced back to the records they came from: a snapshots folder holds what the file says, to the tick."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

from foxhunt_assets.contracts.instruments import UNDEF_PRICE, ContractFacts
from foxhunt_assets.contracts.tables import ABSENT_PX
from foxhunt_assets.market.formats import open_book
from foxhunt_assets.market.snapshot_folder import open_snapshots, values

_LEVELS = ("bid_px", "ask_px", "bid_sz", "ask_sz", "bid_ct", "ask_ct")
_OF_RECORD = ("ts_event", "ts_recv", "instrument_id", "action", "side", "flags")


def trace_faults(path: Path, folder: Path, facts: ContractFacts, sample: int) -> tuple[list[str], int]:
    """(faults, rows looked at) of at most `sample` rows, spread evenly, against the records that their source_row
    names. Prices are compared in the file's own units: ticks times tick, exactly. Of an MBO file, whose records hold
    no book, the record's price must lie on the tick."""
    table = open_snapshots(folder)
    rows = table.take(np.unique(np.linspace(0, table.num_rows - 1, sample).astype(np.int64)))
    order = np.argsort(rows["source_row"].to_numpy(), kind="stable")
    rows = rows.take(order).combine_chunks()
    wanted, faults, first = rows["source_row"].to_numpy(), [], 0
    with open_book(path) as reader:
        for octets in reader.batches():
            a, b = np.searchsorted(wanted, [first, first + len(octets)])
            if a < b:
                records = octets.view(reader.header.dtype)[wanted[a:b] - first, 0]
                faults += list(_differences(rows.slice(a, b - a), records, facts.tick))
            first += len(octets)
    missing = int((wanted >= first).sum())
    if missing:
        faults.append(f"{missing} rows name records past the {first} of {path.name}")
    return faults, len(wanted)


def _differences(rows: pa.Table, records: np.ndarray, tick: int) -> Iterator[str]:
    said = {name: values(rows[name].combine_chunks()) for name in (*_OF_RECORD, *_LEVELS)}
    at = rows["source_row"].to_numpy()
    for name in _OF_RECORD:
        yield from _first(name, at, said[name].astype(np.int64) != records[name].astype(np.int64))
    if "levels" not in (records.dtype.names or ()):
        price = records["price"]
        yield from _first("price on the tick", at, (price != UNDEF_PRICE) & (price % tick != 0))
        return
    for name in _LEVELS:
        ours, theirs = said[name].astype(np.int64), records["levels"][name].astype(np.int64)
        absent = records["levels"][f"{name[:3]}_px"] == UNDEF_PRICE
        if name.endswith("px"):
            wrong = np.where(absent, ours != ABSENT_PX, ours * tick != theirs)
        else:
            wrong = np.where(absent, ours != 0, ours != theirs)
        yield from _first(name, at, wrong.any(axis=1))


def _first(name: str, at: np.ndarray, wrong: np.ndarray) -> Iterator[str]:
    if wrong.any():
        yield f"record {at[wrong.argmax()]}: {name} is not what its row says ({int(wrong.sum())} such rows)"
