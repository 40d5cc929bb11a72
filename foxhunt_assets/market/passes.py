"""One compiled pass over the records of a file: check each header, route it to its instrument, feed book and clock.

The two loops (MBP-10 and MBO) share everything but where the fields lie and how the book comes about. `Decoder`
holds what a pass carries from batch to batch and turns its error codes into sentences.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import numpy as np
from numba import njit

from foxhunt_assets.contracts.instruments import UNDEF_PRICE, ContractFacts
from foxhunt_assets.errors import BadInput
from foxhunt_assets.market import book, calendar, grid
from foxhunt_assets.market.compiled import cached, inlined
from foxhunt_assets.market.dbn import (
    BATCH,
    F_LAST,
    F_MAYBE_BAD_BOOK,
    F_SNAPSHOT,
    FLAG_NAMES,
    RTYPES,
    Header,
    bad_record,
)
from foxhunt_assets.market.grid import FLAGS_COUNT, SNAPSHOT_COUNT, UNMAPPED_COUNT
from foxhunt_assets.market.roll import Selection

ACTIONS = "ACMRTFN"
_ADD, _CANCEL, _MODIFY, _CLEAR, _TRADE = (ord(a) for a in "ACMRT")
_KNOWN_ACTION = np.isin(np.arange(256), np.frombuffer(ACTIONS.encode(), np.uint8))
UNMAPPED, NOT_KEPT = -1, -2
_MBP10, _MBO = RTYPES["mbp-10"], RTYPES["mbo"]
_EARLIEST, _LATEST = (int(datetime(y, 1, 1, tzinfo=UTC).timestamp()) * 10**9 for y in (2000, 2100))
_WINDOWS_AHEAD = timedelta(60)
LONGEST_YEARS = 30  # from a file's first record to its last; each year more is a holiday calendar to build
_NEVER = 2**63 - 1
_AHEAD = 8  # records from asking for the place of an order to looking for it


# columns of `routes`, int64 [n, 5], sorted by id and start: what an instrument id means over [start, end) of
# ts_recv: index of a kept instrument or NOT_KEPT, and how many records came that way
R_ID, R_START, R_END, R_SLOT, R_RECORDS = range(5)


@njit
def _route(routes, instrument_id, t):
    """Row of routes of an instrument id at an instant, -1 if unmapped then."""
    low, high = 0, len(routes)
    while low < high:
        mid = (low + high) >> 1
        if routes[mid, R_ID] < instrument_id:
            low = mid + 1
        else:
            high = mid
    while low < len(routes) and routes[low, R_ID] == instrument_id:
        if routes[low, R_START] <= t < routes[low, R_END]:
            return low
        low += 1
    return -1


@njit
def _accept(c, routes, route, action, flags, ts_event, ts_recv):
    """Tally a record; returns the slot it goes to, or why it goes nowhere."""
    c.counts[action] += 1
    c.counts[FLAGS_COUNT + flags] += 1
    c.inversions += ts_recv < c.last_recv
    c.last_recv = ts_recv
    c.undefined_ts_event += ts_event == -1  # 2^64 - 1
    if route < 0:
        c.counts[UNMAPPED_COUNT] += 1
        return UNMAPPED
    routes[route, R_RECORDS] += 1
    slot = routes[route, R_SLOT]
    if slot >= 0 and flags & F_SNAPSHOT:
        c.counts[SNAPSHOT_COUNT] += 1
    return slot


@inlined
def _wrong(c, octets, i, rtype, action, ts_recv):
    """Why a record cannot be taken as it is: not the schema's, or past the trading windows known so far."""
    if octets[i, 0] * 4 != octets.shape[1] or octets[i, 1] != rtype:
        return grid.BAD_HEADER
    if not _EARLIEST <= ts_recv < c.covered:
        return grid.COVER
    return grid.NO_ERROR if _KNOWN_ACTION[action] else grid.BAD_ACTION


