"""Ten levels of a book: read from an MBP-10 record, or rebuilt order by order from MBO records. Compiled.

Order rules (Databento MBO): R empties the book, A adds an order, M replaces its price and size, C takes size off
it; T, F and N change nothing, because the C or M after a fill takes the size off. A level is all orders at one
price. The book is a state the venue published only at a record with F_LAST.

Orders live in one open-addressing table (linear probing, backward-shift delete, so no tombstones); the levels of a
side in one sorted array, best last, so that a change near the touch moves few elements and the ten best are its end.
Both grow between records.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from foxhunt_assets.contracts.instruments import UNDEF_PRICE
from foxhunt_assets.contracts.tables import ABSENT_PX, LEVELS
from foxhunt_assets.market.grid import BID, CT, PX, SZ

ORDER_ERRORS = ("unknown_modify", "unknown_cancel", "duplicate_add", "cancel_over_size", "add_unusable")
UNKNOWN_MODIFY, UNKNOWN_CANCEL, DUPLICATE_ADD, CANCEL_OVER_SIZE, ADD_UNUSABLE = range(len(ORDER_ERRORS))

_EMPTY = -1
_ID, _SIDE_ROW, _KEY, _SIZE = range(4)  # columns of the order table
_MIX = np.uint64(0x9E3779B97F4A7C15)  # 2^64 / golden ratio: spreads consecutive order ids
_BINARY_FROM = 16  # deeper than this a level is found by halving, nearer by walking


class Orders(NamedTuple):
    """All orders and levels of all kept instruments. A side row is 2 * slot + side.

    table: int64 [capacity, 4]: order id, side row (-1 empty), price key, size. A price key is the price in ticks,
    negated for asks, so that the best level of either side has the greatest key. level_key, level_size, level_count:
    int64 [2 * slots, depth], ascending keys. n_levels: int64 [2 * slots]. n_orders, errors: int64.
    touched: int64 [slots], 1 if the ten best levels may have changed since `top`. in_snapshot: int64 [slots].
    void: int64 [slots], 1 after MAYBE_BAD_BOOK until the book is rebuilt.
    """

    table: np.ndarray
    level_key: np.ndarray
    level_size: np.ndarray
    level_count: np.ndarray
    n_levels: np.ndarray
    n_orders: np.ndarray
    errors: np.ndarray
    touched: np.ndarray
    in_snapshot: np.ndarray
    void: np.ndarray


def new_orders(slots: int, capacity: int = 1 << 14, depth: int = 1 << 10) -> Orders:
    """Empty books. capacity: of the order table, a power of two."""
    table = np.full((capacity, 4), _EMPTY, np.int64)
    levels = [np.zeros((2 * slots, depth), np.int64) for _ in range(3)]
    per_slot = [np.zeros(slots, np.int64) for _ in range(2)]
    errors = np.zeros(len(ORDER_ERRORS), np.int64)
    ones = np.ones(slots, np.int64)
    return Orders(table, *levels, np.zeros(2 * slots, np.int64), np.zeros(1, np.int64), errors, ones, *per_slot)


def grow(orders: Orders) -> Orders:
    """The same books with twice the room in whatever is nearly full."""
    if orders.n_orders[0] * 2 >= len(orders.table):
        table = np.full((2 * len(orders.table), 4), _EMPTY, np.int64)
        _rehash(orders.table, table)
        orders = orders._replace(table=table)
    if orders.n_levels.max() + 1 >= orders.level_key.shape[1]:
        wider = {f: _widen(getattr(orders, f)) for f in ("level_key", "level_size", "level_count")}
        orders = orders._replace(**wider)
    return orders


def _widen(levels: np.ndarray) -> np.ndarray:
    return np.concatenate([levels, np.zeros_like(levels)], axis=1)


@njit
def needs_room(orders, slot):
    """True if one more order of this instrument might not fit."""
    deepest = max(orders.n_levels[2 * slot], orders.n_levels[2 * slot + 1])
    return orders.n_orders[0] * 2 >= len(orders.table) or deepest + 1 >= orders.level_key.shape[1]


@njit
def read_levels(words, halves, i, tick, raw, new):
    """Ten levels of MBP-10 record i into new, int32 [3, 2, LEVELS].

    words: the records as int64 [n, w]; halves: as uint32 [n, 2w]. raw: int64 [2, LEVELS], the prices `new` was made
    of last time (a level whose price did not move needs no division). Returns 0, 1 for a price off the tick, 2 for a
    size or count over int32.
    """
    worst = 0
    for k in range(LEVELS):
        for side in range(2):
            price = words[i, 6 + 4 * k + side]
            if price != raw[side, k]:
                raw[side, k] = price
                ticks = price // tick
                if price == UNDEF_PRICE:
                    ticks = ABSENT_PX
                elif ticks * tick != price or abs(ticks) >= -ABSENT_PX:
                    worst = max(worst, 1)
                    ticks = ABSENT_PX
                    raw[side, k] = 0
                new[PX, side, k] = ticks
            absent = price == UNDEF_PRICE
            size = halves[i, 16 + 8 * k + side]
            count = halves[i, 18 + 8 * k + side]
            if size > 0x7FFFFFFF or count > 0x7FFFFFFF:
                worst = 2
            new[SZ, side, k] = 0 if absent else size
            new[CT, side, k] = 0 if absent else count
    return worst


@njit
def top(orders, slot, new):
    """Ten best levels of both sides into new, int32 [3, 2, LEVELS]. False if a size is over int32."""
    fits = True
    for side in range(2):
        row = 2 * slot + side
        n = orders.n_levels[row]
        for k in range(LEVELS):
            j = n - 1 - k
            if j < 0:
                new[PX, side, k] = ABSENT_PX
                new[SZ, side, k] = 0
                new[CT, side, k] = 0
                continue
            key = orders.level_key[row, j]
            new[PX, side, k] = key if side == BID else -key
            fits &= orders.level_size[row, j] <= 0x7FFFFFFF
            new[SZ, side, k] = orders.level_size[row, j]
            new[CT, side, k] = orders.level_count[row, j]
    return fits


@njit
def depth_of(new, side, ticks):
    """Levels of `new` better than a price: the index of the level it touched; LEVELS if it lies beyond them."""
    for k in range(LEVELS):
        px = new[PX, side, k]
        if px == ABSENT_PX or (px <= ticks if side == BID else px >= ticks):
            return k
    return LEVELS


@njit
def add(orders, slot, side, order_id, ticks, size):
    """A: a new order. An id already there is counted and replaced."""
    row = 2 * slot + side
    at = _find(orders.table, order_id, slot)
    if orders.table[at, _SIDE_ROW] != _EMPTY:
        orders.errors[DUPLICATE_ADD] += 1
        _remove(orders, slot, at)
        at = _find(orders.table, order_id, slot)
    key = ticks if side == BID else -ticks
    orders.table[at, _ID] = order_id
    orders.table[at, _SIDE_ROW] = row
    orders.table[at, _KEY] = key
    orders.table[at, _SIZE] = size
    orders.n_orders[0] += 1
    _change_level(orders, slot, row, key, size, 1)


@njit
def modify(orders, slot, side, order_id, ticks, size):
    """M: price and size replaced. An unknown id is counted and added: the record says what the order is now."""
    at = _find(orders.table, order_id, slot)
    if orders.table[at, _SIDE_ROW] == _EMPTY:
        orders.errors[UNKNOWN_MODIFY] += 1
    else:
        _remove(orders, slot, at)
    add(orders, slot, side, order_id, ticks, size)


@njit
def cancel(orders, slot, order_id, size):
    """C: size off an order, which goes when none is left."""
    at = _find(orders.table, order_id, slot)
    if orders.table[at, _SIDE_ROW] == _EMPTY:
        orders.errors[UNKNOWN_CANCEL] += 1
        return
    left = orders.table[at, _SIZE] - size
    if left > 0:
        orders.table[at, _SIZE] = left
        _change_level(orders, slot, orders.table[at, _SIDE_ROW], orders.table[at, _KEY], -size, 0)
        return
    if left < 0:
        orders.errors[CANCEL_OVER_SIZE] += 1
    _remove(orders, slot, at)


@njit
def clear(orders, slot):
    """R: no order of this instrument is left."""
    orders.n_levels[2 * slot] = 0
    orders.n_levels[2 * slot + 1] = 0
    orders.touched[slot] = 1
    kept = orders.table[(orders.table[:, _SIDE_ROW] != _EMPTY) & (orders.table[:, _SIDE_ROW] // 2 != slot)]
    orders.table[:, _SIDE_ROW] = _EMPTY
    orders.n_orders[0] = len(kept)
    _rehash(kept, orders.table)


@njit
def _hash(order_id, slot, mask):
    mixed = (np.uint64(order_id) + np.uint64(slot)) * _MIX
    return np.int64((mixed >> np.uint64(32)) & np.uint64(mask))


@njit
def _find(table, order_id, slot):
    """Index of the order, or of the empty place where it would go."""
    mask = len(table) - 1
    at = _hash(order_id, slot, mask)
    while table[at, _SIDE_ROW] != _EMPTY:
        if table[at, _ID] == order_id and table[at, _SIDE_ROW] >> 1 == slot:
            return at
        at = (at + 1) & mask
    return at


@njit
def _remove(orders, slot, at):
    """Take an order out of its level and close the hole: every later order of the run moves back if it may."""
    table = orders.table
    _change_level(orders, slot, table[at, _SIDE_ROW], table[at, _KEY], -table[at, _SIZE], -1)
    orders.n_orders[0] -= 1
    mask = len(table) - 1
    hole, at = at, (at + 1) & mask
    while table[at, _SIDE_ROW] != _EMPTY:
        home = _hash(table[at, _ID], table[at, _SIDE_ROW] >> 1, mask)
        if ((at - home) & mask) >= ((at - hole) & mask):
            table[hole] = table[at]
            hole = at
        at = (at + 1) & mask
    table[hole, _SIDE_ROW] = _EMPTY


@njit
def _rehash(old, table):
    mask = len(table) - 1
    for i in range(len(old)):
        if old[i, _SIDE_ROW] == _EMPTY:
            continue
        at = _hash(old[i, _ID], old[i, _SIDE_ROW] >> 1, mask)
        while table[at, _SIDE_ROW] != _EMPTY:
            at = (at + 1) & mask
        table[at] = old[i]


@njit
def _change_level(orders, slot, row, key, size, count):
    """Add size and count to the level of a price; the level is made when missing and goes with its last order."""
    keys, sizes, counts = orders.level_key[row], orders.level_size[row], orders.level_count[row]
    n = orders.n_levels[row]
    j = _level_at_or_below(keys, n, key)
    if j >= 0 and keys[j] == key:
        sizes[j] += size
        counts[j] += count
        if counts[j] == 0:
            for i in range(j, n - 1):
                keys[i], sizes[i], counts[i] = keys[i + 1], sizes[i + 1], counts[i + 1]
            orders.n_levels[row] = n - 1
    else:
        j += 1
        for i in range(n, j, -1):
            keys[i], sizes[i], counts[i] = keys[i - 1], sizes[i - 1], counts[i - 1]
        keys[j], sizes[j], counts[j] = key, size, count
        orders.n_levels[row] = n + 1
        n += 1
    if n - 1 - j < LEVELS:
        orders.touched[slot] = 1


@njit
def _level_at_or_below(keys, n, key):
    """Index of the greatest key that is not above `key`, -1 if none."""
    j = n - 1
    if n > _BINARY_FROM and keys[n - _BINARY_FROM] > key:
        low, high = -1, n - _BINARY_FROM
        while high - low > 1:
            mid = (low + high) >> 1
            if keys[mid] > key:
                high = mid
            else:
                low = mid
        return low
    while j >= 0 and keys[j] > key:
        j -= 1
    return j
