"""The snapshot clock: books at event ends become rows, rows become segments. Compiled, with preallocated outputs.

An event is a group of records of one instrument that ends with F_LAST; only then is the book a state the venue
published. On the grid clock a row stands at each multiple of the grid and shows the last book received at or before
it; on the event clock (grid 0) each event is a row. The clock is ts_recv, made non-decreasing.

A stretch is a run of events of one instrument inside one trading window (or outside all of them) with no reset and no
silence over MAX_SILENCE between. It starts with its first event and ends with the first grid instant at or after its
last one. A stretch inside a window is a segment; rows of the others carry segment -1. What is counted between rows
starts anew with the stretch, so nothing of a crossed pre-open book or of the last session reaches its first row.

Order-flow imbalance: Cont, Kukanov and Stoikov, "The Price Impact of Order Book Events", J. Financial Econometrics
2014, equation 4, on each level as in Xu, Gould and Howison 2018.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from foxhunt_assets.contracts.tables import ABSENT_PX, LEVELS, NO_SEGMENT

# Longest silence inside a session that is still one segment. In the thinnest hour looked at (ES, Christmas night
# 2023) the longest pause after the open was 9.3 s; trading halts last minutes. A longer silence is missing data.
MAX_SILENCE = 60 * 10**9

ENDED_BY = ("session", "reset", "gap", "roll", "file")
SESSION, RESET, GAP, ROLL, FILE = range(len(ENDED_BY))

NO_ERROR, BAD_HEADER, BAD_TICK, BAD_SIZE, BAD_TIME, BAD_ACTION, OVERFLOW, GROW = range(8)
BID, ASK = 0, 1
PX, SZ, CT = 0, 1, 2  # planes of a book: int32 [3, 2 sides, LEVELS]
BUY, SELL = ord("B"), ord("A")  # aggressor of a T record; on other records the side of the book
_INT32_MAX = 2**31 - 1
_NO_ASK = 2**31  # above every int32 price

STATE = np.dtype(
    [(name, np.int64) for name in (
        # the stretch under way
        "active", "window", "slot", "last_t", "next_ts", "segment", "row_start", "has_previous", "proven_open",
        # since the row before
        "buy", "sell", "trades", "events", "low_bid", "high_ask",
        # the last event
        "ts_event", "ts_recv", "source_row", "action", "side", "flags", "depth",
        # position: clock, window looked at, rows in the output, rows and segments so far, error of the pass
        "clock", "now", "n_out", "n_segments_out", "rows", "segments", "error", "error_row",
        # counts for the report
        "event_ends", "book_changes", "crossed", "crossed_in_session", "one_sided", "one_sided_in_session",
        "trade_count", "trade_lots", "dropped_events", "dropped_trades", "past_calendar_close",
        "other_month", "suspect_events", "inversions", "last_recv", "undefined_ts_event",
    )]
)  # fmt: skip


class Windows(NamedTuple):
    """Trading windows in order of time: int64 [n] each. lead: code of the lead contract, -1 for any."""

    open: np.ndarray
    close: np.ndarray
    shut: np.ndarray
    lead: np.ndarray


class Groups(NamedTuple):
    """What the records of the event under way have brought, a row a slot: int64 [slots]."""

    buy: np.ndarray
    sell: np.ndarray
    trades: np.ndarray
    lots: np.ndarray
    traded_at: np.ndarray  # ts_event of the last trade


class Spans(NamedTuple):
    """ts of the first and last event that counted, a row a slot: int64 [slots], -1 for none."""

    first: np.ndarray
    last: np.ndarray


class Rows(NamedTuple):
    """Output columns of one batch, reused: the columns of SNAPSHOTS, levels as int32 [cap, LEVELS]."""

    ts_event: np.ndarray
    ts_recv: np.ndarray
    ts: np.ndarray
    source_row: np.ndarray
    slot: np.ndarray
    levels: np.ndarray  # int32 [3, 2, cap, LEVELS]
    last: np.ndarray  # uint8 [4, cap]: action, side, flags, depth
    since: np.ndarray  # int32 [6, cap]: buy_lots, sell_lots, n_trades, n_events, low_bid_px, high_ask_px
    ofi: np.ndarray
    segment: np.ndarray
    segments: np.ndarray  # int64 [cap, 5]: slot, window, row_start, row_end, ended_by


class Book(NamedTuple):
    """The standing book of the stretch and its imbalance so far."""

    now: np.ndarray  # int32 [3, 2, LEVELS]
    ofi: np.ndarray  # int64 [LEVELS]


class Clock(NamedTuple):
    """Everything a pass carries from record to record and from batch to batch. grid: ns, 0 for the event clock."""

    state: np.ndarray  # STATE [1]
    book: Book
    rows: Rows
    groups: Groups
    windows: Windows
    spans: Spans
    grid: int


class Record(NamedTuple):
    """The fields of an event's last record that a row carries, all int64."""

    ts_event: int
    ts_recv: int
    source_row: int
    action: int
    side: int
    flags: int
    depth: int