@cached(book, grid)
def mbp10_pass(clock, routes, octets, words, halves, first_row, tick, room, start):
    """Records start.. of a batch; returns (the next one to do, error code).

    octets, words, halves: the batch as uint8 [n, 8w], int64 [n, w], uint32 [n, 2w]; its first record is first_row of
    the file. It also comes back when more than `room` rows lie in the output.
    """
    c = clock[0]
    for i in range(start, len(words)):
        if c.n_out > room:
            return i, grid.NO_ERROR
        action, side, flags = octets[i, 28], octets[i, 29], octets[i, 30]
        ts_event, ts_recv, size = words[i, 1], words[i, 4], np.int64(halves[i, 6])
        wrong = _wrong(c, octets, i, _MBP10, action, ts_recv)
        if wrong:
            return i, wrong
        route = _route(routes, halves[i, 1], ts_recv)
        slot = _accept(c, routes, route, action, flags, ts_event, ts_recv)
        if slot < 0:
            continue
        if action == _CLEAR:
            grid.reset(c, slot, max(c.clock, ts_recv))
        if action == _CLEAR or flags & F_SNAPSHOT:
            continue
        c.clock = max(c.clock, ts_recv)
        if action == _TRADE and size > 0:
            grid.add_trade(c, slot, side, size, ts_event)
        if flags & F_MAYBE_BAD_BOOK:
            grid.suspect(c, slot)
        elif flags & F_LAST:
            wrong, touched = book.read_levels(words, i, tick, c.words, c.books[0])
            if wrong:
                return i, wrong
            record = grid.Record(
                ts_event, ts_recv, first_row + i, np.int64(action), np.int64(side), np.int64(flags),
                np.int64(octets[i, 31]),
            )  # fmt: skip
            grid.event_end(c, slot, record, c.books[0], touched)
    return len(words), c.error


@cached(book, grid)
def mbo_pass(clock, routes, octets, words, halves, first_row, tick, room, orders, start):
    """The same of MBO records. orders: ORDERS [1]."""
    c = clock[0]
    m = orders[0]
    for i in range(start, len(words)):
        if c.n_out > room:
            return i, grid.NO_ERROR
        book.expect(m, words[min(i + _AHEAD, len(words) - 1), 2])
        flags, action, side = octets[i, 36], octets[i, 38], octets[i, 39]
        ts_event, price, ts_recv = words[i, 1], words[i, 3], words[i, 5]
        size = np.int64(halves[i, 8])
        wrong = _wrong(c, octets, i, _MBO, action, ts_recv)
        if wrong:
            return i, wrong
        route = _route(routes, halves[i, 1], ts_recv)
        if route >= 0 and routes[route, R_SLOT] >= 0 and book.needs_room(m, routes[route, R_SLOT]):
            return i, grid.GROW
        slot = _accept(c, routes, route, action, flags, ts_event, ts_recv)
        if slot < 0:
            continue
        if action == _CLEAR or (flags & F_SNAPSHOT and m.in_snapshot[slot] == 0):
            book.clear(m, slot)  # a snapshot starts from nothing, with or without an R before it
            grid.reset(c, slot, max(c.clock, ts_recv))
        m.in_snapshot[slot] = 1 if flags & F_SNAPSHOT else 0
        if not _apply(m, slot, action, side, words[i, 2], price, size, tick):
            return i, grid.BAD_TICK
        if action == _CLEAR or flags & F_SNAPSHOT:
            continue
        c.clock = max(c.clock, ts_recv)
        if action == _TRADE and size > 0:
            grid.add_trade(c, slot, side, size, ts_event)
            if m.known[slot] == book.PARTIAL:
                book.note_trade(m, slot, price)
        if flags & F_MAYBE_BAD_BOOK:
            m.known[slot] = book.LOST
        if flags & F_LAST and m.known[slot] == book.LOST:
            grid.suspect(c, slot)
        elif flags & F_LAST:
            touched = m.touched[slot]
            fits = touched == 0 or book.top(m, slot, c.books[slot])
            if m.known[slot] == book.PARTIAL and not book.knows_levels(m, slot, c.books[slot], tick):
                grid.unproven(c, slot)
                continue
            if not fits:
                return i, grid.BAD_SIZE
            m.touched[slot] = 0
            record = grid.Record(
                ts_event, ts_recv, first_row + i, np.int64(action), np.int64(side), np.int64(flags),
                _depth(c.books[slot], action, side, price, tick),
            )  # fmt: skip
            grid.event_end(c, slot, record, c.books[slot], touched)
    return len(words), c.error


