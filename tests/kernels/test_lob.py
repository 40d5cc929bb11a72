"""Fills and liquidity memory against worked orders and a lot-by-lot account of plain Python integers."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from foxhunt_assets.contracts.tables import ABSENT_PX
from kernels.lob import op
from tests.kernels.cases.market import new_memory

GONE = (op.ABSENT, 0)


def _book(levels):
    """(px, sz), each int32 [1, L], of (price, size) pairs."""
    px, sz = zip(*levels)
    return torch.tensor([px], dtype=torch.int32), torch.tensor([sz], dtype=torch.int32)


def _fill(lots, levels, force=False, side=1):
    px, sz = _book(levels)
    order = torch.tensor([side]), torch.tensor([lots])
    got = op.fill(*order, px, sz, torch.tensor([force]))
    return {name: x[0].tolist() for name, x in got._asdict().items()}


def test_the_absent_price_is_the_contracts():
    assert op.ABSENT == ABSENT_PX


ASKS = [(20001, 3), (20002, 5), (20005, 2), GONE]


def test_an_order_inside_the_touch():
    got = _fill(2, ASKS)
    assert (got["filled"], got["tick_lots"], got["levels_consumed"]) == (2, 40002, 1)
    assert got["per_level"] == [2, 0, 0, 0] and got["forced_rest"] == 0


def test_an_order_walks_the_levels():
    got = _fill(9, ASKS)
    assert (got["filled"], got["tick_lots"]) == (9, 3 * 20001 + 5 * 20002 + 20005)
    assert got["per_level"] == [3, 5, 1, 0] and got["levels_consumed"] == 3


def test_what_the_book_does_not_hold_is_cancelled():
    got = _fill(14, ASKS)
    assert (got["filled"], got["per_level"], got["forced_rest"]) == (10, [3, 5, 2, 0], 0)


def test_a_forced_order_fills_its_rest_at_the_deepest_price():
    got = _fill(14, ASKS, force=True)
    assert (got["filled"], got["forced_rest"]) == (14, 4)
    assert got["tick_lots"] == 3 * 20001 + 5 * 20002 + 6 * 20005
    assert got["per_level"] == [3, 5, 2, 0] and got["levels_consumed"] == 3


def test_a_forced_order_meets_a_book_already_taken():
    got = _fill(2, [(-8, 0), (-9, 0)], force=True, side=-1)  # present prices, nothing left at them
    assert (got["filled"], got["tick_lots"], got["forced_rest"]) == (2, -18, 2)
    assert (got["per_level"], got["levels_consumed"]) == ([0, 0], 2)


def test_nothing_fills_on_an_empty_side_or_without_an_order():
    nothing = {"filled": 0, "tick_lots": 0, "per_level": [0, 0], "levels_consumed": 0, "forced_rest": 0}
    assert _fill(5, [GONE, GONE], force=True) == nothing
    assert _fill(5, [(7, 9), GONE], force=True, side=0) == nothing
    assert _fill(0, [(7, 9), GONE], force=True) == nothing
    assert _fill(-3, [(7, 9), GONE], force=True) == nothing


def test_a_size_at_an_absent_price_is_not_there():
    got = _fill(5, [(7, 2), (op.ABSENT, 9)])
    assert (got["filled"], got["tick_lots"], got["per_level"]) == (2, 14, [2, 0])


def test_sums_do_not_wrap_at_32_bits():
    got = _fill(4_000_000_000, [(2**31 - 1, 2**31 - 1), (2**31 - 1, 2**31 - 1)])
    assert got["filled"] == 4_000_000_000 and got["tick_lots"] == 4_000_000_000 * (2**31 - 1)


def _slow_fill(side, lots, levels, force):
    """One lot at a time."""
    left, cost, per_level, deepest = (lots if side else 0), 0, [0] * len(levels), 0
    present = [i for i, (price, _) in enumerate(levels) if price != op.ABSENT]
    for i in present:
        while left and per_level[i] < levels[i][1]:
            left, cost, deepest = left - 1, cost + levels[i][0], i + 1
            per_level[i] += 1
    rest = left if force and present and side else 0
    if rest:
        deepest = present[-1] + 1
        cost += rest * levels[deepest - 1][0]
    filled = sum(per_level) + rest
    return {
        "filled": filled,
        "tick_lots": cost,
        "per_level": per_level,
        "levels_consumed": deepest,
        "forced_rest": rest,
    }


LEVELS = 10
SIDES = st.integers(0, LEVELS).flatmap(
    lambda n: st.tuples(
        st.lists(st.integers(-40, 40), min_size=n, max_size=n, unique=True).map(sorted),
        st.lists(st.integers(0, 6), min_size=n, max_size=n),
    ).map(lambda book: [*zip(*book), *[GONE] * (LEVELS - n)])
)


@given(
    st.lists(st.tuples(st.sampled_from([-1, 0, 1]), st.integers(0, 30), SIDES, st.booleans()), min_size=1, max_size=4)
)
def test_fill_equals_one_lot_at_a_time(orders):
    side, lots, books, force = zip(*orders)
    px, sz = (torch.cat(x) for x in zip(*map(_book, books)))
    got = op.fill(torch.tensor(side), torch.tensor(lots), px, sz, torch.tensor(force))
    for b, order in enumerate(orders):
        assert {name: x[b].tolist() for name, x in got._asdict().items()} == _slow_fill(*order)


def test_mid_in_half_ticks():
    bid, ask = torch.tensor([20000, op.ABSENT, 5, -3, 2**31 - 1]), torch.tensor([20001, 7, op.ABSENT, -2, 2**31 - 1])
    mid, valid = op.mid_half_ticks(bid.int(), ask.int())
    assert mid.tolist() == [40001, 0, 0, -5, 2**32 - 2]
    assert valid.tolist() == [True, False, False, True, True]


def _see(memory, levels):
    avail, memory = op.available(memory, *_book(levels))
    return avail[0].tolist(), memory


def _took(memory, *lots):
    return op.take(memory, torch.tensor([lots]))


def test_taken_lots_stay_taken_while_the_tape_shows_the_same_size():
    avail, memory = _see(new_memory(1, 3), [(10, 5), (11, 4), GONE])
    assert avail == [5, 4, 0]
    memory = _took(memory, 5, 1, 0)
    avail, memory = _see(memory, [(10, 5), (11, 4), GONE])
    assert avail == [0, 3, 0]
    avail, memory = _see(_took(memory, 0, 2, 0), [(10, 5), (11, 4), GONE])
    assert avail == [0, 1, 0]


def test_a_level_is_followed_by_price_when_its_rank_moves():
    _, memory = _see(new_memory(1, 3), [(10, 5), (11, 4), GONE])
    avail, memory = _see(_took(memory, 2, 3, 0), [(9, 7), (10, 5), (11, 4)])
    assert avail == [7, 3, 1]
    avail, _ = _see(memory, [(11, 4), (12, 1), GONE])
    assert avail == [1, 1, 0]


def test_a_changed_size_gives_the_level_back_for_good():
    _, memory = _see(new_memory(1, 2), [(10, 5), (11, 4)])
    memory = _took(memory, 2, 3)
    avail, memory = _see(memory, [(10, 6), (11, 4)])
    assert avail == [6, 1]
    avail, _ = _see(memory, [(10, 5), (11, 4)])  # back at the old size: fresh liquidity
    assert avail == [5, 1]


def test_a_price_that_left_the_levels_comes_back_fresh():
    _, memory = _see(new_memory(1, 2), [(10, 5), (11, 4)])
    avail, memory = _see(_took(memory, 2, 3), [(11, 4), GONE])
    assert avail == [1, 0]
    avail, _ = _see(memory, [(10, 5), (11, 4)])
    assert avail == [5, 1]


def test_seeing_a_book_leaves_the_tape_and_the_old_memory_alone():
    px, sz = _book([(10, 5), (11, 4)])
    _, before = op.available(new_memory(1, 2), px, sz)
    after = op.take(before, torch.tensor([[1, 1]]))
    sz += 1
    assert before.taken_lots.tolist() == [[0, 0]] and after.taken_sz.tolist() == [[5, 4]]


@given(st.lists(st.tuples(SIDES, st.integers(0, 12)), min_size=1, max_size=6))
def test_memory_equals_a_dictionary_by_price(rows):
    """Each row: see a book (half of the rows repeat the one before), then buy some lots of what is left."""
    memory, taken = new_memory(1, LEVELS), {}
    for i, (levels, lots) in enumerate(rows):
        for book in ([rows[i - 1][0]] if i else []) + [levels, levels]:
            shown = {price: size for price, size in book if price != op.ABSENT}
            taken = {p: (n, size) for p, (n, size) in taken.items() if shown.get(p) == size}
            px, sz = _book(book)
            avail, memory = op.available(memory, px, sz)
            left = [size - taken.get(price, (0, 0))[0] for price, size in book]
            assert avail[0].tolist() == left
            got = op.fill(torch.tensor([1]), torch.tensor([lots]), px, avail, torch.tensor([False]))
            memory = op.take(memory, got.per_level)
            for (price, size), n in zip(book, got.per_level[0].tolist()):
                if n:
                    taken[price] = (taken.get(price, (0, 0))[0] + n, size)
