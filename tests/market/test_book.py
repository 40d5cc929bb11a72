"""The order book against a plain dict, on random orders and on the real hour."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest

from foxhunt_assets.contracts.instruments import UNDEF_PRICE
from foxhunt_assets.contracts.tables import ABSENT_PX, LEVELS
from foxhunt_assets.market import book
from foxhunt_assets.market.dbn import DbnReader
from foxhunt_assets.market.grid import ALL_LEVELS, ASK, BAD_SIZE, BAD_TICK, BID, NO_ERROR, PX, SZ
from tests.market import made_dbn as made


class PlainBook:
    """Orders in a dict, levels summed anew at each reading: slow and obvious."""

    def __init__(self) -> None:
        self.orders: dict[int, tuple[int, int, int]] = {}  # id -> side, ticks, size

    def apply(self, action: str, side: int, order: int, ticks: int, size: int) -> None:
        if action in "AM":
            self.orders[order] = (side, ticks, size)
        elif action == "C" and order in self.orders:
            kept_side, kept_ticks, kept = self.orders[order]
            if kept > size:
                self.orders[order] = (kept_side, kept_ticks, kept - size)
            else:
                del self.orders[order]
        elif action == "R":
            self.orders.clear()

    def levels(self) -> np.ndarray:
        out = np.zeros((3, 2, LEVELS), np.int64)
        out[PX] = ABSENT_PX
        for side, best_first in ((BID, -1), (ASK, 1)):
            at: dict[int, list[int]] = defaultdict(list)
            for s, ticks, size in self.orders.values():
                if s == side:
                    at[ticks].append(size)
            for k, ticks in enumerate(sorted(at, key=lambda t: t * best_first)[:LEVELS]):
                out[:, side, k] = ticks, sum(at[ticks]), len(at[ticks])
        return out


def compiled_levels(orders: np.ndarray, slot: int) -> np.ndarray:
    new = np.zeros((3, 2, LEVELS), np.int32)
    touched = int(orders["touched"][0, slot])
    orders["touched"][0, slot] = ALL_LEVELS
    assert book.top(orders[0], slot, new)
    orders["touched"][0, slot] = touched
    return new


def apply(orders: np.ndarray, slot: int, action: str, side: int, order: int, ticks: int, size: int) -> np.ndarray:
    marks = orders[0]
    while book.needs_room(marks, slot):
        assert book.grow(orders)
    if action == "A":
        book.add(marks, slot, side, order, ticks, size)
    elif action == "M":
        book.modify(marks, slot, side, order, ticks, size)
    elif action == "C":
        book.cancel(marks, slot, order, size)
    else:
        book.clear(marks, slot)
    return orders


@pytest.mark.parametrize("spread_of_ids", [1, 2**40 + 1])
def test_random_orders_of_two_instruments_match_the_dict(spread_of_ids: int) -> None:
    rng = np.random.default_rng(11)
    orders, plain = book.new_orders(capacity=16), [PlainBook(), PlainBook()]
    for step in range(6_000):
        slot = int(rng.integers(2))
        order, size = int(rng.integers(400)) * spread_of_ids, int(rng.integers(1, 9))
        side, ticks = int(rng.integers(2)), int(rng.integers(-60, 60))
        action = "ACM"[rng.integers(3)] if rng.random() > 0.0005 else "R"
        if action == "A" and order in plain[slot].orders:
            action = "M"
        orders = apply(orders, slot, action, side, order, ticks, size)
        plain[slot].apply(action, side, order, ticks, size)
        if step % 7 == 0:
            for s in range(2):
                assert (compiled_levels(orders, s) == plain[s].levels()).all(), (step, s)
    assert orders["n_orders"][0] == sum(len(p.orders) for p in plain) > 300
    assert orders["capacity"][0] > 16, "it has grown"


def test_a_side_without_room_for_another_price_is_told() -> None:
    orders = book.new_orders()
    orders["n_levels"][0, ASK] = book.MAX_DEPTH - 1
    assert book.needs_room(orders[0], 0) and not book.grow(orders)


def test_a_level_that_is_not_touched_has_not_changed() -> None:
    rng = np.random.default_rng(5)
    orders, before = book.new_orders(), None
    untouched = alone = 0
    for _ in range(4_000):
        args = ("ACM"[rng.integers(3)], BID, int(rng.integers(300)), int(rng.integers(60)), int(rng.integers(1, 5)))
        orders["touched"] = 0
        orders = apply(orders, 0, *args)
        now = compiled_levels(orders, 0)
        touched = int(orders["touched"][0, 0])
        if before is not None:
            left = [k for k in range(LEVELS) if not touched >> k & 1]
            assert (now[:, :, left] == before[:, :, left]).all()
            untouched += touched == 0
            alone += touched.bit_count() == 1
        before = now
    assert untouched > 500 and alone > 100


def test_records_that_do_not_fit_the_book_are_counted() -> None:
    orders = book.new_orders()
    orders = apply(orders, 0, "C", BID, 1, 100, 1)  # never seen
    orders = apply(orders, 0, "M", BID, 2, 100, 5)  # never seen: added
    orders = apply(orders, 0, "A", BID, 2, 101, 6)  # there already: replaced
    orders = apply(orders, 0, "A", ASK, 3, 103, 4)
    orders = apply(orders, 0, "C", ASK, 3, 103, 9)  # more than it holds
    errors = dict(zip(book.ORDER_ERRORS, orders["errors"][0].tolist(), strict=True))
    assert errors == {
        "unknown_modify": 1, "unknown_cancel": 1, "duplicate_add": 1, "cancel_over_size": 1, "add_unusable": 0,
    }  # fmt: skip
    levels = compiled_levels(orders, 0)
    assert levels[:, BID, 0].tolist() == [101, 6, 1] and levels[PX, ASK, 0] == ABSENT_PX


def test_a_level_size_over_int32_is_told() -> None:
    orders = apply(book.new_orders(), 0, "A", BID, 1, 100, 2**31)
    assert not book.top(orders[0], 0, np.zeros((3, 2, LEVELS), np.int32))


@pytest.mark.parametrize(("ticks", "index"), [(100, 0), (101, 0), (99, 1), (91, 9), (90, 10)])
def test_depth_is_the_index_of_the_level_touched(ticks: int, index: int) -> None:
    new = np.zeros((3, 2, LEVELS), np.int32)
    new[PX, BID] = 100 - np.arange(LEVELS)
    assert book.depth_of(new, BID, ticks) == index
    new[PX, ASK] = -(100 - np.arange(LEVELS))
    assert book.depth_of(new, ASK, -ticks) == index


def levels_of(record: np.ndarray, tick: int = made.TICK) -> tuple[int, np.ndarray]:
    last, new = np.zeros((LEVELS, 4), np.int64), np.zeros((3, 2, LEVELS), np.int32)
    words = record.view(np.uint8).reshape(1, -1).view(np.int64)
    wrong, touched = book.read_levels(words, 0, tick, last, new)
    assert touched == ALL_LEVELS and book.read_levels(words, 0, tick, last, new)[1] == 0
    return wrong, new


def test_mbp10_levels_lie_where_the_format_says() -> None:
    record = made.mbp(made.ns("2024-03-01T15:00:00"))
    for i, field in enumerate(("bid_px", "ask_px", "bid_sz", "ask_sz", "bid_ct", "ask_ct")):
        record["levels"][field] = (1000 * (i + 1) + np.arange(10)) * (made.TICK if field.endswith("px") else 1)
    wrong, new = levels_of(record)
    assert wrong == NO_ERROR
    for k in range(10):
        assert new[:, BID, k].tolist() == [1000 + k, 3000 + k, 5000 + k]
        assert new[:, ASK, k].tolist() == [2000 + k, 4000 + k, 6000 + k]


def test_an_absent_level_has_no_price_size_or_count() -> None:
    record = made.mbp(0, bid=None)
    record["levels"]["bid_sz"] = 7  # a size without a price means nothing
    wrong, new = levels_of(record)
    assert wrong == NO_ERROR
    assert (new[PX, BID] == ABSENT_PX).all() and not new[SZ:, BID].any() and new[PX, ASK, 0] == 20_001


@pytest.mark.parametrize(("price", "expect"), [(-300_000_000, BAD_TICK), (-250_000_000, NO_ERROR), (100, BAD_TICK)])
def test_prices_off_the_tick_are_told_and_never_rounded(price: int, expect: int) -> None:
    record = made.mbp(0)
    record["levels"]["bid_px"][0, 3] = price
    wrong, new = levels_of(record)
    assert wrong == expect and (expect == BAD_TICK or new[PX, BID, 3] == -1)


@pytest.mark.parametrize("field", ["bid_sz", "ask_ct"])
def test_an_undefined_size_is_not_minus_one(field: str) -> None:
    record = made.mbp(0)
    record["levels"][field][0, 2] = 2**32 - 1
    assert levels_of(record)[0] == BAD_SIZE


@pytest.mark.slow
def test_the_real_hour_at_sampled_event_ends_equals_the_dict(real_data: Path) -> None:
    """Every record through both; the ten levels compared at each 97th event end and around the open."""
    with DbnReader(real_data / "nautilus_trader/esh4-glbx-mdp3-20231225.mbo.dbn.zst") as reader:
        records = np.concatenate([b.copy() for b in reader.batches()]).view(reader.header.dtype).ravel()
    orders, plain, ends, compared = book.new_orders(), PlainBook(), 0, 0
    for action, side, order, price, size, flags in records[
        ["action", "side", "order_id", "price", "size", "flags"]
    ].tolist():
        if chr(action) in "ACM":
            which, ticks = (BID if side == ord("B") else ASK), price // made.TICK
            assert price != UNDEF_PRICE and ticks * made.TICK == price
            orders = apply(orders, 0, chr(action), which, order, ticks, size)
            plain.apply(chr(action), which, order, ticks, size)
        if flags & 128:
            ends += 1
            if ends % 97 == 0 or 870 < ends < 930:
                assert (compiled_levels(orders, 0) == plain.levels()).all(), ends
                compared += 1
    assert ends == 47_022 and compared == 542 and not orders["errors"].any()