def new_state() -> np.ndarray:
    """A clock that has seen nothing: STATE [1]."""
    state = np.zeros(1, STATE)
    for name in ("window", "slot", "segment", "proven_open"):
        state[name] = -1
    for name in ("clock", "last_recv"):
        state[name] = -(2**63)
    return state


def new_groups(slots: int) -> Groups:
    return Groups(*(np.zeros(slots, np.int64) for _ in Groups._fields))


def new_spans(slots: int) -> Spans:
    return Spans(np.full(slots, -1, np.int64), np.full(slots, -1, np.int64))


def new_book() -> Book:
    return Book(empty_levels(), np.zeros(LEVELS, np.int64))


def empty_levels() -> np.ndarray:
    """A book with no level on either side: int32 [3, 2, LEVELS]."""
    levels = np.zeros((3, 2, LEVELS), np.int32)
    levels[PX] = ABSENT_PX
    return levels


def new_rows(cap: int) -> Rows:
    wide = [np.zeros(cap, np.int64) for _ in range(5)]
    return Rows(
        *wide,
        levels=np.zeros((3, 2, cap, LEVELS), np.int32),
        last=np.zeros((4, cap), np.uint8),
        since=np.zeros((6, cap), np.int32),
        ofi=np.zeros((cap, LEVELS), np.int32),
        segment=np.zeros(cap, np.int32),
        segments=np.zeros((cap, 5), np.int64),
    )


def rows_per_event(grid: int) -> int:
    """Most rows one event can bring: a silence of MAX_SILENCE filled, and the row that ends a stretch."""
    return 2 if grid == 0 else MAX_SILENCE // grid + 3


@njit
def empty_group(c, slot):
    """Forget the records of the event under way."""
    c.groups.buy[slot] = 0
    c.groups.sell[slot] = 0
    c.groups.trades[slot] = 0
    c.groups.lots[slot] = 0


@njit
def add_trade(c, slot, side, size, ts_event):
    """A T record: side is the aggressor's, N (an auction) counts as a trade of neither."""
    c.groups.trades[slot] += 1
    c.groups.lots[slot] += size
    c.groups.traded_at[slot] = ts_event
    if side == BUY:
        c.groups.buy[slot] += size
    elif side == SELL:
        c.groups.sell[slot] += size


@njit
def emit(c, ts):
    """Write the standing book as a row at ts and start counting anew."""
    st, now, rows = c.state[0], c.book.now, c.rows
    n = st.n_out
    if st.window >= 0 and st.segment < 0:
        st.segment = st.segments
        st.segments += 1
        st.row_start = st.rows
    if st.events == 0:  # nothing since the row before: the row's own book is all there is
        st.low_bid = now[PX, BID, 0]
        st.high_ask = now[PX, ASK, 0]
    rows.ts[n] = ts
    rows.slot[n] = st.slot
    rows.segment[n] = st.segment if st.window >= 0 else NO_SEGMENT
    _emit_last(st, rows, n)
    for plane in range(3):
        for side in range(2):
            for k in range(LEVELS):
                rows.levels[plane, side, n, k] = now[plane, side, k]
    for k in range(LEVELS):
        if abs(c.book.ofi[k]) > _INT32_MAX:
            st.error = OVERFLOW
            st.error_row = st.source_row
        rows.ofi[n, k] = c.book.ofi[k]
    st.n_out += 1
    st.rows += 1
    start_count(c)


