"""What must hold of every snapshot row, in one compiled pass: a rule is a sentence in RULES and a comparison below.

Rows are first asked, many at a time, whether anything at all is wrong with them; only then each by each rule.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from foxhunt_assets.contracts.tables import ABSENT_PX, LEVELS, NO_SEGMENT
from foxhunt_assets.market.compiled import cached

_PRICE_LIMIT = 2**30  # ticks: far beyond any contract, far below where sums of two would wrap
_RUN = 256  # rows that are looked at together, and one by one if there is anything wrong with them
_SAME_ROW = np.tile((np.arange(LEVELS) < LEVELS - 1).astype(np.int32), _RUN)  # 1 of a level if the next is of its row
_KNOWN_ACTION = np.isin(np.arange(256), np.frombuffer(b"ACMTFN", np.uint8))

# {grid} is the distance of the rows in ns. The first rule that a batch breaks is the one named.
RULES = (
    "ts does not rise",
    "ts is no multiple of {grid} ns",
    "received after its ts",
    "source_row falls",
    "buy_lots is negative",
    "sell_lots is negative",
    "n_trades is negative",
    "n_events is negative",
    "trades without an event",
    "lots without a trade",
    "unknown action",
    "another segment than the table says",
    "another instrument than its segment's",
    "not {grid} ns after the row before",
    *(
        text.format(side=side)
        for side in ("bid", "ask")
        for text in (
            "{side} size or count is negative",
            "absent {side} level with size or count",
            "absent {side} level before one that is there",
            "{side} prices are not best first",
            "{side} price beyond 2^30 ticks",
        )
    ),
    "low_bid_px above the best bid",
    "high_ask_px below the best ask",
)
(
    _RISE, _MULTIPLE, _RECEIVED, _SOURCE_ROW, _BUY, _SELL, _TRADES, _EVENTS, _NO_EVENT, _NO_TRADE, _ACTION,
    _SEGMENT, _INSTRUMENT, _DISTANCE, _BID, _, _, _, _, _ASK, _, _, _, _, _LOW, _HIGH,
) = (np.int64(n) for n in range(len(RULES)))  # fmt: skip
_NEGATIVE, _GHOST, _HOLE, _ORDER, _FAR = range(5)  # from _BID and _ASK on
FIRST, COUNT = range(2)  # columns of `found`


class Rows(NamedTuple):
    """The columns of a batch that rules look at: [n], or [n, LEVELS] of a level column."""

    ts: np.ndarray
    ts_recv: np.ndarray
    source_row: np.ndarray
    instrument_id: np.ndarray
    segment: np.ndarray
    buy_lots: np.ndarray
    sell_lots: np.ndarray
    n_trades: np.ndarray
    n_events: np.ndarray
    action: np.ndarray
    low_bid_px: np.ndarray
    high_ask_px: np.ndarray
    bid_px: np.ndarray
    bid_sz: np.ndarray
    bid_ct: np.ndarray
    ask_px: np.ndarray
    ask_sz: np.ndarray
    ask_ct: np.ndarray


class Table(NamedTuple):
    """Row ranges [start, end) and instruments of the segments, int64 [m] each, in order and apart."""

    start: np.ndarray
    end: np.ndarray
    instrument_id: np.ndarray


class Before(NamedTuple):
    """The row before a batch."""

    ts: int
    source_row: int
    instrument_id: int | np.int64
    segment: int | np.int64


class RowRules:
    """The rules over the batches of one file, in their order.

    grid: ns between rows, 0 on the event clock. by_series: a new instrument may begin a new series, whose times start
    again. table: of the segments; None while they are still being found, and then `off_table` is to be asked.
    `fault` is the first thing that was said.
    """

    def __init__(self, grid: int, by_series: bool, table: Table | None = None):
        self.grid, self.by_series, self.table = grid, by_series, table
        self._first = 0
        self._before: Before | None = None
        self._runs: list[np.ndarray] = []
        self.fault = ""

    def first_broken(self, c: Rows) -> str:
        """The first rule that the next batch breaks, with row and number of such rows; empty if it keeps them all."""
        n = len(c.ts)
        if n == 0:
            return ""
        before = self._before or Before(*(int(getattr(c, name)[0]) - 1 for name in Before._fields))
        found = np.zeros((len(RULES), 2), np.int64)
        _look(c, before, self.grid, self.by_series, found)
        if self.table is None:
            self._runs.append(_runs(c.segment, c.instrument_id, self._first))
        else:
            _place(c.segment, c.instrument_id, self.table, self._first, found)
        self._before = Before(*(int(getattr(c, name)[-1]) for name in Before._fields))
        self._first += n
        if not found[:, COUNT].any():
            return ""
        rule = int(np.flatnonzero(found[:, COUNT])[0])
        at, count = found[rule]
        said = f"row {self._first - n + at}: {RULES[rule].format(grid=self.grid)} ({count} such rows of a batch)"
        self.fault = self.fault or said
        return said

    def off_table(self, table: Table) -> str:
        """Where the segments of all rows so far are not those of the table; empty if they are."""
        runs = np.concatenate([np.zeros((0, 3), np.int64), *self._runs])
        runs = runs[np.append(True, (np.diff(runs[:, 1:], axis=0) != 0).any(axis=1))[: len(runs)]]  # batches joined
        ends = np.append(runs[1:, 0], self._first)[: len(runs)]
        inside = runs[:, 1] != NO_SEGMENT
        there = np.column_stack([runs[:, 1], runs[:, 0], ends, runs[:, 2]])[inside]
        want = np.column_stack([np.arange(len(table.start)), table.start, table.end, table.instrument_id])
        for n in range(max(len(there), len(want))):
            if n >= len(there) or n >= len(want) or (there[n] != want[n]).any():
                row = min(part[n, 1] for part in (there, want) if n < len(part))
                return f"row {row}: another segment or instrument than the table says"
        return ""


def _runs(segment: np.ndarray, instrument_id: np.ndarray, first: int) -> np.ndarray:
    """Runs of one segment and instrument in a batch that begins at row `first`: int64 [n, 3], first row and the two."""
    change = (segment[1:] != segment[:-1]) | (instrument_id[1:] != instrument_id[:-1])
    at = np.append(0, np.flatnonzero(change) + 1)
    return np.column_stack([first + at, segment[at], instrument_id[at]]).astype(np.int64)


@njit
def _note(found, rule, row):
    if found[rule, COUNT] == 0:
        found[rule, FIRST] = row
    found[rule, COUNT] += 1


@cached()
def _look(c, before, grid, by_series, found):
    """Look at a batch. found: int64 [len(RULES), 2], zeros; gets the first row of the batch that breaks each rule, and
    how many do."""
    for start in range(0, len(c.ts), _RUN):
        end = min(start + _RUN, len(c.ts))
        if start > 0:
            at = start - 1
            before = Before(c.ts[at], c.source_row[at], np.int64(c.instrument_id[at]), np.int64(c.segment[at]))
        if not _sound(c, start, end, before, grid):
            _look_closely(c, start, end, before, grid, by_series, found)


@njit
def _look_closely(c, start, end, before, grid, by_series, found):
    """Hold each row of [start, end) to each rule."""
    ts, source_row, instrument_id, segment = before
    for i in range(start, end):
        step = c.ts[i] - ts
        goes_on = not by_series or np.int64(c.instrument_id[i]) == instrument_id
        if goes_on and (step < 0 or (step == 0 and grid > 0)):
            _note(found, _RISE, i)
        if grid > 0 and c.ts[i] % grid != 0:
            _note(found, _MULTIPLE, i)
        if goes_on and c.source_row[i] < source_row:
            _note(found, _SOURCE_ROW, i)
        if grid > 0 and c.segment[i] != NO_SEGMENT and c.segment[i] == segment and step != grid:
            _note(found, _DISTANCE, i)
        _check_row(c, i, found)
        _check_side(c.bid_px, c.bid_sz, c.bid_ct, i, True, _BID, found)
        _check_side(c.ask_px, c.ask_sz, c.ask_ct, i, False, _ASK, found)
        ts, source_row, instrument_id, segment = c.ts[i], c.source_row[i], np.int64(c.instrument_id[i]), c.segment[i]


# The `_sound` functions: True only if rows [start, end) keep the rules they speak of. Most rows do, so this is loops
# over few columns without branches, which compile to vector operations; which rule is broken they do not find out.


@njit
def _sound(c, start, end, before, grid):
    """All rules but those of the table. It may be False of good rows where an instrument or a segment begins."""
    return (
        _sound_times(c, start, end, before, grid)
        and _sound_counts(c, start, end)
        and _sound_side(c.bid_px, c.bid_sz, c.bid_ct, start, end, True)
        and _sound_side(c.ask_px, c.ask_sz, c.ask_ct, start, end, False)
        and _sound_extremes(c, start, end)
    )


@njit
def _sound_times(c, start, end, before, grid):
    ts, recv, source_row = c.ts[start:end], c.ts_recv[start:end], c.source_row[start:end]
    step = ts[0] - before.ts
    wrong = (source_row[0] < before.source_row) | (recv[0] > ts[0]) | (step < 0)
    for i in range(1, len(ts)):
        wrong |= (source_row[i] < source_row[i - 1]) | (recv[i] > ts[i]) | (ts[i] < ts[i - 1])
    if grid > 0:  # a multiple of the grid, and from there on at its distance: all are multiples
        wrong |= (ts[0] % grid != 0) | (step != grid)
        for i in range(1, len(ts)):
            wrong |= ts[i] - ts[i - 1] != grid
    return not wrong


@njit
def _sound_counts(c, start, end):
    buy, sell, action = c.buy_lots[start:end], c.sell_lots[start:end], c.action[start:end]
    trades, events = c.n_trades[start:end], c.n_events[start:end]
    wrong = False
    for i in range(len(buy)):
        lots = buy[i] | sell[i]  # negative if one of the two is, 0 if both are
        wrong |= (lots | trades[i] | events[i]) < 0
        wrong |= ((trades[i] != 0) & (events[i] == 0)) | ((lots != 0) & (trades[i] == 0))
    for i in range(len(action)):
        wrong |= not _KNOWN_ACTION[action[i]]
    return not wrong


@njit
def _sound_side(px, sz, ct, start, end, falling):
    """The levels of all rows as one long row; _SAME_ROW hides where rows meet."""
    first, last = start * LEVELS, end * LEVELS
    px, sz, ct = px.reshape(px.size)[first:last], sz.reshape(sz.size)[first:last], ct.reshape(ct.size)[first:last]
    wrong = np.int32(0)
    for j in range(len(px)):
        there, lots = px[j] != ABSENT_PX, sz[j] | ct[j]
        wrong |= (lots < 0) | ((not there) & (lots != 0))
        wrong |= there & ((px[j] >= _PRICE_LIMIT) | (px[j] <= -_PRICE_LIMIT))
    for j in range(len(px) - 1):
        here, after = px[j], px[j + 1]
        better = here > after if falling else here < after
        kept = (after == ABSENT_PX) | (better & (here != ABSENT_PX))
        wrong |= np.int32(not kept) & _SAME_ROW[j]
    return wrong == 0


@njit
def _sound_extremes(c, start, end):
    low, high, bids, asks = c.low_bid_px[start:end], c.high_ask_px[start:end], c.bid_px[start:end], c.ask_px[start:end]
    wrong = False
    for i in range(len(low)):
        bid, ask = bids[i, 0], asks[i, 0]
        wrong |= (bid != ABSENT_PX) & ((low[i] > bid) | (low[i] == ABSENT_PX))
        wrong |= (ask != ABSENT_PX) & ((high[i] < ask) | (high[i] == ABSENT_PX))
    return not wrong


@cached()
def _place(segment, instrument_id, table, first, found):
    """Hold segments and instruments of a batch whose first row is row `first` of its file to the table."""
    place = np.searchsorted(table.end, first, side="right")
    for i in range(len(segment)):
        while place < len(table.end) and first + i >= table.end[place]:
            place += 1
        inside = place < len(table.end) and first + i >= table.start[place]
        if segment[i] != (place if inside else NO_SEGMENT):
            _note(found, _SEGMENT, i)
        if inside and instrument_id[i] != table.instrument_id[place]:
            _note(found, _INSTRUMENT, i)


@njit
def _check_row(c, i, found):
    """Rules that one row keeps or breaks by itself, but for the levels."""
    if c.ts_recv[i] > c.ts[i]:
        _note(found, _RECEIVED, i)
    if c.buy_lots[i] < 0:
        _note(found, _BUY, i)
    if c.sell_lots[i] < 0:
        _note(found, _SELL, i)
    if c.n_trades[i] < 0:
        _note(found, _TRADES, i)
    if c.n_events[i] < 0:
        _note(found, _EVENTS, i)
    if c.n_trades[i] > 0 and c.n_events[i] == 0:
        _note(found, _NO_EVENT, i)
    if np.int64(c.buy_lots[i]) + c.sell_lots[i] > 0 and c.n_trades[i] == 0:
        _note(found, _NO_TRADE, i)
    if not _KNOWN_ACTION[c.action[i]]:
        _note(found, _ACTION, i)
    bid, ask, low, high = c.bid_px[i, 0], c.ask_px[i, 0], c.low_bid_px[i], c.high_ask_px[i]
    if bid != ABSENT_PX and (low > bid or low == ABSENT_PX):
        _note(found, _LOW, i)
    if ask != ABSENT_PX and (high < ask or high == ABSENT_PX):
        _note(found, _HIGH, i)


@njit
def _check_side(px, sz, ct, i, falling, rules, found):
    """The levels of one side. falling: the best price is the highest."""
    negative = ghost = hole = order = far = np.int32(0)
    for k in range(LEVELS):  # without branches: ten levels are two vector operations
        there = px[i, k] != ABSENT_PX
        lots = sz[i, k] | ct[i, k]  # negative if one of the two is, 0 if both are
        negative |= lots < 0
        ghost |= (not there) & (lots != 0)
        far |= there & ((px[i, k] >= _PRICE_LIMIT) | (px[i, k] <= -_PRICE_LIMIT))
    for k in range(1, LEVELS):
        there, there_before = px[i, k] != ABSENT_PX, px[i, k - 1] != ABSENT_PX
        hole |= there & (not there_before)
        better = px[i, k - 1] > px[i, k] if falling else px[i, k - 1] < px[i, k]
        order |= there & there_before & (not better)
    if negative:
        _note(found, rules + _NEGATIVE, i)
    if ghost:
        _note(found, rules + _GHOST, i)
    if hole:
        _note(found, rules + _HOLE, i)
    if order:
        _note(found, rules + _ORDER, i)
    if far:
        _note(found, rules + _FAR, i)
