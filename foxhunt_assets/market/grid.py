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
import pyarrow as pa
from numba import njit

from foxhunt_assets.contracts.tables import ABSENT_PX, LEVELS, NO_SEGMENT
from foxhunt_assets.market.compiled import inlined
from foxhunt_assets.market.dbn import BATCH

# Longest silence inside a session that is still one segment. In the thinnest hour looked at (ES, Christmas night
# 2023) the longest pause after the open was 9.3 s; trading halts last minutes. A longer silence is missing data.
MAX_SILENCE = 60 * 10**9

ENDED_BY = ("session", "reset", "gap", "roll", "file")
# typed, because numba compiles a callee anew for each literal int
SESSION, RESET, GAP, ROLL, FILE = (np.int64(n) for n in range(len(ENDED_BY)))

NO_ERROR, BAD_HEADER, BAD_TICK, BAD_SIZE, BAD_TIME, BAD_ACTION, OVERFLOW, GROW, COVER = range(9)
BID, ASK = 0, 1
PX, SZ, CT = 0, 1, 2  # planes of a book: int32 [3, 2 sides, LEVELS]
BUY, SELL = ord("B"), ord("A")  # aggressor of a T record; on other records the side of the book
ALL_LEVELS = np.int64(2**LEVELS - 1)  # a set of levels is a bit mask, bit k for level k of either side
_INT32_MAX = 2**31 - 1
_NO_ASK = 2**31  # above every int32 price

MAX_SLOTS = 64  # kept instruments of a file; ES lists 21 outrights
MAX_WINDOWS = 8_192  # trading windows of a file: 30 years

# rows of `windows`: trading windows in order of time; LEAD: code of the lead contract, -1 for any
W_OPEN, W_CLOSE, W_SHUT, W_LEAD = range(4)
# columns of `slots`: what the event under way has brought, first and last event that counted, contract code, id
BOUGHT, SOLD, TRADES, LOTS, TRADED_AT, FIRST, LAST, CODE, ID = range(9)
# rows of `wide`, `narrow`, `octets` and `levels`: the columns of the output
WIDE = ("ts_event", "ts_recv", "ts", "source_row")
NARROW = ("buy_lots", "sell_lots", "n_trades", "n_events", "low_bid_px", "high_ask_px", "segment", "instrument_id")
OCTETS = ("action", "side", "flags", "depth")
PLANES = ("bid_px", "ask_px", "bid_sz", "ask_sz", "bid_ct", "ask_ct", "ofi")
OFI = 6

# places in `counts`, over all records: by action byte from 0, by flags byte, unmapped, snapshot
FLAGS_COUNT, UNMAPPED_COUNT, SNAPSHOT_COUNT = 256, 512, 513

_SCALARS = (
    "grid",  # ns; 0 for the event clock
    # the stretch under way
    "active", "window", "slot", "last_t", "next_ts", "segment", "row_start", "has_previous", "proven_open",
    # since the row before
    "buy", "sell", "trades", "events", "low_bid", "high_ask",
    # the last event
    "ts_event", "ts_recv", "source_row", "action", "side", "flags", "depth",
    # clock, window looked at, end of the last window, rows and segments in the output and so far, error
    "clock", "now", "covered", "n_out", "n_segments_out", "rows", "n_segments", "error",
    "stale",  # levels in which the standing book may differ from the latest one
    # counts for the report
    "event_ends", "book_changes", "crossed", "crossed_in_session", "one_sided", "one_sided_in_session",
    "trade_count", "trade_lots", "dropped_events", "dropped_trades", "past_calendar_close",
    "other_month", "suspect_events", "unproven_events", "inversions", "last_recv", "undefined_ts_event",
)  # fmt: skip
# Everything a pass carries from record to record and batch to batch, in one record: a compiled call then passes one
# pointer, where a tuple of arrays would cost reference counts that take longer than the book.
CLOCK = np.dtype(
    [
        *((name, np.int64) for name in _SCALARS),
        ("book", np.int32, (3, 2, LEVELS)),  # the standing book of the stretch
        ("ofi", np.int64, (LEVELS,)),  # its imbalance since the row before
        ("counts", np.int64, (SNAPSHOT_COUNT + 1,)),
        ("books", np.int32, (MAX_SLOTS, 3, 2, LEVELS)),  # the latest book of each instrument; of all of them in MBP-10
        ("words", np.int64, (LEVELS, 4)),  # what that one was made of: see book.read_levels
        ("slots", np.int64, (MAX_SLOTS, 9)),
        ("windows", np.int64, (4, MAX_WINDOWS)),
        ("wide", np.int64, (len(WIDE), BATCH)),
        ("narrow", np.int32, (len(NARROW), BATCH)),
        ("levels", np.int32, (len(PLANES), BATCH, LEVELS)),
        ("segments", np.int64, (BATCH, 5)),  # slot, window, row_start, row_end, ended_by
        ("octets", np.uint8, (len(OCTETS), BATCH)),
    ],
    align=True,
)


