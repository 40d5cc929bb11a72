"""One compiled pass over the records of a file: check each header, route it to its instrument, feed book and clock.

The two loops (MBP-10 and MBO) share everything but where the fields lie and how the book comes about. `Decoder`
holds what a pass carries from batch to batch and turns its error codes into sentences.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import numpy as np
from numba import njit

from foxhunt_assets.contracts.instruments import UNDEF_PRICE, ContractFacts
from foxhunt_assets.errors import BadInput
from foxhunt_assets.market import book, calendar, grid
from foxhunt_assets.market.dbn import (
    BATCH,
    F_LAST,
    F_MAYBE_BAD_BOOK,
    F_SNAPSHOT,
    Header,
    bad_record,
)
from foxhunt_assets.market.roll import ANY, Selection, lead_contract

ACTIONS = "ACMRTFN"
_ADD, _CANCEL, _MODIFY, _CLEAR, _TRADE = (ord(a) for a in "ACMRT")
_KNOWN_ACTION = np.isin(np.arange(256), np.frombuffer(ACTIONS.encode(), np.uint8))
UNMAPPED, NOT_KEPT = -1, -2
_EARLIEST, _LATEST = (int(datetime(y, 1, 1, tzinfo=UTC).timestamp()) * 10**9 for y in (2000, 2100))
_WINDOWS_AHEAD = timedelta(60)
_NEVER = 2**63 - 1


class Routes(NamedTuple):
    """What an instrument id means over [start, end) of ts_recv, sorted by id and start: int64 [n] each.

    slot: index of a kept instrument, or NOT_KEPT. records: how many came that way.
    """

    ids: np.ndarray
    start: np.ndarray
    end: np.ndarray
    slot: np.ndarray
    records: np.ndarray
    code: np.ndarray  # contract code, a row a slot


class Counts(NamedTuple):
    """Over all records of the file: int64 [256], [8 bits], [1], [1]."""

    action: np.ndarray
    flag: np.ndarray
    unmapped: np.ndarray
    snapshot: np.ndarray


class Source(NamedTuple):
    """One batch of records three ways, and where it starts: uint8 [n, 8w], int64 [n, w], uint32 [n, 2w]."""

    octets: np.ndarray
    words: np.ndarray
    halves: np.ndarray
    first_row: int
    tick: int
    room: int  # a pass comes back when more output rows than this are written


def _cached(*called: ModuleType) -> Callable:
    """njit with a cache on disk that also notices edits of the modules a loop calls into: numba's own stamp sees
    only the file of the loop, so theirs goes into the name."""
    digest = hashlib.sha256(b"".join(Path(str(m.__file__)).read_bytes() for m in called)).hexdigest()[:12]

    def wrap(function: Callable) -> Callable:
        function.__qualname__ += "_" + digest
        return njit(cache=True)(function)

    return wrap


@njit
def _route(routes, instrument_id, t):
    """Index into routes of an instrument id at an instant, -1 if unmapped then."""
    low, high = 0, len(routes.ids)
    while low < high:
        mid = (low + high) >> 1
        if routes.ids[mid] < instrument_id:
            low = mid + 1
        else:
            high = mid
    while low < len(routes.ids) and routes.ids[low] == instrument_id:
        if routes.start[low] <= t < routes.end[low]:
            return low
        low += 1
    return -1


@njit
def _fail(st, error, row):
    st.error = error
    st.error_row = row


@njit
def _count(c, counts, routes, at, action, flags, ts_event, ts_recv):
    """Tally a record; returns the slot it goes to, or a negative reason."""
    st = c.state[0]
    counts.action[action] += 1
    for bit in range(8):
        counts.flag[bit] += (flags >> bit) & 1
    if ts_recv < st.last_recv:
        st.inversions += 1
    st.last_recv = ts_recv
    if ts_event == -1:  # 2^64 - 1: undefined
        st.undefined_ts_event += 1
    if at < 0:
        counts.unmapped[0] += 1
        return UNMAPPED
    routes.records[at] += 1
    return routes.slot[at]


@_cached(book, grid)
def mbp10_pass(c, counts, routes, src, raw, new, start):
    """Records start.. of a batch; returns the next one to do. raw, new: see book.read_levels."""
    st = c.state[0]
    want = len(src.words[0]) * 2
    for i in range(start, len(src.words)):
        if st.n_out > src.room:
            return i
        octets, words, halves = src.octets[i], src.words[i], src.halves[i]
        row = src.first_row + i
        action, side, flags, ts_event, ts_recv = octets[28], octets[29], octets[30], words[1], words[4]
        if octets[0] != want or octets[1] != 10:
            _fail(st, grid.BAD_HEADER, row)
            return i
        if not _KNOWN_ACTION[action]:
            _fail(st, grid.BAD_ACTION, row)
            return i
        at = _route(routes, halves[1], ts_recv)
        slot = _count(c, counts, routes, at, action, flags, ts_event, ts_recv)
        if slot < 0:
            continue
        if action == _CLEAR:
            grid.reset(c, slot, max(st.clock, ts_recv))
            continue
        if flags & F_SNAPSHOT:
            counts.snapshot[0] += 1
            continue
        st.clock = max(st.clock, ts_recv)
        if action == _TRADE and halves[6] > 0:
            grid.add_trade(c, slot, side, np.int64(halves[6]), ts_event)
        if flags & F_MAYBE_BAD_BOOK:
            grid.suspect(c, slot, st.clock)
        elif flags & F_LAST:
            wrong = book.read_levels(src.words, src.halves, i, src.tick, raw, new[0])
            if wrong > 0:
                _fail(st, grid.BAD_TICK if wrong == 1 else grid.BAD_SIZE, row)
                return i
            record = grid.Record(ts_event, ts_recv, row, action, side, flags, octets[31])
            grid.event_end(c, routes.code[slot], slot, record, new[0], True)
    return len(src.words)


@_cached(book, grid)
def mbo_pass(c, counts, routes, src, orders, new, start):
    """Records start.. of a batch; returns the next one to do. new: int32 [slots, 3, 2, LEVELS]."""
    st = c.state[0]
    want = len(src.words[0]) * 2
    for i in range(start, len(src.words)):
        if st.n_out > src.room:
            return i
        octets, words, halves = src.octets[i], src.words[i], src.halves[i]
        row = src.first_row + i
        flags, action, side, ts_event, ts_recv = octets[36], octets[38], octets[39], words[1], words[5]
        if octets[0] != want or octets[1] != 160:
            _fail(st, grid.BAD_HEADER, row)
            return i
        if not _KNOWN_ACTION[action]:
            _fail(st, grid.BAD_ACTION, row)
            return i
        at = _route(routes, halves[1], ts_recv)
        if at >= 0 and routes.slot[at] >= 0 and book.needs_room(orders, routes.slot[at]):
            _fail(st, grid.GROW, row)
            return i
        slot = _count(c, counts, routes, at, action, flags, ts_event, ts_recv)
        if slot < 0:
            continue
        if not _apply(c, orders, slot, action, side, flags, words[2], words[3], np.int64(halves[8]), src.tick, ts_recv):
            _fail(st, grid.BAD_TICK, row)
            return i
        if flags & F_SNAPSHOT:
            counts.snapshot[0] += 1
            continue
        if action == _CLEAR:
            continue
        st.clock = max(st.clock, ts_recv)
        if action == _TRADE and halves[8] > 0:
            grid.add_trade(c, slot, side, np.int64(halves[8]), ts_event)
        if flags & F_MAYBE_BAD_BOOK:
            orders.void[slot] = 1
        if flags & F_LAST:
            record = grid.Record(ts_event, ts_recv, row, action, side, flags, 0)
            if not _mbo_event(c, routes.code[slot], orders, slot, record, words[3], new, src.tick):
                _fail(st, grid.BAD_SIZE, row)
                return i
    return len(src.words)


@njit
def _apply(c, orders, slot, action, side, flags, order_id, price, size, tick, ts_recv):
    """One MBO record on the book. False if its price is off the tick."""
    snapshot = flags & F_SNAPSHOT
    if action == _CLEAR or (snapshot and orders.in_snapshot[slot] == 0):  # a snapshot starts from nothing
        book.clear(orders, slot)
        orders.void[slot] = 0
        grid.reset(c, slot, max(c.state[0].clock, ts_recv))
    orders.in_snapshot[slot] = 1 if snapshot else 0
    if action == _CANCEL:
        book.cancel(orders, slot, order_id, size)
    elif action in (_ADD, _MODIFY):
        if price == UNDEF_PRICE or size == 0 or (side != grid.BUY and side != grid.SELL):
            orders.errors[book.ADD_UNUSABLE] += 1
            return True
        ticks = price // tick
        if ticks * tick != price:
            return False
        which = grid.BID if side == grid.BUY else grid.ASK
        if action == _ADD:
            book.add(orders, slot, which, order_id, ticks, size)
        else:
            book.modify(orders, slot, which, order_id, ticks, size)
    return True


@njit
def _mbo_event(c, code, orders, slot, record, price, new, tick):
    """The end of an MBO event. False if a size does not fit."""
    st = c.state[0]
    if orders.void[slot] == 1:
        grid.suspect(c, slot, st.clock)
        return True
    touched = orders.touched[slot] == 1
    if touched:
        if not book.top(orders, slot, new[slot]):
            return False
        orders.touched[slot] = 0
    depth = 0
    if record.action != _TRADE and price != UNDEF_PRICE and (record.side == grid.BUY or record.side == grid.SELL):
        depth = book.depth_of(new[slot], grid.BID if record.side == grid.BUY else grid.ASK, price // tick)
    placed = grid.Record(
        record.ts_event, record.ts_recv, record.source_row, record.action, record.side, record.flags, depth
    )
    grid.event_end(c, code, slot, placed, new[slot], touched or slot != st.slot)
    return True


@njit(cache=True)
def _finish_file(c):
    grid.finish(c, _NEVER, grid.FILE)


class Decoder:
    """The pass over one file. `feed` each batch, `finish`, and between the yields take rows from `clock.rows`."""

    def __init__(self, path: Path, header: Header, facts: ContractFacts, selection: Selection, grid_ns: int):
        slots = len(selection.slots)
        self.path, self.header, self.facts, self.selection = path, header, facts, selection
        self.dates: list[date] = []  # trade date of each window
        self.row = 0
        self.routes = _routes(header, selection)
        self.counts = Counts(*(np.zeros(n, np.int64) for n in (256, 8, 1, 1)))
        self.orders = book.new_orders(slots) if header.schema == "mbo" else None
        self._raw = np.zeros((2, grid.LEVELS), np.int64)
        self._new = np.stack([grid.empty_levels() for _ in range(max(slots, 1))])
        self._new[:, grid.PX] = 0  # what a raw price of 0 is in ticks, see book.read_levels
        self._room = BATCH - grid.rows_per_event(grid_ns) - 2
        none = np.zeros(0, np.int64)
        self.clock = grid.Clock(
            grid.new_state(), grid.new_book(), grid.new_rows(BATCH), grid.new_groups(slots),
            grid.Windows(none, none, none, none), grid.new_spans(slots), grid_ns,
        )  # fmt: skip

    @property
    def state(self) -> np.void:
        return self.clock.state[0]

    def feed(self, records: np.ndarray) -> Iterator[None]:
        """Take a batch, uint8 [n, record size]; yields whenever rows lie in the output. Empty them before going on."""
        words = records.view(np.int64)
        self._cover(words[:, 4 if self.header.schema == "mbp-10" else 5], records)
        source = Source(records, words, records.view(np.uint32), self.row, self.facts.tick, self._room)
        at = 0
        while at < len(records):
            at = self._run(source, at)
            error = int(self.state["error"])
            if error == grid.GROW and self.orders is not None:
                self.orders = book.grow(self.orders)
                self.state["error"] = grid.NO_ERROR
            elif error:
                raise self._explain(error, int(self.state["error_row"]), records)
            if self.state["n_out"] > 0 or self.state["n_segments_out"] > 0:
                yield
                self._emptied()
        self.row += len(records)

    def finish(self) -> Iterator[None]:
        """End the file; yields if that brought rows or a segment."""
        self.state["dropped_trades"] += self.clock.groups.trades.sum()
        _finish_file(self.clock)
        if self.state["error"]:
            raise self._explain(int(self.state["error"]), int(self.state["error_row"]), np.zeros((0, 0), np.uint8))
        if self.state["n_out"] > 0 or self.state["n_segments_out"] > 0:
            yield
            self._emptied()

    def _run(self, source: Source, at: int) -> int:
        if self.orders is None:
            return mbp10_pass(self.clock, self.counts, self.routes, source, self._raw, self._new, at)
        return mbo_pass(self.clock, self.counts, self.routes, source, self.orders, self._new, at)

    def _emptied(self) -> None:
        self.state["n_out"] = 0
        self.state["n_segments_out"] = 0

    def _cover(self, ts_recv: np.ndarray, records: np.ndarray) -> None:
        """Make the trading windows reach past the batch. Windows are only ever added, so indices hold."""
        bad = np.flatnonzero((ts_recv < _EARLIEST) | (ts_recv >= _LATEST))
        if len(bad):
            raise self._explain(grid.BAD_TIME, self.row + int(bad[0]), records)
        until = calendar.chicago_date(int(ts_recv.max())) + timedelta(5)
        start = (
            self.dates[-1] + timedelta(1) if self.dates else calendar.chicago_date(int(ts_recv.min())) - timedelta(4)
        )
        if self.dates and self.dates[-1] >= until:
            return
        new = calendar.windows(start, until + _WINDOWS_AHEAD)
        lead = [lead_contract(w.trade_date, self.facts).code if self.selection.by_roll else ANY for w in new]
        columns = ([w.open_ns for w in new], [w.close_ns for w in new], [w.shut_ns for w in new], lead)
        grown = (np.concatenate([a, np.array(b, np.int64)]) for a, b in zip(self.clock.windows, columns, strict=True))
        self.dates += [w.trade_date for w in new]
        self.clock = self.clock._replace(windows=grid.Windows(*grown))

    def _explain(self, error: int, row: int, records: np.ndarray) -> BadInput:
        if error == grid.OVERFLOW:
            return BadInput(
                f"{self.path}: record {row}: a count over 2^31 - 1 in one row; choose a smaller data.grid_ms"
            )
        octets = records[row - self.row]
        record = octets.view(self.header.dtype)[0]
        if error == grid.BAD_HEADER:
            return bad_record(self.path, self.header, row, octets)
        what = {
            grid.BAD_TICK: f"a price that is no multiple of the tick {self.facts.tick_points}; "
            f"is data.root {self.facts.root} the product of this file?",
            grid.BAD_SIZE: "a size or count over 2^31 - 1; the record is damaged: download the file again",
            grid.BAD_TIME: f"ts_recv {record['ts_recv']}, not between 2000 and 2100; download the file again",
            grid.BAD_ACTION: f"action {chr(record['action'])!r}, none of {ACTIONS}; download the file again",
        }[error]
        return BadInput(f"{self.path}: record {row}: {what}")


def _routes(header: Header, selection: Selection) -> Routes:
    slot_of = {(s.symbol, s.instrument_id): n for n, s in enumerate(selection.slots)}
    rows = [
        (m.instrument_id, m.start_ns, m.end_ns, slot_of.get((m.symbol, m.instrument_id), NOT_KEPT))
        for m in header.mappings
    ]
    columns = np.array(rows, np.int64).reshape(-1, 4).T
    codes = np.array([s.code for s in selection.slots], np.int64)
    return Routes(*(np.ascontiguousarray(c) for c in columns), np.zeros(len(rows), np.int64), codes)
