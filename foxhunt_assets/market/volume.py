"""Who leads by volume: lots a session and contract, and the lead that follows from them without look-ahead.

The contract that leads on a trade date is the one that traded most in the last complete session before it, and
never an earlier month than the one that led before: at a roll the two months trade places for a few days, and a
series that went back would cross the roll three times. Until there is a complete session, the lead month of the
exchange's convention stands in. An expired contract never leads.

A session straddles files that are cut at UTC midnight, so what counts is told file by file and put together: a
session is complete where the files' records cover it from open to close, up to MAX_SILENCE at either end and between
two files. Sessions are Chicago's (`calendar`), so a short Sunday file is never taken for a day.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import numpy as np

from foxhunt_assets.contracts.instruments import ContractFacts
from foxhunt_assets.market import calendar, roll
from foxhunt_assets.market.dbn import Header
from foxhunt_assets.market.formats import open_book
from foxhunt_assets.market.grid import MAX_SILENCE
from foxhunt_assets.market.roll import Contract, Lead

_TRADE = ord("T")

Lots = dict[date, dict[int, int]]  # trade date -> contract code -> lots


@dataclass(frozen=True)
class FileVolume:
    """What one file traded. first, last: ts_recv of its records, ns UTC. lots: by trade date and contract."""

    first: int
    last: int
    lots: Lots

    def to_json(self) -> dict[str, Any]:
        lots = {day.isoformat(): {str(code): n for code, n in by.items()} for day, by in self.lots.items()}
        return {"first": self.first, "last": self.last, "lots": lots}

    @classmethod
    def from_json(cls, raw: dict[str, Any]) -> FileVolume:
        lots = {date.fromisoformat(day): {int(code): n for code, n in by.items()} for day, by in raw["lots"].items()}
        return cls(raw["first"], raw["last"], lots)


def file_volume(path: Path, facts: ContractFacts) -> FileVolume | None:
    """Lots that the outrights of a file traded in each session; None where it holds no record. One pass."""
    first, last = 2**63 - 1, -1
    lots: Lots = {}
    with open_book(path) as reader:
        codes = _codes(reader.header, facts)
        for octets in reader.batches():
            records = octets.view(reader.header.dtype)[:, 0]
            at = records["ts_recv"].astype(np.int64)
            first, last = min(first, int(at.min())), max(last, int(at.max()))
            traded = records["action"] == _TRADE
            if traded.any():
                _add(lots, codes, records[traded], at[traded])
    return None if last < 0 else FileVolume(first, last, lots)


def _codes(header: Header, facts: ContractFacts) -> list[tuple[int, int, int, int]]:
    """(instrument id, start, end, contract code) of every outright a header maps."""
    code = {(s.symbol, s.instrument_id): s.code for s in roll.outrights(header, facts)}
    found = ((m, code.get((m.symbol, m.instrument_id), roll.ANY)) for m in header.mappings)
    return [(m.instrument_id, m.start_ns, m.end_ns, c) for m, c in found if c != roll.ANY]


def _add(lots: Lots, codes: Sequence[tuple[int, int, int, int]], trades: np.ndarray, at: np.ndarray) -> None:
    days = [calendar.chicago_date(int(t)) for t in (at.min(), at.max())]
    windows = calendar.windows(days[0], days[1] + timedelta(3))  # a Sunday evening is Monday's, a Friday's is Monday's
    opens, closes = (np.array(x) for x in zip(*((w.open_ns, w.close_ns) for w in windows)))
    window = np.searchsorted(opens, at, side="right") - 1
    inside = (window >= 0) & (at < closes[window])
    for instrument_id, start, end, code in codes:
        mine = inside & (trades["instrument_id"] == instrument_id) & (at >= start) & (at < end)
        sums = np.bincount(window[mine], trades["size"][mine].astype(np.int64))
        for w in np.flatnonzero(sums):
            by = lots.setdefault(windows[w].trade_date, {})
            by[code] = by.get(code, 0) + int(sums[w])


def complete_sessions(files: Sequence[FileVolume]) -> Lots:
    """Lots of the sessions that the files cover whole, in order of trade date."""
    spans: list[list[int]] = []
    for first, last in sorted((f.first, f.last) for f in files):
        if spans and first <= spans[-1][1] + MAX_SILENCE:
            spans[-1][1] = max(spans[-1][1], last)
        else:
            spans.append([first, last])
    total: Lots = {}
    for file in files:
        for day, by in file.lots.items():
            for code, n in by.items():
                total.setdefault(day, {})[code] = total.get(day, {}).get(code, 0) + n
    return {day: total[day] for day in sorted(total) if _covered(spans, *calendar.session_bounds(day))}


def _covered(spans: Sequence[Sequence[int]], opened: int, closed: int) -> bool:
    return any(first <= opened + MAX_SILENCE and closed - MAX_SILENCE <= last for first, last in spans)


def lead_by_volume(sessions: Lots, facts: ContractFacts) -> Lead:
    """Who leads on a trade date, as a function of it. sessions: lots of complete sessions."""
    days = sorted(sessions)
    leads: list[int] = []  # lead on the trade date after each of `days`
    for day in days:
        most = max(sessions[day].values())
        winner = min(code for code, n in sessions[day].items() if n == most)
        leads.append(max(winner, leads[-1]) if leads else winner)

    def lead(trade_date: date) -> int:
        before = bisect_left(days, trade_date)
        convention = roll.lead_contract(trade_date, facts).code
        if before == 0:
            return convention
        code = leads[before - 1]
        return code if roll.expiry(Contract.of_code(code), facts) >= trade_date else max(code, convention)

    return lead
