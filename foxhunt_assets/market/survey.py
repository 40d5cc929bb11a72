"""What lies in the records of a file, counted in one pass and independent of the decoder: any schema, any venue.

A `Chunk` is what every reader's records come down to; `Survey` counts chunks. Books are looked at where an event ends
(F_LAST), as the decoder does, but only their best prices.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np

from foxhunt_assets.contracts.instruments import UNDEF_PRICE
from foxhunt_assets.contracts.tables import ABSENT_PX, LEVELS
from foxhunt_assets.errors import BadInput
from foxhunt_assets.market import book
from foxhunt_assets.market.compiled import cached
from foxhunt_assets.market.dbn import F_LAST, F_MAYBE_BAD_BOOK, F_SNAPSHOT, FLAG_NAMES, Header, Mapping
from foxhunt_assets.market.grid import ASK, BID, BUY, PX, SELL
from foxhunt_assets.market.survey_sessions import EARLIEST, LATEST, Sessions

UNMAPPED = Mapping("unmapped", 0, 0, 0)
_ADD, _CANCEL, _MODIFY, _CLEAR, _TRADE = (ord(a) for a in "ACMRT")
_RESTING = (_ADD, _MODIFY)
_INT32_MAX = 2**31 - 1

RTYPES = {
    0: "trades", 1: "mbp-1", 10: "mbp-10", 18: "status", 19: "definition", 20: "imbalance", 21: "error",
    22: "symbol-mapping", 23: "system", 24: "statistics", 32: "ohlcv-1s", 33: "ohlcv-1m", 34: "ohlcv-1h",
    35: "ohlcv-1d", 36: "ohlcv-eod", 160: "mbo", 192: "cmbp-1", 195: "bbo-1s", 196: "bbo-1m",
}  # fmt: skip
_MBO, _BARS = 160, (32, 33, 34, 35, 36)
# bytes of the records whose fields are read (8 more with ts_out); of the others a receive time after the header
_SIZES = {0: 48, 1: 80, 10: 368, _MBO: 56, 195: 80, 196: 80, 32: 56, 33: 56, 34: 56, 35: 56, 36: 56}
_EVENTS = (0, 1, 10)  # action, side, flags and size lie where MBP-10 has them
_QUOTES = (1, 10, 195, 196)  # the best level lies where MBP-10 has it
_SAMPLES = (195, 196)  # a row is a sample, not an event


@dataclass(frozen=True)
class Chunk:
    """Records of one kind. ids: uint32 [n]. ts: int64 [n], the time its schema is ordered by (ts_recv where it has
    one). ts_event: uint64 [n]. action, side, flags: uint8 [n], size: int64 [n]; None where the schema has none.
    bid, ask: int64 [n] best prices after the record, 1e-9 points, UNDEF_PRICE where a side is empty; None likewise.
    ends: bool [n], where a book stands that the venue published. prices: int64 [n, k], to derive the tick from.
    wide: bool [n], where a size or count that counts is over 2^31 - 1."""

    kind: str
    ids: np.ndarray
    ts: np.ndarray
    ts_event: np.ndarray
    action: np.ndarray | None = None
    side: np.ndarray | None = None
    flags: np.ndarray | None = None
    size: np.ndarray | None = None
    bid: np.ndarray | None = None
    ask: np.ndarray | None = None
    ends: np.ndarray | None = None
    prices: np.ndarray | None = None
    wide: np.ndarray | None = None


class RecordChunks:
    """Chunks of DBN records, uint8 [n, length]. Keeps the books that MBO records build.

    unit: 1e-9 points of which every price is a multiple; 0 where it is not known and the first prices tell.
    """

    def __init__(self, unit: int = 0) -> None:
        self._orders = book.new_orders()
        self._slots: dict[int, int] = {}
        self.unit = unit
        self._begun = False
        self.unproven = 0  # event ends of books of which orders from before the file may be missing
        self.not_rebuilt = 0  # records of instruments beyond MAX_SLOTS or off the unit

    @property
    def order_errors(self) -> dict[str, int]:
        """Records that an order book could not take as they were."""
        return dict(zip(book.ORDER_ERRORS, self._orders["errors"][0].tolist(), strict=True))

    def of(self, octets: np.ndarray) -> Iterator[Chunk]:
        """One chunk for each stretch of records of one rtype."""
        cuts = [0, *(np.flatnonzero(np.diff(octets[:, 1].astype(np.int16))) + 1).tolist(), len(octets)]
        for a, b in pairwise(cuts):
            if a < b:
                yield self._chunk(octets[a:b], int(octets[a, 1]))

    def _chunk(self, octets: np.ndarray, rtype: int) -> Chunk:
        kind, size = RTYPES.get(rtype, f"rtype {rtype}"), octets.shape[1]
        if size % 8 or size < 24 or size - _SIZES.get(rtype, size) not in (0, 8):
            return _header_only(octets, f"{kind} of {size} bytes")
        words, halves = octets.view(np.int64), octets.view(np.uint32)
        common: dict[str, Any] = {"kind": kind, "ids": halves[:, 1], "ts_event": octets.view(np.uint64)[:, 1]}
        if rtype == _MBO:
            return self._mbo(octets, words, halves, common)
        if rtype in _BARS:
            return Chunk(**common, ts=words[:, 1])
        if rtype not in (*_EVENTS, *_QUOTES):
            return Chunk(**common, ts=words[:, 2])
        action, side, flags = octets[:, 28], octets[:, 29], octets[:, 30]
        common |= {"ts": words[:, 4], "side": side, "flags": flags, "size": halves[:, 6].astype(np.int64)}
        if rtype not in _SAMPLES:
            common["action"] = action
        common["wide"] = (action == _TRADE) & (common["size"] > _INT32_MAX)
        if rtype not in _QUOTES:
            return Chunk(**common, prices=words[:, 2:3])
        common |= {"bid": words[:, 6], "ask": words[:, 7]}
        ends = np.ones(len(words), bool) if rtype in _SAMPLES else event_ends(action, flags)
        levels = range(LEVELS if rtype == 10 else 1)
        # only the levels tell the tick, and only where they are a book: hidden orders trade between its multiples
        prices = np.concatenate([words[:, 6 + 4 * k : 8 + 4 * k] for k in levels], 1)
        sizes = np.concatenate([halves[:, 16 + 8 * k : 20 + 8 * k] for k in levels], 1)
        common["wide"] |= ends & (sizes > _INT32_MAX).any(axis=1)
        return Chunk(**common, ends=ends, prices=np.where(ends[:, None], prices, UNDEF_PRICE))

    def _mbo(self, octets: np.ndarray, words: np.ndarray, halves: np.ndarray, common: dict[str, Any]) -> Chunk:
        flags, action, side, price = octets[:, 36], octets[:, 38], octets[:, 39], words[:, 3]
        resting = np.isin(action, _RESTING) & np.isin(side, (BUY, SELL)) & (halves[:, 8] > 0)
        quoted = np.where(resting, price, UNDEF_PRICE)
        if self.unit == 0:
            self.unit = common_step(quoted, 0)
        slots = np.full(len(octets), -1, np.int64)
        for instrument in np.unique(halves[:, 1]).tolist():
            slot = self._slots.setdefault(instrument, len(self._slots))
            slots[halves[:, 1] == instrument] = slot if slot < book.MAX_SLOTS else -1
        best = np.full((len(octets), 2), UNDEF_PRICE, np.int64)
        ends, size = event_ends(action, flags), halves[:, 8].astype(np.int64)
        wide = (action == _TRADE) & (size > _INT32_MAX)
        new = np.zeros((3, 2, LEVELS), np.int32)
        at = 0
        if not self._begun:
            book.begin(self._orders, int(flags[0]))
            self._begun = True
        while at < len(octets):
            at, skipped, unproven, full = _best_prices(
                self._orders,
                slots,
                flags,
                action,
                side,
                words[:, 2],
                price,
                size,
                max(self.unit, 1),
                new,
                best,
                ends,
                wide,
                at,
            )
            self.not_rebuilt += skipped
            self.unproven += unproven
            if full and not book.grow(self._orders):
                raise BadInput(f"more than {book.MAX_TABLE // 2} live orders or {book.MAX_DEPTH} prices of one side")
        return Chunk(
            **common, ts=words[:, 5], action=action, side=side, flags=flags, size=size,
            bid=best[:, 0], ask=best[:, 1], ends=ends, prices=quoted[:, None], wide=wide,
        )  # fmt: skip


def _header_only(octets: np.ndarray, kind: str) -> Chunk:
    """Records of a length that is not their type's: nothing but the header can be read."""
    ids, ts = octets[:, 4:8].copy(), octets[:, 8:16].copy()
    return Chunk(kind, ids.view(np.uint32)[:, 0], ts.view(np.int64)[:, 0], ts.view(np.uint64)[:, 0])


