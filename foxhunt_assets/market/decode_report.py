"""What was found in a file and what became of it, as plain values: every record is in exactly one of the counts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from foxhunt_assets.errors import BadInput
from foxhunt_assets.market import book, grid
from foxhunt_assets.market.dbn import Header
from foxhunt_assets.market.passes import (
    ACTIONS,
    R_ID,
    R_RECORDS,
    R_SLOT,
    R_START,
    SNAPSHOT_COUNT,
    UNMAPPED_COUNT,
    Decoder,
)
from foxhunt_assets.market.roll import Slot, is_spread, outlived

ONE_SIDED = "no book ever has both sides"
UNPROVEN = (
    "begins without the book before it, and trading never proves ten levels of both sides; download it from the start "
    "of a UTC day"
)
NO_SESSION = "no event lies in a trading session"
OTHER_MONTH = "no event of the lead month; set data.instrument_mode to a symbol of the file"

_EVENTS = ("event_ends", "book_changes", "crossed", "crossed_in_session", "one_sided", "one_sided_in_session")
_LOST = ("dropped_events", "dropped_trades", "suspect_events", "unproven_events", "past_calendar_close")
_NAMED = {"trades": "trade_count", "trade_lots": "trade_lots", "events_other_month": "other_month"}


def report(header: Header, passes: Sequence[Decoder], segments: pa.Table) -> dict[str, Any]:
    """passes: one decoder a series of rows. Each saw the whole file, so what is counted over all records is the
    first one's; what is counted over kept instruments adds up."""
    first, notes = passes[0], dict.fromkeys(p.selection.note for p in passes)
    counts = first.counts
    by_symbol = _by_symbol(header, first)
    kept = sum(int(p.routes[p.routes[:, R_SLOT] >= 0, R_RECORDS].sum()) for p in passes)
    unmapped = int(counts[UNMAPPED_COUNT])
    return {
        **{name: _sum(passes, name) for name in (*_EVENTS, *_LOST)},
        **{name: _sum(passes, field) for name, field in _NAMED.items()},
        "records": first.row,
        "records_by_symbol": {symbol: n for symbol, n in sorted(by_symbol.items()) if n},
        "records_unmapped": unmapped,
        "records_spread": sum(n for symbol, n in by_symbol.items() if is_spread(symbol)),
        "records_not_kept": first.row - unmapped - kept,
        "records_snapshot": sum(int(p.counts[SNAPSHOT_COUNT]) for p in passes),
        "actions": {a: int(counts[ord(a)]) for a in ACTIONS},
        "flags": first.flag_counts(),
        "ts_recv_inversions": int(first.state["inversions"]),
        "ts_event_undefined": int(first.state["undefined_ts_event"]),
        "order_errors": _order_errors(passes),
        "instruments": sorted(set(segments["symbol"].to_pylist())),
        "selection": "; ".join(notes),
        "rows": int(passes[-1].state["rows"]),
        "segments": segments.num_rows,
        "rows_in_segments": sum(s["row_end"] - s["row_start"] for s in segments.to_pylist()),
        "spans": [span for p in passes for span in _spans(p)],
    }


def remarks(found: dict[str, Any], passes: Sequence[Decoder]) -> list[str]:
    """What a person should know of the rows, as sentences."""
    held, taken = found["unproven_events"], found["event_ends"]
    said = [unproven(held, taken)] if held else []
    for p in passes:
        for slot, (_, last) in _event_spans(p):
            said += outlived(slot, p.facts, last)
    return said


def unproven(held: int, taken: int) -> str:
    """Of a file that begins in the middle of a day: how many event ends are held back."""
    return (
        f"begins without the book before it: {held:,} of {held + taken:,} event ends make no row, because older orders "
        "may lie on their ten levels; download it from the start of a UTC day"
    )


def refuse_empty(path: Path, found: dict[str, Any]) -> None:
    """A file that decodes and yields no row to train on is an error, with the reason the counts give."""
    n = found["records"]
    reasons = {
        "no record at all; the market was shut or the request was empty": n == 0,
        "no symbol is mapped to the instrument ids of its records on their dates": found["records_unmapped"] == n,
        "holds only calendar spreads; download the outrights": found["records_spread"] == n,
        "holds only the opening book snapshot, no event": found["records_snapshot"] + found["actions"]["R"] == n,
        OTHER_MONTH: not found["rows"] and found["events_other_month"] > 0,
        UNPROVEN: not found["rows"] and found["unproven_events"] > 0,
        "no record of a kept instrument ends an event (F_LAST)": not found["rows"],
        ONE_SIDED: found["one_sided"] == found["event_ends"],
        NO_SESSION: not found["segments"],
    }
    why = next((text for text, holds in reasons.items() if holds), None)
    if why is not None:
        seen = ", ".join(list(found["records_by_symbol"])[:5]) or "none"
        raise BadInput(f"{path}: {n} records, no usable row: {why} (symbols with records: {seen})")


def _sum(passes: Sequence[Decoder], field: str) -> int:
    return sum(int(p.state[field]) for p in passes)


def _by_symbol(header: Header, decoder: Decoder) -> dict[str, int]:
    names = {(m.instrument_id, m.start_ns): m.symbol for m in header.mappings}
    records: dict[str, int] = {}
    for instrument_id, start, n in decoder.routes[:, [R_ID, R_START, R_RECORDS]].tolist():
        symbol = names[instrument_id, start]
        records[symbol] = records.get(symbol, 0) + n
    return records


def _order_errors(passes: Sequence[Decoder]) -> dict[str, int]:
    """Records an order book could not take as they were; all 0 where the file opens with a whole book."""
    errors = [0] * len(book.ORDER_ERRORS)
    for p in passes:
        if p.orders is not None:
            errors = [a + b for a, b in zip(errors, p.orders["errors"][0].tolist(), strict=True)]
    return dict(zip(book.ORDER_ERRORS, errors, strict=True))


def _spans(decoder: Decoder) -> list[dict[str, Any]]:
    """First and last ts_recv of the events of each instrument that made rows: two files may not overlap in these."""
    return [
        {"symbol": slot.symbol, "instrument_id": slot.instrument_id, "first": first, "last": last}
        for slot, (first, last) in _event_spans(decoder)
    ]


def _event_spans(decoder: Decoder) -> Iterator[tuple[Slot, tuple[int, int]]]:
    ends = decoder.state["slots"][: len(decoder.selection.slots), [grid.FIRST, grid.LAST]].tolist()
    return ((s, (first, last)) for s, (first, last) in zip(decoder.selection.slots, ends, strict=True) if last >= 0)