@njit
def _emit_last(st, rows, n):
    rows.ts_event[n] = st.ts_event
    rows.ts_recv[n] = st.ts_recv
    rows.source_row[n] = st.source_row
    rows.last[0, n] = st.action
    rows.last[1, n] = st.side
    rows.last[2, n] = st.flags
    rows.last[3, n] = st.depth
    if max(st.buy, st.sell) > _INT32_MAX:
        st.error = OVERFLOW
        st.error_row = st.source_row
    rows.since[0, n] = st.buy
    rows.since[1, n] = st.sell
    rows.since[2, n] = st.trades
    rows.since[3, n] = st.events
    rows.since[4, n] = st.low_bid
    rows.since[5, n] = st.high_ask


@njit
def start_count(c):
    """Zero what is counted since the row before."""
    st = c.state[0]
    st.buy = 0
    st.sell = 0
    st.trades = 0
    st.events = 0
    st.low_bid = ABSENT_PX
    st.high_ask = ABSENT_PX
    for k in range(LEVELS):
        c.book.ofi[k] = 0


@njit
def finish(c, before, reason):
    """End the stretch under way. Its last row is written if its instant lies before `before`; else what it would
    have held is dropped and counted (the book of that instant is another one)."""
    st = c.state[0]
    if st.active == 0:
        return
    if st.events > 0:
        if st.next_ts < before:
            emit(c, st.next_ts)
        else:
            st.dropped_events += st.events
            st.dropped_trades += st.trades
    if st.segment >= 0:
        m = st.n_segments_out
        c.rows.segments[m, 0] = st.slot
        c.rows.segments[m, 1] = st.window
        c.rows.segments[m, 2] = st.row_start
        c.rows.segments[m, 3] = st.rows
        c.rows.segments[m, 4] = reason
        st.n_segments_out += 1
    st.active = 0
    st.segment = -1


@njit
def reset(c, slot, t):
    """The book of an instrument is void (R record, start of a new snapshot): its stretch ends."""
    c.state[0].dropped_trades += c.groups.trades[slot]
    empty_group(c, slot)
    if c.state[0].slot == slot:
        finish(c, t, RESET)


@njit
def suspect(c, slot, t):
    """The venue says the book may be wrong (MAYBE_BAD_BOOK): the event makes no row and ends the stretch."""
    c.state[0].suspect_events += 1
    c.state[0].dropped_trades += c.groups.trades[slot]
    empty_group(c, slot)
    if c.state[0].slot == slot:
        finish(c, t, GAP)