def event_ends(action: np.ndarray, flags: np.ndarray) -> np.ndarray:
    """bool [n]: records that end an event with a book one may look at."""
    return ((flags & F_LAST) > 0) & ((flags & (F_SNAPSHOT | F_MAYBE_BAD_BOOK)) == 0) & (action != _CLEAR)


@cached(book)
def _best_prices(orders, slots, flags, action, side, order_id, price, size, unit, new, best, ends, wide, start):
    """Apply MBO records start.. and note the best prices after each that ends an event, and the levels that are too
    wide there; an event of a book that a gap has made void, or of which levels are not known yet, ends nothing.
    Returns (next record, how many could not be applied, events of levels not known, whether the books must grow
    first)."""
    m = orders[0]
    skipped = unproven = 0
    for i in range(start, len(flags)):
        slot = slots[i]
        if slot < 0:
            skipped += 1
            continue
        if book.needs_room(m, slot):
            return i, skipped, unproven, True
        if action[i] == _CLEAR or (flags[i] & F_SNAPSHOT and m.in_snapshot[slot] == 0):
            book.clear(m, slot)
        m.in_snapshot[slot] = 1 if flags[i] & F_SNAPSHOT else 0
        if action[i] == _CANCEL:
            book.cancel(m, slot, order_id[i], size[i])
        elif action[i] == _ADD or action[i] == _MODIFY:
            ticks = price[i] // unit
            if price[i] == UNDEF_PRICE or size[i] == 0 or (side[i] != BUY and side[i] != SELL):
                m.errors[book.ADD_UNUSABLE] += 1
            elif ticks * unit != price[i] or abs(ticks) >= -ABSENT_PX:
                skipped += 1
            elif action[i] == _ADD:
                book.add(m, slot, BID if side[i] == BUY else ASK, order_id[i], ticks, size[i])
            else:
                book.modify(m, slot, BID if side[i] == BUY else ASK, order_id[i], ticks, size[i])
        if action[i] == _CLEAR or flags[i] & F_SNAPSHOT:
            continue
        if action[i] == _TRADE and size[i] > 0 and m.known[slot] == book.PARTIAL:
            book.note_trade(m, slot, price[i])
        if flags[i] & F_MAYBE_BAD_BOOK:
            m.known[slot] = book.LOST
        if ends[i] and m.known[slot] == book.LOST:
            ends[i] = False
        elif ends[i]:
            fits = book.top(m, slot, new)
            if m.known[slot] == book.PARTIAL and not book.knows_levels(m, slot, new, unit):
                unproven += 1
                ends[i] = False
                continue
            if not fits:
                wide[i] = True
            for which in range(2):
                if new[PX, which, 0] != ABSENT_PX:
                    best[i, which] = np.int64(new[PX, which, 0]) * unit
    return len(flags), skipped, unproven, False


