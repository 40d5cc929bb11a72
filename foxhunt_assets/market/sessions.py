"""The sessions of a snapshots folder, one line each, and where its data and the holiday calendar disagree.

The data win: a trade after the calendar's close keeps its session open (grid.py), and a segment ends with its last
event whatever the calendar expects. Here both are only told.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from foxhunt_assets.contracts.tables import ABSENT_PX
from foxhunt_assets.market import calendar
from foxhunt_assets.market.grid import MAX_SILENCE
from foxhunt_assets.market.snapshot_folder import open_segments, open_snapshots, values

_MINUTE = 60 * 10**9


@dataclass(frozen=True)
class Session:
    """One instrument's rows of one trade date. first, last: ts of its rows, ns UTC. crossed counts locked books too.
    note: what the calendar did not expect, empty where nothing."""

    trade_date: str
    symbol: str
    rows: int
    segments: int
    gaps: int
    first: int
    last: int
    trades: int
    lots: int
    crossed: int
    one_sided: int
    low_bid: int
    high_ask: int
    note: str


def session_table(folder: Path) -> list[Session]:
    """Every session of a snapshots folder in row order."""
    rows, segments = open_snapshots(folder), open_segments(folder).to_pylist()
    made: list[Session] = []
    for (day, symbol), group in groupby(segments, key=lambda s: (s["trade_date"], s["symbol"])):
        found = list(group)
        tally = _tally(rows, found)
        begins = any(s.symbol == symbol for s in made)  # else the file may have begun inside the session
        note = _note(day, found, tally["spans"], begins)
        spans = tally.pop("spans")
        gaps = sum(s["ended_by"] == "gap" for s in found)
        made.append(Session(day, symbol, segments=len(found), gaps=gaps, first=spans[0][0], last=spans[-1][1],
                            note=note, **tally))  # fmt: skip
    return made


def markdown(sessions: Sequence[Session], limit: int = 40) -> str:
    """The table for a person, times of Chicago; the first and last sessions where there are many."""
    shown = list(sessions) if len(sessions) <= limit else [*sessions[: limit // 2], *sessions[-limit // 2 :]]
    head = ["trade date", "symbol", "rows", "segments", "gaps", "first", "last", "trades", "lots", "crossed",
            "one-sided", "low bid", "high ask", "calendar"]  # fmt: skip
    lines = [head, ["---"] * len(head)]
    for s in shown:
        cells = (s.trade_date, s.symbol, s.rows, s.segments, s.gaps, _clock(s.first), _clock(s.last), s.trades, s.lots,
                 s.crossed, s.one_sided, s.low_bid, s.high_ask, s.note or "as expected")  # fmt: skip
        lines.append([str(cell) for cell in cells])
    text = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    left_out = len(sessions) - len(shown)
    return text + (f"\n\n{left_out} sessions between are left out." if left_out else "")


def _clock(ns: int) -> str:
    return f"{datetime.fromtimestamp(ns // 10**9, calendar.CHICAGO):%a %H:%M:%S}"


def _tally(rows: pa.Table, segments: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Counts over the rows of some segments, a batch at a time."""
    count = dict.fromkeys(("rows", "trades", "lots", "crossed", "one_sided"), 0)
    low, high = 2**31 - 1, ABSENT_PX
    spans: list[tuple[int, int]] = []
    for s in segments:
        part = rows.slice(s["row_start"], s["row_end"] - s["row_start"])
        spans.append((part["ts"][0].as_py(), part["ts"][-1].as_py()))
        for batch in part.to_batches():
            c = {name: values(batch[name]) for name in ("n_trades", "buy_lots", "sell_lots", "bid_px", "ask_px")}
            bid, ask = c["bid_px"][:, 0], c["ask_px"][:, 0]
            there = (bid != ABSENT_PX) & (ask != ABSENT_PX)
            count["rows"] += len(batch)
            count["trades"] += int(c["n_trades"].sum(dtype=np.int64))
            count["lots"] += int(c["buy_lots"].sum(dtype=np.int64) + c["sell_lots"].sum(dtype=np.int64))
            count["crossed"] += int((there & (bid >= ask)).sum())
            count["one_sided"] += int((~there).sum())
            low = min(low, int(bid[there].min(initial=low)))
            high = max(high, int(ask[there].max(initial=high)))
    return {**count, "low_bid": low, "high_ask": high, "spans": spans}


def _note(day: str, segments: Sequence[Mapping[str, Any]], spans: Sequence[tuple[int, int]], begins: bool) -> str:
    opened, closed = calendar.session_bounds(date.fromisoformat(day))
    said = []
    if spans[-1][1] > closed + MAX_SILENCE:
        said.append(f"open {(spans[-1][1] - closed) // _MINUTE} min past the calendar's close")
    if segments[-1]["ended_by"] == "session" and spans[-1][1] < closed - MAX_SILENCE:
        said.append(f"silent for the last {(closed - spans[-1][1]) // _MINUTE} min before the calendar's close")
    if begins and spans[0][0] > opened + MAX_SILENCE:
        said.append(f"silent for the first {(spans[0][0] - opened) // _MINUTE} min after the calendar's open")
    return "; ".join(said)