@njit
def _apply(m, slot, action, side, order_id, price, size, tick):
    """One MBO record on the book of its instrument. False if its price is off the tick."""
    if action == _CANCEL:
        book.cancel(m, slot, order_id, size)
    elif action == _ADD or action == _MODIFY:  # noqa: SIM109 (compiles to two compares)
        if price == UNDEF_PRICE or size == 0 or (side != grid.BUY and side != grid.SELL):
            m.errors[book.ADD_UNUSABLE] += 1
            return True
        ticks = price // tick
        if ticks * tick != price:
            return False
        which = grid.BID if side == grid.BUY else grid.ASK
        if action == _ADD:
            book.add(m, slot, which, order_id, ticks, size)
        else:
            book.modify(m, slot, which, order_id, ticks, size)
    return True


@inlined
def _depth(new, action, side, price, tick):
    """The level the record touched; 0 where it has no side or is a trade (whose side is the aggressor's)."""
    if action == _TRADE or price == UNDEF_PRICE or (side != grid.BUY and side != grid.SELL):
        return 0
    return book.depth_of(new, grid.BID if side == grid.BUY else grid.ASK, price // tick)


@cached(grid)
def _finish_file(clock):
    grid.finish(clock[0], _NEVER, grid.FILE)


class Decoder:
    """The pass over one file. `feed` each batch, `finish`, and between the yields take rows from `clock.rows`."""

    def __init__(self, path: Path, header: Header, facts: ContractFacts, selection: Selection, grid_ns: int):
        self.path, self.header, self.facts, self.selection = path, header, facts, selection
        self.dates: list[date] = []  # trade date of each window
        self.first_year = 0  # of the first record
        self.row = 0
        slots = len(selection.slots)
        if slots > grid.MAX_SLOTS:
            raise BadInput(f"{path}: {slots} outrights, more than {grid.MAX_SLOTS}; download fewer symbols a file")
        self.routes = _routes(header, selection)
        self.clock = grid.new_clock(
            [s.code for s in selection.slots], [s.instrument_id for s in selection.slots], grid_ns
        )
        self.orders = book.new_orders() if header.schema == "mbo" else None
        self._room = BATCH - grid.rows_per_event(grid_ns) - 2

    @property
    def counts(self) -> np.ndarray:
        return self.state["counts"]

    @property
    def state(self) -> np.void:
        return self.clock[0]

    def feed(self, records: np.ndarray) -> Iterator[None]:
        """Take a batch, uint8 [n, record size]; yields when the output is full. Empty it before going on."""
        at = 0
        if self.row == 0 and self.orders is not None and len(records):
            book.begin(self.orders, int(records[0].view(self.header.dtype)[0]["flags"]))
        while at < len(records):
            at, error = self._run(records, at)
            if error == grid.GROW:
                if self.orders is None or not book.grow(self.orders):
                    raise self._explain(error, self.row + at, records)
            elif error == grid.COVER:
                self._cover(self.row + at, records)
            elif error:
                raise self._explain(error, self.row + at, records)
            if self.state["n_out"] > self._room:
                yield
                self._emptied()
        self.row += len(records)

    def finish(self) -> Iterator[None]:
        """End the file; yields if that brought rows or a segment."""
        self.state["dropped_trades"] += self.state["slots"][:, grid.TRADES].sum()
        _finish_file(self.clock)
        if self.state["error"]:
            raise self._explain(int(self.state["error"]), self.row, np.zeros((0, 0), np.uint8))
        if self.state["n_out"] > 0 or self.state["n_segments_out"] > 0:
            yield
            self._emptied()

    def _run(self, records: np.ndarray, at: int) -> tuple[int, int]:
        views = (records, records.view(np.int64), records.view(np.uint32))
        common = (self.clock, self.routes, *views, self.row, self.facts.tick, self._room)
        if self.orders is None:
            return mbp10_pass(*common, at)
        return mbo_pass(*common, self.orders, at)

    def flag_counts(self) -> dict[str, int]:
        """Records that carry each flag."""
        by_flags = self.counts[FLAGS_COUNT:UNMAPPED_COUNT]
        return {name: int(by_flags[(np.arange(256) & bit) > 0].sum()) for bit, name in FLAG_NAMES.items()}

    def _emptied(self) -> None:
        self.state["n_out"] = 0
        self.state["n_segments_out"] = 0

    def _cover(self, row: int, records: np.ndarray) -> None:
        """Make the trading windows reach past a record. Windows are only ever added, so indices hold."""
        ts_recv = int(records[row - self.row].view(self.header.dtype)[0]["ts_recv"])
        if not _EARLIEST <= ts_recv < _LATEST:
            raise self._explain(grid.BAD_TIME, row, records)
        day = calendar.chicago_date(ts_recv)
        self.first_year = self.first_year or day.year
        if day.year - self.first_year > LONGEST_YEARS:
            raise BadInput(
                f"{self.path}: record {row}: received on {day}, over {LONGEST_YEARS} years after the first "
                f"({self.first_year}); the file is damaged: download it again"
            )
        start = day - timedelta(4)
        if self.dates:  # a silence of years needs no windows: no event will look at them
            start = max(start, self.dates[-1] + timedelta(1))
        new = calendar.windows(start, day + _WINDOWS_AHEAD)
        lead = [self.selection.lead_on(w.trade_date) for w in new]
        columns = ([w.open_ns for w in new], [w.close_ns for w in new], [w.shut_ns for w in new], lead)
        n = len(self.dates)
        self.dates += [w.trade_date for w in new]
        if len(self.dates) > grid.MAX_WINDOWS:
            raise BadInput(f"{self.path}: spans more than {grid.MAX_WINDOWS} trading windows; download shorter files")
        self.state["windows"][:, n : len(self.dates)] = columns
        self.state["covered"] = new[-1].close_ns

    def _explain(self, error: int, row: int, records: np.ndarray) -> BadInput:
        if error == grid.OVERFLOW:
            return BadInput(
                f"{self.path}: record {row}: a count over 2^31 - 1 in one row; choose a smaller data.grid_ms"
            )
        octets = records[row - self.row]
        record = octets.view(self.header.dtype)[0]
        if (int(octets[0]) * 4, int(octets[1])) != (len(octets), RTYPES[str(self.header.schema)]):
            return bad_record(self.path, self.header, row, octets)
        what = {
            grid.BAD_TICK: f"a price that is no multiple of the tick {self.facts.tick_points}; "
            f"is data.root {self.facts.root} the product of this file?",
            grid.BAD_SIZE: "a size or count over 2^31 - 1; the record is damaged: download the file again",
            grid.GROW: f"more than {book.MAX_TABLE // 2} live orders or {book.MAX_DEPTH} prices of one side; "
            "the file is damaged, or lacks the records that take orders off: download it again",
            grid.BAD_TIME: f"ts_recv {record['ts_recv']}, not between 2000 and 2100; download the file again",
            grid.BAD_ACTION: f"action {chr(record['action'])!r}, none of {ACTIONS}; download the file again",
        }[error]
        return BadInput(f"{self.path}: record {row}: {what}")


def _routes(header: Header, selection: Selection) -> np.ndarray:
    slot_of = {(s.symbol, s.instrument_id): n for n, s in enumerate(selection.slots)}
    rows = [
        (m.instrument_id, m.start_ns, m.end_ns, slot_of.get((m.symbol, m.instrument_id), NOT_KEPT), 0)
        for m in header.mappings
    ]
    return np.array(rows, np.int64).reshape(-1, 5)