def common_step(prices: np.ndarray, step: int) -> int:
    """Greatest step of which all prices and `step` are multiples, 1e-9 points; 0 of nothing."""
    known = prices[prices != UNDEF_PRICE]
    odd = known % step if step else known
    odd = odd[odd != 0]
    return int(np.gcd.reduce(np.unique(np.abs(odd)), initial=step)) if len(odd) else step


@dataclass
class Tally:
    """What was seen of one instrument. spreads: ask - bid, 1e-9 points -> event ends. wide: records with a size or
    count over 2^31 - 1. events_in: trading window (its opening second) or UTC day -> event ends."""

    records: int = 0
    trades: int = 0
    lots: int = 0
    events: int = 0
    crossed: int = 0
    locked: int = 0
    one_sided: int = 0
    step: int = 0
    wide: int = 0
    first: int = LATEST
    last: int = -1
    spreads: dict[int, int] = field(default_factory=dict)
    events_in: dict[int, int] = field(default_factory=dict)

    def add(self, chunk: Chunk, rows: np.ndarray, window: np.ndarray) -> None:
        """Count the rows (indices) of a chunk. window: int64 [n] of the whole chunk, see `Sessions.place`."""
        self.records += len(rows)
        self.first, self.last = min(self.first, int(chunk.ts[rows].min())), max(self.last, int(chunk.ts[rows].max()))
        if chunk.prices is not None:
            self.step = common_step(chunk.prices[rows].ravel(), self.step)
        if chunk.action is not None and chunk.size is not None:
            sizes = chunk.size[rows][chunk.action[rows] == _TRADE]
            self.trades += int((sizes > 0).sum())
            self.lots += int(sizes.sum())
        if chunk.wide is not None:
            self.wide += int(chunk.wide[rows].sum())
        if chunk.bid is not None and chunk.ask is not None and chunk.ends is not None:
            at = rows[chunk.ends[rows]]
            self._add_books(chunk.bid[at], chunk.ask[at])
            _add_counts(self.events_in, window[at][window[at] >= 0])

    def _add_books(self, bid: np.ndarray, ask: np.ndarray) -> None:
        both = (bid != UNDEF_PRICE) & (ask != UNDEF_PRICE)
        spread = ask[both] - bid[both]
        self.events += len(bid)
        self.one_sided += int((~both).sum())
        self.crossed += int((spread < 0).sum())
        self.locked += int((spread == 0).sum())
        _add_counts(self.spreads, spread[spread > 0])


