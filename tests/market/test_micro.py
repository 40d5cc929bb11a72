"""The microstructure features against plain Python row by row, worked numbers from the papers, and cut tapes."""

import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from foxhunt_assets.contracts.tables import ABSENT_PX, LEVELS, NO_SEGMENT
from foxhunt_assets.market import features, micro
from foxhunt_assets.market.features import FEATURES, LOOK_BACK, compute, index

MICRO = [f.name for f in FEATURES if f.group == "micro"]


def book(n, seed, sizes=9):
    """Columns of features.COLUMNS: a jumping book with empty sides, crossed and locked rows, and odd gaps in time."""
    rng = np.random.default_rng(seed)
    bid = 20_000 + rng.integers(-3, 4, n).cumsum()
    ask = bid + rng.choice([-1, 0, 1, 1, 1, 2, 5, 90], n)
    k = np.arange(LEVELS)
    c = {
        "bid_px": bid[:, None] - k, "ask_px": ask[:, None] + 2 * k,
        "bid_sz": rng.integers(1, sizes, (n, LEVELS)), "ask_sz": rng.integers(1, sizes, (n, LEVELS)),
        "bid_ct": rng.integers(1, 5, (n, LEVELS)), "ask_ct": rng.integers(1, 5, (n, LEVELS)),
        "buy_lots": rng.integers(0, 4, n), "sell_lots": rng.integers(0, 4, n), "n_trades": rng.integers(0, 3, n),
        "ofi": rng.integers(-20, 21, (n, LEVELS)),
    }  # fmt: skip
    for side in ("bid", "ask"):
        gone = rng.random(n) < 0.1
        gone[: n // 7] = rng.random(n // 7) < 0.9  # a start that has hardly any mid
        first = np.where(gone, 0, rng.integers(3, 30, n))  # levels from here on are absent
        absent = k >= first[:, None]
        c[f"{side}_px"][absent] = ABSENT_PX
        c[f"{side}_sz"][absent] = c[f"{side}_ct"][absent] = 0
    columns = {name: torch.from_numpy(v.astype(np.int32)) for name, v in c.items()}
    ts = 1_712_000_000_000_000_000 + rng.integers(0, 600_000_000, n).cumsum()
    return {**columns, "ts": torch.from_numpy(ts), "ts_event": torch.from_numpy(ts - 1_000_000)}


def cut(columns, a, b):
    return {name: v[a:b] for name, v in columns.items()}


class Plain:
    """One row at a time, from the definitions of the feature table, with lists and loops."""

    def __init__(self, columns, segment):
        self.c = {name: v.tolist() for name, v in columns.items()}
        self.starts = []
        for i, number in enumerate(segment):
            goes_on = i > 0 and number != NO_SEGMENT and number == segment[i - 1]
            self.starts.append(self.starts[-1] if goes_on else i)

    def start(self, i):
        return self.starts[i]

    def last(self, i, rows):
        return range(max(self.start(i), i - rows + 1), i + 1)

    def touch(self, i):
        bid, ask = self.c["bid_px"][i][0], self.c["ask_px"][i][0]
        return (None if bid == ABSENT_PX else bid), (None if ask == ABSENT_PX else ask)

    def mid(self, i):
        bid, ask = self.touch(i)
        return None if bid is None or ask is None or bid >= ask else (bid + ask) / 2

    def steps(self, i, rows):
        out = []
        for j in self.last(i, rows):
            if j > self.start(j) and self.mid(j) is not None and self.mid(j - 1) is not None:
                out.append(max(-64.0, min(64.0, self.mid(j) - self.mid(j - 1))))
        return out

    def realized_variance(self, i):
        steps = self.steps(i, 64)
        return sum(s * s for s in steps) / len(steps) if steps else 0

    def hawkes_intensity(self, i):
        ages = [((self.c["ts"][i] - self.c["ts"][j]) / 1e9, self.c["n_trades"][j]) for j in self.last(i, 512)]
        return 0.2 + 0.16 * sum(n * math.exp(-0.2 * age) for age, n in ages)

    def weighted_book_pressure(self, i):
        bid, ask = self.touch(i)
        if bid is None and ask is None:
            return 0
        mid = ((ask if bid is None else bid) + (bid if ask is None else ask)) / 2
        mass = []
        for side, sign in (("bid", 1), ("ask", -1)):
            levels = [(p, s) for p, s in zip(self.c[f"{side}_px"][i], self.c[f"{side}_sz"][i]) if p != ABSENT_PX]
            mass.append(sum(s / min(64, max(0.5, sign * (mid - p))) for p, s in levels))
        return (mass[0] - mass[1]) / (mass[0] + mass[1])

    def spread_dynamics(self, i):
        spread = {}
        for j in self.last(i, 64):
            if self.mid(j) is not None:
                bid, ask = self.touch(j)
                spread[j] = min(64, ask - bid)
        return spread[i] - sum(spread.values()) / len(spread) if i in spread else 0

    def aggression_ratio(self, i):
        taken = rested = 0
        for j in self.last(i, 64):
            bought, sold = self.c["buy_lots"][j], self.c["sell_lots"][j]
            taken += bought + sold
            rested += abs(self.c["ofi"][j][0] - (bought - sold))
        return taken / (taken + rested) if taken + rested else 0

    def queue_depletion_asymmetry(self, i):
        bid_gone = ask_gone = 0
        for j in self.last(i, 64):
            if j == self.start(j):
                continue
            (bid, ask), (bid_was, ask_was) = self.touch(j), self.touch(j - 1)
            was, now = self.c["bid_sz"][j - 1][0], self.c["bid_sz"][j][0]
            if bid_was is not None:
                bid_gone += was if bid is None or bid < bid_was else max(0, was - now) if bid == bid_was else 0
            was, now = self.c["ask_sz"][j - 1][0], self.c["ask_sz"][j][0]
            if ask_was is not None:
                ask_gone += was if ask is None or ask > ask_was else max(0, was - now) if ask == ask_was else 0
        return (bid_gone - ask_gone) / (bid_gone + ask_gone) if bid_gone + ask_gone else 0

    def order_count_flux(self, i):
        def orders(j):
            return sum(self.c["bid_ct"][j]) + sum(self.c["ask_ct"][j])

        return orders(i) - orders(max(self.start(i), i - 64))

    def intra_bar_momentum(self, i):
        opened = i - (i - self.start(i)) % 240
        mids = [self.mid(j) for j in range(opened, i + 1) if self.mid(j) is not None]
        return 0 if self.mid(i) is None else self.mid(i) - mids[0]

    def regime_score(self, i):
        steps = self.steps(i, 240)
        path = sum(abs(s) for s in steps)
        return abs(sum(steps)) / path if path else 0

    def ofi_trajectory(self, i):
        rows = self.last(i, 32)
        if len(rows) == 1:
            return 0
        return float(np.polyfit(np.arange(len(rows)), [self.c["ofi"][j][0] for j in rows], 1)[0])


SEGMENTS = [0] * 230 + [NO_SEGMENT] * 20 + [3] * 850 + [4] * 90


@pytest.fixture(scope="module")
def tape():
    columns, segment = book(len(SEGMENTS), 11), torch.tensor(SEGMENTS, dtype=torch.int32)
    return columns, segment, compute(columns, segment)


@pytest.mark.parametrize("name", MICRO)
def test_against_plain_python(tape, name):
    columns, segment, x = tape
    plain = Plain(columns, segment.tolist())
    rows = [*range(0, 300), *range(300, 1100, 7), *range(1095, 1190)]
    want = [getattr(plain, name)(i) for i in rows]
    assert x[rows, index(name)].tolist() == pytest.approx(want, rel=2e-6, abs=2e-6)
    assert len(set(want)) > 50  # the rows do differ


def test_a_segment_knows_nothing_of_another(tape):
    columns, segment, x = tape
    edges = [0, 230, *range(231, 251), 1100, 1190]
    for a, b in pairwise(edges):
        assert torch.equal(compute(cut(columns, a, b), segment[a:b]), x[a:b]), (a, b)
    as_one = compute(columns, torch.zeros_like(segment))
    assert torch.equal(as_one[:230], x[:230]) and not torch.equal(as_one[1100:1190], x[1100:])


def test_a_row_reads_look_back_rows_and_no_more(tape):
    columns, segment, _ = tape
    segment = torch.zeros_like(segment)
    x = compute(columns, segment)
    at = 1_000
    for first in (at - LOOK_BACK, at - LOOK_BACK - 3):
        start = features._starts(segment)[first : at + 1] - first
        given = micro.compute(cut(columns, first, at + 1), start)
        for name, value in given.items():
            assert value[-1].to(torch.float32) == x[at, index(name)], (name, first)


@pytest.mark.parametrize("rows", [1, 13, 64, 230, 275, 512, 700])  # 230 and 275 cut where segments start
def test_blocks_change_no_bit(tape, monkeypatch, rows):
    columns, segment, x = tape
    monkeypatch.setattr(features, "BLOCK_ROWS", rows)
    if rows > 1:
        assert torch.equal(compute(columns, segment), x)
    ranges = [(3, 90), (229, 252), (900, 1_190)] if rows > 1 else [(228, 232), (1_000, 1_003)]
    got = torch.cat([block.clone() for block in features.blocks(columns, segment, ranges)])
    assert torch.equal(got, torch.cat([x[a:b] for a, b in ranges]))


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 899), st.integers(0, 2**32))
def test_the_future_moves_nothing_before_it(seed, now, other):
    columns, foreign = book(900, seed % 97), book(900, 1_000 + other)
    segment = torch.tensor([0] * 200 + [1] * 700, dtype=torch.int32)
    changed = {name: torch.cat((v[:now], foreign[name][now:])) for name, v in columns.items()}
    ended = segment.clone()
    ended[now:] = 7 if other % 2 else NO_SEGMENT
    x = compute(columns, segment)
    assert torch.equal(compute(changed, segment)[:now], x[:now])
    assert torch.equal(compute(changed, ended)[:now], x[:now])
    assert not torch.equal(compute(changed, segment)[now:], x[now:])