class Record(NamedTuple):
    """The fields of an event's last record that a row carries."""

    ts_event: np.int64
    ts_recv: np.int64
    source_row: np.int64
    action: np.int64
    side: np.int64
    flags: np.int64
    depth: np.int64


def new_clock(codes: list[int], ids: list[int], grid: int) -> np.ndarray:
    """A clock that has seen nothing, CLOCK [1]. codes, ids: contract code and id of each instrument. grid: ns."""
    clock = np.zeros(1, CLOCK)
    c = clock[0]
    c["grid"] = grid
    for name in ("window", "slot", "segment", "proven_open"):
        c[name] = -1
    for name in ("clock", "last_recv"):
        c[name] = -(2**63)
    c["book"][PX] = ABSENT_PX
    c["slots"][:, [FIRST, LAST]] = -1
    c["slots"][: len(codes), CODE] = codes
    c["slots"][: len(ids), ID] = ids
    return clock


def rows_of(clock: np.ndarray, schema: pa.Schema) -> pa.RecordBatch:
    """The output as a batch of BATCH rows that shares its memory; only the first n_out hold anything."""
    c = clock[0]
    column: dict[str, np.ndarray] = {}
    for names, arrays in ((WIDE, "wide"), (NARROW, "narrow"), (OCTETS, "octets"), (PLANES, "levels")):
        column |= zip(names, c[arrays], strict=True)
    return pa.RecordBatch.from_arrays([_array(f.type, column[f.name]) for f in schema], schema=schema)


def _array(kind: pa.DataType, values: np.ndarray) -> pa.Array:
    if pa.types.is_fixed_size_list(kind):
        inner = pa.Array.from_buffers(kind.value_type, values.size, [None, pa.py_buffer(values)])
        return pa.FixedSizeListArray.from_arrays(inner, type=kind)
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(values)])


def rows_per_event(grid: int) -> int:
    """Most rows one event can bring: a silence of MAX_SILENCE filled, and the row that ends a stretch."""
    return 2 if grid == 0 else MAX_SILENCE // grid + 3


@njit
def empty_group(c, slot):
    """Forget the records of the event under way."""
    for column in (BOUGHT, SOLD, TRADES, LOTS):
        c.slots[slot, column] = 0


@njit
def add_trade(c, slot, side, size, ts_event):
    """A T record: side is the aggressor's, N (an auction) counts as a trade of neither."""
    c.slots[slot, TRADES] += 1
    c.slots[slot, LOTS] += size
    c.slots[slot, TRADED_AT] = ts_event
    if side == BUY:
        c.slots[slot, BOUGHT] += size
    elif side == SELL:
        c.slots[slot, SOLD] += size