def _add_counts(counts: dict[int, int], values: np.ndarray) -> None:
    for value, n in zip(*(v.tolist() for v in np.unique(values, return_counts=True)), strict=True):
        counts[value] = counts.get(value, 0) + n


class Survey:
    """The counts over all chunks of a file."""

    def __init__(self, header: Header, globex: bool, gap_ns: int):
        self.tallies: dict[Mapping, Tally] = {}
        self.kinds: dict[str, int] = {}
        self.actions = np.zeros(256, np.int64)
        self.flags = np.zeros(8, np.int64)
        self.records = self.snapshots = self.inversions = self.bad_times = self.undefined_ts_event = 0
        self.sessions = Sessions(globex, gap_ns)
        self.first = self.latest = -1  # time of the first record, and the latest of all
        self._last = 0
        self._mappings: dict[int, list[Mapping]] = {}
        for mapping in header.mappings:
            self._mappings.setdefault(mapping.instrument_id, []).append(mapping)

    def add(self, chunk: Chunk) -> None:
        """Count a chunk."""
        self.records += len(chunk.ts)
        self.kinds[chunk.kind] = self.kinds.get(chunk.kind, 0) + len(chunk.ts)
        self.undefined_ts_event += int((chunk.ts_event == np.uint64(2**64 - 1)).sum())
        live = np.ones(len(chunk.ts), bool)
        if chunk.action is not None:
            self.actions += np.bincount(chunk.action, minlength=256)
        if chunk.flags is not None:
            for bit in range(8):
                self.flags[bit] += int(((chunk.flags >> bit) & 1).sum())
            live = (chunk.flags & F_SNAPSHOT) == 0
            self.snapshots += int((~live).sum())
        timed = (chunk.ts >= EARLIEST) & (chunk.ts < LATEST)
        self.bad_times += int((~timed).sum())
        if timed.any():
            self.inversions += int((np.diff(chunk.ts[timed], prepend=self._last) < 0).sum())
            self._last = int(chunk.ts[timed][-1])
            self.first = self.first if self.first >= 0 else int(chunk.ts[timed][0])
            self.latest = max(self.latest, int(chunk.ts[timed].max()))
        live &= timed
        window = np.full(len(chunk.ts), -1)
        if live.any():
            traded = np.zeros(len(chunk.ts), bool) if chunk.action is None else chunk.action == _TRADE
            window[live] = self.sessions.place(chunk.ts[live], chunk.ts_event[live], traded[live])
            self.sessions.add(chunk.ts[live], window[live], _crossed(chunk)[live])
        for mapping, rows in self._by_instrument(chunk, timed):
            self.tallies.setdefault(mapping, Tally()).add(chunk, rows, window)

    def _by_instrument(self, chunk: Chunk, timed: np.ndarray) -> Iterator[tuple[Mapping, np.ndarray]]:
        left = timed.copy()
        for instrument in np.unique(chunk.ids[timed]).tolist():
            its = left & (chunk.ids == instrument)
            for mapping in self._mappings.get(instrument, ()):
                rows = its & (chunk.ts >= mapping.start_ns) & (chunk.ts < mapping.end_ns)
                if rows.any():
                    yield mapping, np.flatnonzero(rows)
                    left &= ~rows
        if left.any():
            yield UNMAPPED, np.flatnonzero(left)

    def action_counts(self) -> dict[str, int]:
        """By letter; a byte that is none as its number."""
        seen = np.flatnonzero(self.actions).tolist()
        return {(chr(a) if 32 < a < 127 else f"byte {a}"): int(self.actions[a]) for a in seen}

    def flag_counts(self) -> dict[str, int]:
        """By name, of all flags that are set somewhere."""
        counts = {name: int(self.flags[bit.bit_length() - 1]) for bit, name in FLAG_NAMES.items()}
        return {name: n for name, n in counts.items() if n}


def _crossed(chunk: Chunk) -> np.ndarray:
    """bool [n]: event ends whose book is crossed or locked."""
    if chunk.bid is None or chunk.ask is None or chunk.ends is None:
        return np.zeros(len(chunk.ts), bool)
    both = (chunk.bid != UNDEF_PRICE) & (chunk.ask != UNDEF_PRICE)
    return chunk.ends & both & (chunk.bid >= chunk.ask)
