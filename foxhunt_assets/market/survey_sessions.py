"""Into which session each record of a file falls, and the silences inside sessions: a part of the survey."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta

import numpy as np

from foxhunt_assets.market import calendar
from foxhunt_assets.market.dbn import DAY_NS

EARLIEST, LATEST = (int(datetime(y, 1, 1, tzinfo=UTC).timestamp()) * 10**9 for y in (2000, 2100))
_LONGEST = 5  # gaps that are listed


class Sessions:
    """Records by trade date: of CME Globex by its calendar, of another venue by UTC day. Silences inside them."""

    def __init__(self, globex: bool, gap_ns: int):
        self.globex, self.gap_ns = globex, gap_ns
        self.found: dict[str, list[int]] = {}  # trade date: records, first and last time, crossed or locked books
        self.outside = self.crossed_outside = self.gap_count = self.longest = 0
        self.gaps: list[tuple[int, int]] = []
        self._windows: dict[int, calendar.Window] = {}  # by opening
        self._days: set[int] = set()  # whose windows are there
        self._opens = self._closes = self._shuts = np.zeros(0, np.int64)
        self._reopened: set[int] = set()  # windows (opening second) with a trade past the holiday calendar's close
        self._last: tuple[int, int] | None = None  # window and time of the record before

    def place(self, ts: np.ndarray, ts_event: np.ndarray, traded: np.ndarray) -> np.ndarray:
        """int64 [n]: the opening second of the trading window of each record (of another venue the UTC day), -1: none.

        ts: int64 [n] non-decreasing but for a few; ts_event: uint64 [n]; traded: bool [n], records that are trades. As
        for the decoder, a record stamped before the open and received after it is in none, and past the holiday
        calendar's close only a trade that the exchange stamped there proves the market open.
        """
        if not self.globex:
            return ts // DAY_NS
        for day in np.unique(ts // DAY_NS).tolist():
            if day not in self._days:
                self._add_windows(day)
        at = np.searchsorted(self._opens, ts, side="right") - 1
        inside = (at >= 0) & (ts < self._closes[at]) & (ts_event >= self._opens[np.maximum(at, 0)].astype(np.uint64))
        shut = inside & (ts >= self._shuts[at])
        for w in np.unique(at[shut]).tolist():
            opened = int(self._opens[w])
            if opened in self._reopened:
                continue
            late = np.flatnonzero(shut & (at == w))
            proof = late[traded[late] & (ts_event[late] >= np.uint64(self._shuts[w]))]
            inside[late[late < proof[0]] if len(proof) else late] = False
            if len(proof):
                self._reopened.add(opened)
        return np.where(inside, self._opens[at] // 10**9, -1)

    def add(self, ts: np.ndarray, window: np.ndarray, crossed: np.ndarray) -> None:
        """window: as `place` gives it; crossed: bool [n]."""
        inside = window >= 0
        self.outside += int((~inside).sum())
        self.crossed_outside += int(crossed[~inside].sum())
        for w in np.unique(window[inside]).tolist():
            rows = window == w
            name = self.name(w)
            n, first, last, bad = self.found.get(name, [0, LATEST, -1, 0])
            self.found[name] = [
                n + int(rows.sum()), min(first, int(ts[rows].min())), max(last, int(ts[rows].max())),
                bad + int(crossed[rows].sum()),
            ]  # fmt: skip
        self._note_gaps(ts[inside], window[inside])

    def _note_gaps(self, ts: np.ndarray, window: np.ndarray) -> None:
        if not len(ts):
            return
        if self._last is not None:
            window, ts = np.insert(window, 0, self._last[0]), np.insert(ts, 0, self._last[1])
        ts = np.maximum.accumulate(ts)
        silence = np.diff(ts)
        silence[window[1:] != window[:-1]] = 0
        self.longest = max(self.longest, int(silence.max(initial=0)))
        wide = np.flatnonzero(silence > self.gap_ns)
        self.gap_count += len(wide)
        gaps = [*self.gaps, *((int(ts[i]), int(ts[i + 1])) for i in wide)]
        self.gaps = sorted(gaps, key=lambda g: g[0] - g[1])[:_LONGEST]
        self._last = int(window[-1]), int(ts[-1])

    def _add_windows(self, day: int) -> None:
        """The trading windows that a UTC day can lie in. Day by day, because one wild time may be decades away."""
        self._days.add(day)
        around = date(1970, 1, 1) + timedelta(day)
        for window in calendar.windows(around - timedelta(1), around + timedelta(1)):
            self._windows[window.open_ns] = window
        ordered = sorted(self._windows)
        self._opens = np.array(ordered or [LATEST], np.int64)
        self._closes = np.array([self._windows[o].close_ns for o in ordered] or [LATEST], np.int64)
        self._shuts = np.array([self._windows[o].shut_ns for o in ordered] or [LATEST], np.int64)

    def name(self, window: int) -> str:
        """The trade date of a window, or the date of a UTC day."""
        if not self.globex:
            return (date(1970, 1, 1) + timedelta(window)).isoformat()
        return self._windows[window * 10**9].trade_date.isoformat()