def test_threads_change_no_bit():
    columns, segment = book(40_000, 5), torch.zeros(40_000, dtype=torch.int32)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        alone = compute(columns, segment)
        torch.set_num_threads(3)
        assert torch.equal(compute(columns, segment), alone)
    finally:
        torch.set_num_threads(before)


def test_hawkes_1971():
    """mu 0.5, alpha 0.8, beta 1.2, trades at 1, 1.5 and 3 s: intensities before them, and at 4 s, from the formula."""
    half_seconds = torch.arange(9)
    n = torch.tensor([0, 0, 1, 1, 0, 0, 1, 0, 0], dtype=torch.int32)
    got = micro.hawkes(n, half_seconds * 500_000_000, torch.zeros(9, dtype=torch.int64), 0.5, 0.8, 1.2)
    before = got - 0.8 * n.double()
    assert before[[2, 3, 6]].tolist() == pytest.approx([0.5, 0.939049308875, 0.704813473209], abs=1e-12)
    assert got[8].item() == pytest.approx(0.802644002182, abs=1e-12)
    # in the long run a steady rate r gives mu + alpha r dt / (1 - exp(-beta dt))
    n, ts = torch.ones(3_000, dtype=torch.int32), torch.arange(3_000) * 250_000_000
    steady = micro.hawkes(n, ts, torch.zeros(3_000, dtype=torch.int64))
    assert steady[-1].item() == pytest.approx(0.2 + 0.16 / (1 - math.exp(-0.05)), rel=1e-9)