@njit
def event_end(c, code, slot, record, new, touched):
    """One event of a kept instrument: write the grid rows before it, then apply it.

    code: its contract code. new: its book, int32 [3, 2, LEVELS]. touched: may `new` differ from its event before?
    Returns whether the event counts: one of another month than the lead does not.
    """
    st, windows = c.state[0], c.windows
    t = st.clock
    while t >= windows.close[st.now]:
        st.now += 1
    if windows.lead[st.now] >= 0 and windows.lead[st.now] != code:
        st.other_month += 1
        empty_group(c, slot)
        return False
    silent = st.active == 1 and t - st.last_t > MAX_SILENCE
    if silent:
        st.proven_open = -1
    window = st.now if trading(c, slot, record.ts_event) else -1
    _advance(c, slot, window, silent)
    if st.active == 0:
        st.active = 1
        st.window = window
        st.slot = slot
        st.next_ts = -(-t // c.grid) * c.grid if c.grid > 0 else t
        st.has_previous = 0
        start_count(c)
    note_book(c, new, touched)
    st.last_t = t
    if c.spans.first[slot] < 0:
        c.spans.first[slot] = t
    c.spans.last[slot] = t
    _take_event(c, slot, record)
    if c.grid == 0:
        emit(c, t)
    return True


@njit
def _advance(c, slot, window, silent):
    """Bring the rows up to the clock: end the stretch if this event does not belong to it, else fill its instants."""
    st = c.state[0]
    if st.active == 0:
        return
    if slot != st.slot:
        finish(c, st.clock, ROLL)
    elif window != st.window:
        finish(c, st.clock, SESSION)
    elif silent:
        finish(c, st.clock, GAP)
    elif c.grid > 0:
        while st.next_ts < st.clock:
            emit(c, st.next_ts)
            st.next_ts += c.grid


@njit
def trading(c, slot, ts_event):
    """Is the event inside the window looked at: stamped by the exchange and received in it? Past the holiday
    calendar's close it is so only after a trade that the exchange stamped there."""
    st, w = c.state[0], c.state[0].now
    if st.clock < c.windows.open[w] or 0 <= ts_event < c.windows.open[w]:
        return False
    if st.clock < c.windows.shut[w] or st.proven_open == w:
        return True
    if c.groups.trades[slot] > 0 and c.groups.traded_at[slot] >= c.windows.shut[w]:
        st.proven_open = w
        st.past_calendar_close += 1
        return True
    return False


@njit
def note_book(c, new, touched):
    """Take over the book of this event: counts for the report, imbalance against the event before."""
    st, now = c.state[0], c.book.now
    if touched and _differs(now, new):
        st.book_changes += 1
        if st.has_previous == 1:
            add_imbalance(c.book.ofi, now, new)
        now[:] = new
    inside = 1 if st.window >= 0 else 0
    bid, ask = new[PX, BID, 0], new[PX, ASK, 0]
    if bid == ABSENT_PX or ask == ABSENT_PX:
        st.one_sided += 1
        st.one_sided_in_session += inside
    elif bid >= ask:
        st.crossed += 1
        st.crossed_in_session += inside
    if bid != ABSENT_PX and (st.low_bid == ABSENT_PX or bid < st.low_bid):
        st.low_bid = bid
    if ask != ABSENT_PX and (st.high_ask == ABSENT_PX or ask > st.high_ask):
        st.high_ask = ask
    st.has_previous = 1


@njit
def _differs(a, b):
    for plane in range(3):
        for side in range(2):
            for k in range(LEVELS):
                if a[plane, side, k] != b[plane, side, k]:
                    return True
    return False


@njit
def add_imbalance(ofi, old, new):
    """ofi[k] += bid part - ask part of level k. An absent bid lies below every price, an absent ask above."""
    for k in range(LEVELS):
        b0, b1 = old[PX, BID, k], new[PX, BID, k]
        if b1 >= b0:
            ofi[k] += new[SZ, BID, k]
        if b1 <= b0:
            ofi[k] -= old[SZ, BID, k]
        a0, a1 = np.int64(old[PX, ASK, k]), np.int64(new[PX, ASK, k])
        if a0 == ABSENT_PX:
            a0 = _NO_ASK
        if a1 == ABSENT_PX:
            a1 = _NO_ASK
        if a1 <= a0:
            ofi[k] -= new[SZ, ASK, k]
        if a1 >= a0:
            ofi[k] += old[SZ, ASK, k]


@njit
def _take_event(c, slot, record):
    """The fields of the event and the trades of its group."""
    st, groups = c.state[0], c.groups
    st.ts_event = record.ts_event
    st.ts_recv = record.ts_recv
    st.source_row = record.source_row
    st.action = record.action
    st.side = record.side
    st.flags = record.flags
    st.depth = record.depth
    st.events += 1
    st.event_ends += 1
    st.buy += groups.buy[slot]
    st.sell += groups.sell[slot]
    st.trades += groups.trades[slot]
    st.trade_count += groups.trades[slot]
    st.trade_lots += groups.lots[slot]
    empty_group(c, slot)