@njit
def emit(c, ts):
    """Write the standing book as a row at ts and start counting anew."""
    n = c.n_out
    if c.window >= 0 and c.segment < 0:
        c.segment = c.n_segments
        c.n_segments += 1
        c.row_start = c.rows
    if c.events == 0:  # nothing since the row before: the row's own book is all there is
        c.low_bid = c.book[PX, BID, 0]
        c.high_ask = c.book[PX, ASK, 0]
    segment = c.segment if c.window >= 0 else NO_SEGMENT
    c.wide[0, n], c.wide[1, n], c.wide[2, n], c.wide[3, n] = c.ts_event, c.ts_recv, ts, c.source_row
    c.narrow[0, n], c.narrow[1, n], c.narrow[2, n], c.narrow[3, n] = c.buy, c.sell, c.trades, c.events
    c.narrow[4, n], c.narrow[5, n], c.narrow[6, n], c.narrow[7, n] = c.low_bid, c.high_ask, segment, c.slots[c.slot, ID]
    c.octets[0, n], c.octets[1, n], c.octets[2, n], c.octets[3, n] = c.action, c.side, c.flags, c.depth
    for plane in range(3):  # plane by plane: ten neighbours are one vector copy
        for side in range(2):
            for k in range(LEVELS):
                c.levels[2 * plane + side, n, k] = c.book[plane, side, k]
    most = max(c.buy, c.sell)
    for k in range(LEVELS):
        c.levels[OFI, n, k] = c.ofi[k]
        most = max(most, abs(c.ofi[k]))
    if most > _INT32_MAX:
        c.error = OVERFLOW
    c.n_out += 1
    c.rows += 1
    start_count(c)


@njit
def start_count(c):
    """Zero what is counted since the row before."""
    c.buy = 0
    c.sell = 0
    c.trades = 0
    c.events = 0
    c.low_bid = ABSENT_PX
    c.high_ask = ABSENT_PX
    for k in range(LEVELS):
        c.ofi[k] = 0


@njit
def finish(c, before, reason):
    """End the stretch under way. Its last row is written if its instant lies before `before`; else what it would
    have held is dropped and counted (the book of that instant is another one)."""
    if c.active == 0:
        return
    if c.events > 0:
        if c.next_ts < before:
            emit(c, c.next_ts)
        else:
            c.dropped_events += c.events
            c.dropped_trades += c.trades
    if c.segment >= 0:
        m = c.n_segments_out
        c.segments[m, 0] = c.slot
        c.segments[m, 1] = c.window
        c.segments[m, 2] = c.row_start
        c.segments[m, 3] = c.rows
        c.segments[m, 4] = reason
        c.n_segments_out += 1
    c.active = 0
    c.segment = -1


@njit
def reset(c, slot, t):
    """The book of an instrument is void (R record, start of a new snapshot): its stretch ends."""
    c.dropped_trades += c.slots[slot, TRADES]
    empty_group(c, slot)
    if c.slot == slot:
        finish(c, t, RESET)


@njit
def suspect(c, slot):
    """The venue says the book may be wrong (MAYBE_BAD_BOOK): the event makes no row and ends the stretch."""
    c.suspect_events += 1
    _hold_back(c, slot)


@njit
def unproven(c, slot):
    """Orders from before the file may lie on the ten levels: the event makes no row and ends the stretch."""
    c.unproven_events += 1
    _hold_back(c, slot)


@njit
def _hold_back(c, slot):
    c.dropped_trades += c.slots[slot, TRADES]
    empty_group(c, slot)
    if c.slot == slot:
        finish(c, c.clock, GAP)