def test_slope_of_the_worked_order_flow():
    """Cont's three events of the worked book, 20, 45, -12: slopes 25 and then (-12 - 20)/2."""
    flow = torch.tensor([20, 45, -12])
    assert micro.slope(flow, torch.zeros(3, dtype=torch.int64)).tolist() == [0.0, 25.0, -16.0]
    assert micro.slope(flow, torch.tensor([0, 1, 1])).tolist() == [0.0, 0.0, -57.0]
    line = 2**31 - 1 - 3 * torch.arange(5_000)
    assert micro.slope(line, torch.zeros(5_000, dtype=torch.int64))[1:].unique().tolist() == [-3.0]


def test_pressure_is_the_weighted_mid():
    """Bid 5000 x 30, ask 5000.25 x 40: weighted mid 5000.107142857 = mid + pressure x half the spread."""
    gaps = tuple(torch.tensor([[0.5] + [64.0] * 9]) for _ in range(2))
    sizes = tuple(torch.tensor([[q] + [0.0] * 9]) for q in (30.0, 40.0))
    pressure = micro.book_pressure(gaps, sizes).item()
    assert 5000.125 + pressure * 0.125 == pytest.approx(5000.107142857, abs=1e-7)


def test_sums_survive_a_running_sum_that_wraps():
    x = torch.full((1, 300), 2**62, dtype=torch.int64)
    x[0, ::2] *= -1
    got = micro.window_sums(x, torch.zeros(300, dtype=torch.int64), 3)
    assert got[0, 2:].unique().tolist() == [-(2**62), 2**62]
    ramp = torch.full((1, 9), 2**61, dtype=torch.int64)
    assert micro.window_sums(ramp, torch.zeros(9, dtype=torch.int64), 2)[0, 1:].unique().tolist() == [2**62]
