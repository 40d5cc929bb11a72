"""Ten levels of a book: read from an MBP-10 record, or rebuilt order by order from MBO records. Compiled.

Order rules (Databento MBO): R empties the book, A adds an order, M replaces its price and size, C takes size off
it; T, F and N change nothing, because the C or M after a fill takes the size off. A level is all orders at one
price. The book is a state the venue published only at a record with F_LAST.

Orders live in one open-addressing table (linear probing, backward-shift delete, so no tombstones), each asked for
some records before its turn, because most lie outside the core's own cache. The levels of a side lie in one sorted
array, best last, so that a change near the touch moves few elements and the ten best are its end.
Both grow between records.

A file that begins without a snapshot, or an instrument without a clear, lacks the orders that rested before it, and
those far from the touch may rest on for the whole file unseen. But a trade at a price proves that no older ask below
it and no older bid above it is left, and every order since is in the file. So the ten levels of both sides are known
where the tenth bid lies above the lowest price traded since the file began and the tenth ask below the highest, until
a clear or a snapshot makes the whole book known.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from foxhunt_assets.contracts.instruments import UNDEF_PRICE
from foxhunt_assets.contracts.tables import ABSENT_PX, LEVELS
from foxhunt_assets.market.compiled import inlined, prefetch
from foxhunt_assets.market.dbn import F_SNAPSHOT
from foxhunt_assets.market.grid import ALL_LEVELS, ASK, BAD_SIZE, BAD_TICK, BID, CT, MAX_SLOTS, NO_ERROR, PX, SZ

ORDER_ERRORS = ("unknown_modify", "unknown_cancel", "duplicate_add", "cancel_over_size", "add_unusable")
UNKNOWN_MODIFY, UNKNOWN_CANCEL, DUPLICATE_ADD, CANCEL_OVER_SIZE, ADD_UNUSABLE = range(len(ORDER_ERRORS))

WHOLE, LOST, PARTIAL = range(3)  # what is known of a book: all; nothing since MAYBE_BAD_BOOK; orders of the file
_EMPTY = -1
_MORE, _SAME, _LESS = np.int64(1), np.int64(0), np.int64(-1)  # orders of a level; typed so that one compile serves all
_ID, _SIDE_ROW, _KEY, _SIZE = range(4)  # columns of the order table
_LEVEL_KEY, _LEVEL_SIZE, _LEVEL_COUNT = range(3)
_MIX = np.uint64(0x9E3779B97F4A7C15)  # 2^64 / golden ratio: spreads consecutive order ids
_OVER_INT32 = np.int64(-0x7FFFFFFF80000000)  # the top bits of two uint32 side by side
_BINARY_FROM = 16  # deeper than this a level is found by halving, nearer by walking


MAX_TABLE = 1 << 21  # twice the live orders a file may hold at one time
MAX_DEPTH = 8_190  # price levels of one side

# All orders of all kept instruments in one record, because a compiled call then passes one pointer, where arrays would
# cost reference counts that take as long as the book. Only the parts in use are ever touched, so the rest costs no
# memory. A side row is 2 * slot + side. A price key is the price in ticks, negated for asks, so that the best level of
# either side has the greatest key.
ORDERS = np.dtype(
    [
        ("n_orders", np.int64),
        ("capacity", np.int64),  # rows of the table in use, a power of two
        ("n_levels", np.int64, (2 * MAX_SLOTS,)),
        ("touched", np.int64, (MAX_SLOTS,)),  # those of the ten best levels that may have changed since `top`, as bits
        ("in_snapshot", np.int64, (MAX_SLOTS,)),
        ("known", np.int64, (MAX_SLOTS,)),  # WHOLE, LOST or PARTIAL
        ("low_trade", np.int64, (MAX_SLOTS,)),  # prices traded since a PARTIAL book began, 1e-9 points
        ("high_trade", np.int64, (MAX_SLOTS,)),
        ("errors", np.int64, (len(ORDER_ERRORS),)),
        ("levels", np.int64, (2 * MAX_SLOTS, MAX_DEPTH, 3)),  # price key ascending, size, count
        ("table", np.int64, (MAX_TABLE, 4)),  # order id, side row (-1 empty), price key, size
    ]
)


def new_orders(capacity: int = 1 << 14) -> np.ndarray:
    """Empty books, ORDERS [1]. capacity: of the order table to begin with, a power of two."""
    orders = np.zeros(1, ORDERS)
    orders["touched"] = ALL_LEVELS
    orders["known"] = PARTIAL
    orders["low_trade"], orders["high_trade"] = 2**63 - 1, -(2**63)
    orders["capacity"] = capacity
    orders["table"][0, :capacity, _SIDE_ROW] = _EMPTY
    return orders


def grow(orders: np.ndarray) -> bool:
    """Twice the room for orders. False if there can be no more, or a side has no room for another level."""
    m = orders[0]
    capacity = int(m["capacity"])
    if m["n_levels"].max() + 1 >= MAX_DEPTH or 2 * capacity > MAX_TABLE:
        return False
    old = m["table"][:capacity].copy()
    m["capacity"] = 2 * capacity
    m["table"][: 2 * capacity, _SIDE_ROW] = _EMPTY
    _rehash(old, m)
    return True


def begin(orders: np.ndarray, flags: int) -> None:
    """The first record of a file, of any instrument: a snapshot there says that all books begin with it. A clear is of
    its own instrument alone."""
    if flags & F_SNAPSHOT:
        orders["known"] = WHOLE


@njit
def note_trade(m, slot, price):
    """A trade in a PARTIAL book, price in 1e-9 points."""
    if price != UNDEF_PRICE:
        m.low_trade[slot] = min(m.low_trade[slot], price)
        m.high_trade[slot] = max(m.high_trade[slot], price)


@njit
def knows_levels(m, slot, new, tick):
    """Whether no order from before the file can lie on the ten levels of `new`, int32 [3, 2, LEVELS]."""
    bid, ask = new[PX, BID, LEVELS - 1], new[PX, ASK, LEVELS - 1]
    there = bid != ABSENT_PX and ask != ABSENT_PX
    return there and bid * tick > m.low_trade[slot] and ask * tick < m.high_trade[slot]


@njit
def needs_room(m, slot):
    """True if one more order of this instrument might not fit."""
    deepest = max(m.n_levels[2 * slot], m.n_levels[2 * slot + 1])
    return m.n_orders * 2 >= m.capacity or deepest + 1 >= MAX_DEPTH


@inlined
def read_levels(words, i, tick, last, new):
    """Ten levels of MBP-10 record i into new, int32 [3, 2, LEVELS]; returns (error code, levels that were written).

    words: the records as int64 [n, w]. last: int64 [LEVELS, 4], the words that `new` was made of: bid price, ask
    price, sizes, counts of a level. A level whose words are the same is left alone, and most are. The code is
    BAD_TICK for a price off the tick, BAD_SIZE for a size or count over int32.
    """
    wrong, touched = NO_ERROR, np.int64(0)
    for k in range(LEVELS):
        at = 6 + 4 * k
        moved = np.int64(0)
        for w in range(4):
            moved |= words[i, at + w] ^ last[k, w]
        if moved == 0:
            continue
        touched |= 1 << k
        for w in range(4):
            last[k, w] = words[i, at + w]
        if (words[i, at + 2] | words[i, at + 3]) & _OVER_INT32:
            wrong = BAD_SIZE
        for side in range(2):
            price = words[i, at + side]
            ticks = price // tick
            new[SZ, side, k] = (words[i, at + 2] >> (32 * side)) & 0x7FFFFFFF
            new[CT, side, k] = (words[i, at + 3] >> (32 * side)) & 0x7FFFFFFF
            if price == UNDEF_PRICE:
                ticks = ABSENT_PX
                new[SZ, side, k] = 0
                new[CT, side, k] = 0
            elif ticks * tick != price or abs(ticks) >= -ABSENT_PX:
                wrong = BAD_TICK
            new[PX, side, k] = ticks
    return wrong, touched


@inlined
def top(m, slot, new):
    """The touched ones of the ten best levels into new, int32 [3, 2, LEVELS]. False if a size is over int32."""
    fits = True
    for side in range(2):
        row = 2 * slot + side
        n = m.n_levels[row]
        for k in range(LEVELS):
            if (m.touched[slot] >> k) & 1 == 0:
                continue
            j = n - 1 - k
            if j < 0:
                new[PX, side, k] = ABSENT_PX
                new[SZ, side, k] = 0
                new[CT, side, k] = 0
                continue
            key = m.levels[row, j, _LEVEL_KEY]
            new[PX, side, k] = key if side == BID else -key
            fits &= m.levels[row, j, _LEVEL_SIZE] <= 0x7FFFFFFF
            new[SZ, side, k] = m.levels[row, j, _LEVEL_SIZE]
            new[CT, side, k] = m.levels[row, j, _LEVEL_COUNT]
    return fits


@inlined
def depth_of(new, side, ticks):
    """Levels of `new` better than a price: the index of the level it touched; LEVELS if it lies beyond them."""
    for k in range(LEVELS):
        px = new[PX, side, k]
        if px == ABSENT_PX or (px <= ticks if side == BID else px >= ticks):
            return k
    return LEVELS


@njit
def add(m, slot, side, order_id, ticks, size):
    """A: a new order. An id already there is counted and replaced."""
    if not _place(m, slot, side, order_id, ticks, size):
        m.errors[DUPLICATE_ADD] += 1


@njit
def modify(m, slot, side, order_id, ticks, size):
    """M: price and size replaced. An unknown id is counted and added: the record says what the order is now."""
    if _place(m, slot, side, order_id, ticks, size):
        m.errors[UNKNOWN_MODIFY] += 1


@njit
def _place(m, slot, side, order_id, ticks, size):
    """Make an order what a record says it is now; True if it is new."""
    at = _find(m, order_id, slot)
    row, key = 2 * slot + side, ticks if side == BID else -ticks
    new = m.table[at, _SIDE_ROW] == _EMPTY
    if new:
        m.table[at, _ID] = order_id
        m.n_orders += 1
    elif m.table[at, _SIDE_ROW] == row and m.table[at, _KEY] == key:
        _change_level(m, slot, row, key, size - m.table[at, _SIZE], _SAME)
        m.table[at, _SIZE] = size
        return new
    else:
        _change_level(m, slot, m.table[at, _SIDE_ROW], m.table[at, _KEY], -m.table[at, _SIZE], _LESS)
    m.table[at, _SIDE_ROW] = row
    m.table[at, _KEY] = key
    m.table[at, _SIZE] = size
    _change_level(m, slot, row, key, size, _MORE)
    return new


@njit
def cancel(m, slot, order_id, size):
    """C: size off an order, which goes when none is left."""
    at = _find(m, order_id, slot)
    if m.table[at, _SIDE_ROW] == _EMPTY:
        m.errors[UNKNOWN_CANCEL] += 1
        return
    left = m.table[at, _SIZE] - size
    if left > 0:
        m.table[at, _SIZE] = left
        _change_level(m, slot, m.table[at, _SIDE_ROW], m.table[at, _KEY], -size, _SAME)
        return
    if left < 0:
        m.errors[CANCEL_OVER_SIZE] += 1
    _remove(m, slot, at)


@njit
def clear(m, slot):
    """R: no order of this instrument is left."""
    m.n_levels[2 * slot] = 0
    m.n_levels[2 * slot + 1] = 0
    m.touched[slot] = ALL_LEVELS
    m.known[slot] = WHOLE
    old = m.table[: m.capacity].copy()
    for at in range(len(old)):
        m.table[at, _SIDE_ROW] = _EMPTY
        if old[at, _SIDE_ROW] >> 1 == slot:
            old[at, _SIDE_ROW] = _EMPTY
    m.n_orders = _rehash(old, m)


@njit
def _hash(order_id, mask):
    mixed = np.uint64(order_id) * _MIX
    return np.int64((mixed >> np.uint64(32)) & np.uint64(mask))


@njit
def expect(m, order_id):
    """An order will soon be looked for: its place in the table comes into the cache meanwhile."""
    prefetch(m.table, _hash(order_id, m.capacity - 1))


@njit
def _find(m, order_id, slot):
    """Index of the order, or of the empty place where it would go."""
    mask = m.capacity - 1
    at = _hash(order_id, mask)
    while m.table[at, _SIDE_ROW] != _EMPTY:
        if m.table[at, _ID] == order_id and m.table[at, _SIDE_ROW] >> 1 == slot:
            return at
        at = (at + 1) & mask
    return at


@njit
def _remove(m, slot, at):
    """Take an order out of its level and close the hole: every later order of the run moves back if it may."""
    _change_level(m, slot, m.table[at, _SIDE_ROW], m.table[at, _KEY], -m.table[at, _SIZE], _LESS)
    m.n_orders -= 1
    mask = m.capacity - 1
    hole, at = at, (at + 1) & mask
    while m.table[at, _SIDE_ROW] != _EMPTY:
        home = _hash(m.table[at, _ID], mask)
        if ((at - home) & mask) >= ((at - hole) & mask):
            for column in range(4):
                m.table[hole, column] = m.table[at, column]
            hole = at
        at = (at + 1) & mask
    m.table[hole, _SIDE_ROW] = _EMPTY


@njit
def _rehash(old, m):
    """Put every order of `old` into the table, which is empty; returns how many."""
    mask, n = m.capacity - 1, 0
    for i in range(len(old)):
        if old[i, _SIDE_ROW] == _EMPTY:
            continue
        at = _hash(old[i, _ID], mask)
        while m.table[at, _SIDE_ROW] != _EMPTY:
            at = (at + 1) & mask
        for column in range(4):
            m.table[at, column] = old[i, column]
        n += 1
    return n


@njit
def _change_level(m, slot, row, key, size, count):
    """Add size and count to the level of a price; the level is made when missing and goes with its last order."""
    n = m.n_levels[row]
    j = _level_at_or_below(m, row, n, key)
    if j >= 0 and m.levels[row, j, _LEVEL_KEY] == key:
        m.levels[row, j, _LEVEL_SIZE] += size
        m.levels[row, j, _LEVEL_COUNT] += count
        touched = np.int64(1)
        if m.levels[row, j, _LEVEL_COUNT] == 0:
            for i in range(j, n - 1):
                _copy_level(m, row, i + 1, i)
            m.n_levels[row] = n - 1
            touched = ALL_LEVELS
    else:
        j += 1
        for i in range(n, j, -1):
            _copy_level(m, row, i - 1, i)
        m.levels[row, j, _LEVEL_KEY] = key
        m.levels[row, j, _LEVEL_SIZE] = size
        m.levels[row, j, _LEVEL_COUNT] = count
        m.n_levels[row] = n + 1
        n += 1
        touched = ALL_LEVELS
    if n - 1 - j < LEVELS:
        m.touched[slot] |= (touched << (n - 1 - j)) & ALL_LEVELS


@njit
def _copy_level(m, row, source, target):
    for part in range(3):
        m.levels[row, target, part] = m.levels[row, source, part]


@njit
def _level_at_or_below(m, row, n, key):
    """Index of the greatest key that is not above `key`, -1 if none."""
    j = n - 1
    if n > _BINARY_FROM and m.levels[row, n - _BINARY_FROM, _LEVEL_KEY] > key:
        low, high = -1, n - _BINARY_FROM
        while high - low > 1:
            mid = (low + high) >> 1
            if m.levels[row, mid, _LEVEL_KEY] > key:
                high = mid
            else:
                low = mid
        return low
    while j >= 0 and m.levels[row, j, _LEVEL_KEY] > key:
        j -= 1
    return j