@inlined
def event_end(c, slot, record, new, touched):
    """One event of a kept instrument: write the grid rows before it, then apply it.

    new: its book, int32 [3, 2, LEVELS]. touched: levels in which `new` may differ from the call before.
    An event of another month than the lead is counted and makes no row.
    """
    t = c.clock
    c.stale = c.stale | touched if slot == c.slot else ALL_LEVELS
    while t >= c.windows[W_CLOSE, c.now]:
        c.now += 1
    lead = c.windows[W_LEAD, c.now]
    if lead >= 0 and lead != c.slots[slot, CODE]:
        c.other_month += 1
        empty_group(c, slot)
        return
    silent = c.active == 1 and t - c.last_t > MAX_SILENCE
    if silent:
        c.proven_open = -1
    window = c.now if trading(c, slot, record.ts_event) else -1
    _advance(c, slot, window, silent)
    if c.active == 0:
        c.active = 1
        c.window = window
        c.slot = slot
        c.next_ts = -(-t // c.grid) * c.grid if c.grid > 0 else t
        c.has_previous = 0
        start_count(c)
    note_book(c, new)
    c.last_t = t
    _take_event(c, slot, record)
    if c.grid == 0:
        emit(c, t)


@njit
def _advance(c, slot, window, silent):
    """Bring the rows up to the clock: end the stretch if this event does not belong to it, else fill its instants."""
    reason = np.int64(-1)
    if slot != c.slot:
        reason = ROLL
    elif window != c.window:
        reason = SESSION
    elif silent:
        reason = GAP
    if reason >= 0:
        finish(c, c.clock, reason)
    elif c.active == 1 and c.grid > 0:
        while c.next_ts < c.clock:
            emit(c, c.next_ts)
            c.next_ts += c.grid


@njit
def trading(c, slot, ts_event):
    """Is the event inside the window looked at: stamped by the exchange and received in it? Past the holiday
    calendar's close it is so only after a trade that the exchange stamped there."""
    w = c.now
    if c.clock < c.windows[W_OPEN, w] or 0 <= ts_event < c.windows[W_OPEN, w]:
        return False
    if c.clock < c.windows[W_SHUT, w] or c.proven_open == w:
        return True
    if c.slots[slot, TRADES] > 0 and c.slots[slot, TRADED_AT] >= c.windows[W_SHUT, w]:
        c.proven_open = w
        c.past_calendar_close += 1
        return True
    return False


@inlined
def note_book(c, new):
    """Take over the book of this event: counts for the report, imbalance against the event before."""
    changed = 0
    for k in range(LEVELS):
        if (c.stale >> k) & 1 and _differs(c.book, new, k):
            changed = 1
            if c.has_previous == 1:
                c.ofi[k] += imbalance(c.book, new, k)
            for plane in range(3):
                for side in range(2):
                    c.book[plane, side, k] = new[plane, side, k]
    c.stale = 0
    c.book_changes += changed
    inside = 1 if c.window >= 0 else 0
    bid, ask = new[PX, BID, 0], new[PX, ASK, 0]
    if bid == ABSENT_PX or ask == ABSENT_PX:
        c.one_sided += 1
        c.one_sided_in_session += inside
    elif bid >= ask:
        c.crossed += 1
        c.crossed_in_session += inside
    if bid != ABSENT_PX and (c.low_bid == ABSENT_PX or bid < c.low_bid):
        c.low_bid = bid
    if ask != ABSENT_PX and (c.high_ask == ABSENT_PX or ask > c.high_ask):
        c.high_ask = ask
    c.has_previous = 1


@inlined
def _differs(a, b, k):
    for plane in range(3):
        for side in range(2):
            if a[plane, side, k] != b[plane, side, k]:
                return True
    return False


@inlined
def imbalance(old, new, k):
    """Bid part - ask part of level k, 0 of equal ones. An absent bid lies below every price, an absent ask above."""
    e = np.int64(0)
    b0, b1 = old[PX, BID, k], new[PX, BID, k]
    if b1 >= b0:
        e += new[SZ, BID, k]
    if b1 <= b0:
        e -= old[SZ, BID, k]
    a0, a1 = np.int64(old[PX, ASK, k]), np.int64(new[PX, ASK, k])
    if a0 == ABSENT_PX:
        a0 = np.int64(_NO_ASK)
    if a1 == ABSENT_PX:
        a1 = np.int64(_NO_ASK)
    if a1 <= a0:
        e -= new[SZ, ASK, k]
    if a1 >= a0:
        e += old[SZ, ASK, k]
    return e


@inlined
def _take_event(c, slot, record):
    """The fields of the event and the trades of its group."""
    c.ts_event = record.ts_event
    c.ts_recv = record.ts_recv
    c.source_row = record.source_row
    c.action = record.action
    c.side = record.side
    c.flags = record.flags
    c.depth = record.depth
    c.events += 1
    c.event_ends += 1
    c.buy += c.slots[slot, BOUGHT]
    c.sell += c.slots[slot, SOLD]
    c.trades += c.slots[slot, TRADES]
    c.trade_count += c.slots[slot, TRADES]
    c.trade_lots += c.slots[slot, LOTS]
    empty_group(c, slot)
    if c.slots[slot, FIRST] < 0:
        c.slots[slot, FIRST] = c.clock
    c.slots[slot, LAST] = c.clock
