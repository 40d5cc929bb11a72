"""Labels against exact rational arithmetic, the vectors of the field's notes, and segments, holes and edges."""

import json
import math
import statistics
from decimal import Decimal, getcontext
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from foxhunt_assets.contracts.tables import ABSENT_PX, NO_SEGMENT
from foxhunt_assets.errors import BadInput
from foxhunt_assets.market import label_pass, labels
from foxhunt_assets.market.labels import make_labels, sigma_step, thresholds
from tests.market.specs import spec_of

getcontext().prec = 60


def books(half_ticks):
    """Best prices with mid = half_ticks / 2: one tick of spread on odd sums, two on even."""
    h = torch.tensor(half_ticks, dtype=torch.int64)
    bid = torch.where(h % 2 == 1, (h - 1) // 2, h // 2 - 1)
    return bid.to(torch.int32), (h - bid).to(torch.int32)


def points(prices):
    return books([round(p * 8) for p in prices])  # a point is 4 ticks, 8 half ticks


def one_segment(n):
    return torch.zeros(n, dtype=torch.int32)


def atom_exactly(half_ticks, h, sigma):
    """floor(r * 20/6 + 10 + 1/2) clamped, r = difference / (sigma sqrt h); exact where h is a square."""
    root = math.isqrt(h)
    if root * root == h:
        r = Fraction(half_ticks, 2) / (Fraction(sigma) * root)
        return min(max(math.floor(r * 20 / 6 + Fraction(21, 2)), 0), 20)
    r = Decimal(half_ticks) / 2 / (Decimal(sigma) * Decimal(h).sqrt())
    return min(max(math.floor(r * 20 / 6 + Decimal("10.5")), 0), 20)


def test_known_answers():
    bid, ask = points([100, 100.25, 100, 100.5, 101])
    assert make_labels(bid, ask, one_segment(5), [2], 1.0)[:, 0].tolist() == [10, 12, 19, -1, -1]
    # sigma 0.2 points = 0.8 ticks, h = 60: +1.5 points is r = 0.968, -10 points r = -6.45
    up, down = points([5000] * 60 + [5001.5]), points([5000] * 60 + [4990])
    assert int(make_labels(*up, one_segment(61), [60], 0.8)[0, 0]) == 13
    assert int(make_labels(*down, one_segment(61), [60], 0.8)[0, 0]) == 0


def test_ramp_flat_and_too_short():
    up, down = points([100 + i for i in range(10)]), points([100 - i for i in range(10)])
    assert make_labels(*up, one_segment(10), [3], 0.5)[:, 0].tolist() == [20] * 7 + [-1] * 3
    assert make_labels(*down, one_segment(10), [3], 0.5)[:, 0].tolist() == [0] * 7 + [-1] * 3
    flat = points([100] * 6)
    for sigma in (0.0, 0.7):
        assert make_labels(*flat, one_segment(6), [2], sigma)[:, 0].tolist() == [10] * 4 + [-1] * 2
    assert make_labels(*up, one_segment(10), [3], 0.0)[:, 0].tolist() == [-1] * 10  # moved under sigma 0
    assert make_labels(*up, one_segment(10), [10, 11, 9], 0.5).tolist() == [[-1, -1, 20]] + [[-1, -1, -1]] * 9


def test_a_label_stays_in_its_segment_and_needs_both_mids():
    bid, ask = points([100] * 10)
    segment = torch.tensor([-1, -1, -1, 0, 0, 0, 1, 1, 1, 1], dtype=torch.int32)
    assert make_labels(bid, ask, segment, [2], 1.0)[:, 0].tolist() == [-1, -1, -1, 10, -1, -1, 10, 10, -1, -1]
    bid[4], ask[8] = ABSENT_PX, ABSENT_PX
    assert make_labels(bid, ask, one_segment(10), [2], 1.0)[:, 0].tolist() == [10, 10, -1, 10, -1, 10, -1, 10, -1, -1]
    bid, ask = points([100] * 4)
    bid[1] = ask[1]  # locked
    bid[2] = ask[2] + 1  # crossed
    assert make_labels(bid, ask, one_segment(4), [1], 1.0)[:, 0].tolist() == [-1] * 4


@settings(max_examples=200, deadline=None)
@given(
    st.floats(0.001, 50), st.sampled_from([1, 4, 60, 100, 300, 1800]), st.lists(st.integers(-3000, 3000), max_size=40)
)
def test_atoms_are_exact(sigma, h, differences):
    edges = thresholds(sigma, h)
    near = [e + d for e in edges for d in (-1, 0, 1)]
    for difference in differences + near:
        assert sum(e <= difference for e in edges) == atom_exactly(difference, h, sigma)


def one_by_one(bid, ask, segment, h, sigma):
    """The atoms of one horizon, a row at a time in Python's integers."""
    found = []
    for i in range(len(bid)):
        j = i + h
        books = [(bid[k], ask[k]) for k in (i, j) if k < len(bid)]
        there = len(books) == 2 and all(b != ABSENT_PX and a != ABSENT_PX and b < a for b, a in books)
        if not there or segment[i] != segment[j] or segment[i] == NO_SEGMENT:
            found.append(-1)
            continue
        moved = sum(books[1]) - sum(books[0])
        if sigma == 0:
            found.append(-1 if moved else 10)
        else:
            found.append(atom_exactly(moved, h, sigma))
    return found


@st.composite
def tapes(draw):
    """Best prices with absent, crossed and locked ones among them, and segments of a few rows."""
    center, width = draw(st.sampled_from([(0, 2), (20_000, 6), (0, 2**28), (-(2**20), 40_000)]))
    side = st.one_of(st.integers(center - width, center + width), st.just(ABSENT_PX))
    rows = draw(st.lists(st.tuples(side, side, st.sampled_from([-1, 0, 0, 0, 1, 2])), max_size=60))
    # half of the books are put right, else few rows had a label
    put = [(min(b, a), max(b, a), s) if draw(st.booleans()) else (b, a, s) for b, a, s in rows]
    return [[row[k] for row in put] for k in range(3)]


@settings(max_examples=300, deadline=None)
@given(
    tapes(),
    st.lists(st.sampled_from([1, 2, 4, 5, 9, 40, 100]), min_size=1, max_size=3),
    st.sampled_from([0.0, 0.01, 0.5, 0.8, 1.0, 37.0, 5_000.0, 1e7, 1e300]),
    st.integers(1, 70),
)
def test_the_compiled_passes_agree_with_a_row_at_a_time_whatever_their_blocks(tape, horizons, sigma, block):
    bid, ask, segment = (np.array(column, np.int32) for column in tape)
    want = [one_by_one(*tape, h, sigma) for h in horizons]
    made = make_labels(*(torch.from_numpy(x) for x in (bid, ask, segment)), horizons, sigma)
    assert made.T.tolist() == want
    edges = labels._edges([thresholds(sigma, h) for h in horizons])
    out = np.empty((len(horizons), len(bid)), np.int8)
    label_pass.label(bid, ask, segment, np.array(horizons), edges, block, out)
    assert sigma == 0 or out.tolist() == want


def test_edges_take_the_narrowest_type_that_tells_all_moves_apart():
    for edge, kind in ((32_766, np.int16), (32_767, np.int32), (10**30, np.int32)):
        rows = [[-edge, *range(18), edge], [0] * 20]
        made = labels._edges(rows)
        assert made.dtype == kind and made[0, 0] == np.iinfo(kind).min + 1
        assert made[0, 1] == max(-edge, made[0, 0]) and made[0, 20] == min(edge, -int(made[0, 0]))


def test_a_price_whose_differences_would_overflow_is_told():
    good, bad = 2**29 - 1, 2**29
    for bid, ask in ((-bad - 1, 0), (0, bad)):
        books = torch.tensor([0, bid], dtype=torch.int32), torch.tensor([1, ask], dtype=torch.int32)
        with pytest.raises(BadInput, match="2\\^29 ticks"):
            make_labels(*books, one_segment(2), [1], 1.0)
    books = torch.tensor([-good - 1, good - 1], dtype=torch.int32), torch.tensor([-good, good], dtype=torch.int32)
    assert make_labels(*books, one_segment(2), [1], 1e8)[:, 0].tolist() == [atom_exactly(2**31 - 4, 1, 1e8), -1]
    absent = torch.tensor([ABSENT_PX, 0], dtype=torch.int32), torch.tensor([bad, 1], dtype=torch.int32)
    assert make_labels(*absent, one_segment(2), [1], 1.0)[:, 0].tolist() == [-1, -1], "no mid is made of it"


def test_a_tie_goes_up():
    # an atom is 0.3 * 10 * sqrt 4 = 6 ticks = 12 half ticks wide
    assert thresholds(10.0, 4) == [12 * j - 126 for j in range(1, 21)]
    bid, ask = books([10_001, 10_001 + 6])
    assert int(make_labels(bid, ask, one_segment(2), [1], 20.0)[0, 0]) == 11  # r = 0.15: 10.5 + 0.5
    bid, ask = books([10_001, 10_001 - 6])
    assert int(make_labels(bid, ask, one_segment(2), [1], 20.0)[0, 0]) == 10  # 9.5 + 0.5
    bid, ask = books([10_001, 10_001 - 7])
    assert int(make_labels(bid, ask, one_segment(2), [1], 20.0)[0, 0]) == 9


def test_sigma_step_is_the_sample_std_of_increments_inside_ranges():
    rng = np.random.default_rng(0)
    walk = 40_000 + np.cumsum(rng.integers(-3, 4, 200))
    bid, ask = books(walk.tolist())
    assert sigma_step(bid, ask, [(0, 200)]) == pytest.approx(statistics.stdev((np.diff(walk) / 2).tolist()), rel=1e-14)
    parts = np.concatenate((np.diff(walk[10:50]), np.diff(walk[60:61]), np.diff(walk[100:190])))
    assert sigma_step(bid, ask, [(10, 50), (60, 61), (100, 190)]) == pytest.approx(np.std(parts, ddof=1) / 2, rel=1e-14)
    bid[20] = ABSENT_PX
    parts = np.concatenate((np.diff(walk[10:20]), np.diff(walk[21:50])))
    assert sigma_step(bid, ask, [(10, 50)]) == pytest.approx(np.std(parts, ddof=1) / 2, rel=1e-14)
    assert sigma_step(*books([5] * 9), [(0, 9)]) == 0
    with pytest.raises(BadInput, match="1 mid increments"):
        sigma_step(bid, ask, [(0, 2), (5, 6)])
    for bad in (-1.0, math.nan, math.inf):
        with pytest.raises(BadInput, match="sigma_step is"):
            thresholds(bad, 60)


def walk_columns(n, seed=0):
    rng = np.random.default_rng(seed)
    bid, ask = books((40_000 + np.cumsum(rng.integers(-2, 3, n))).tolist())
    levels = torch.arange(10, dtype=torch.int32)
    return {"bid_px": bid[:, None] - levels, "ask_px": ask[:, None] + levels}


def test_file_and_report(tmp_path):
    spec = spec_of(400, train=[(0, 200)], horizons=(5, 40))
    columns = walk_columns(400)
    report = labels.write_labels(spec, columns, tmp_path)
    table = pa.ipc.open_file(pa.memory_map(str(tmp_path / "frd_labels.arrow"))).read_all()
    sigma = sigma_step(columns["bid_px"][:, 0], columns["ask_px"][:, 0], [(0, 200)])
    want = make_labels(columns["bid_px"][:, 0], columns["ask_px"][:, 0], one_segment(400), (5, 40), sigma)
    assert table.column_names == ["h5", "h40"] and table.num_rows == 400
    assert table["h5"].to_pylist() == want[:, 0].tolist() and table["h40"].to_pylist() == want[:, 1].tolist()
    meta = {k.decode(): json.loads(v) for k, v in table.schema.metadata.items()}
    assert meta == {
        "sigma_step": sigma, "horizons": [5, 40],
        "thresholds": {"h5": thresholds(sigma, 5), "h40": thresholds(sigma, 40)},
    }  # fmt: skip
    assert report["sigma_step"] == sigma and report["counts"]["h40"][0] == 40
    assert sum(report["counts"]["h5"]) == 400
    for atom in range(21):
        assert report["counts"]["h5"][atom + 1] == want[:, 0].tolist().count(atom)


def test_evaluation_rows_are_not_fitted_on_and_the_future_changes_nothing_before_it(tmp_path):
    spec = spec_of(400, train=[(0, 200)], horizons=(5, 40))
    clean = walk_columns(400)
    poisoned = {k: v.clone() for k, v in clean.items()}
    for side in poisoned.values():
        side[241:] += 100_000 * (1 + torch.arange(159, dtype=torch.int32))[:, None] % 7919
    a = labels.write_labels(spec, clean, tmp_path / "a")
    b = labels.write_labels(spec, poisoned, tmp_path / "b")
    assert a["sigma_step"] == b["sigma_step"] and a["thresholds"] == b["thresholds"]
    read = [pa.ipc.open_file(str(tmp_path / x / "frd_labels.arrow")).read_all() for x in "ab"]
    assert read[0].slice(0, 201).equals(read[1].slice(0, 201))  # row 200 + 40 is the last clean one
    assert read[0]["h40"][201] != read[1]["h40"][201]
    # and the poison is seen where it is trained on
    assert labels.write_labels(spec_of(400, train=[(0, 300)]), poisoned, tmp_path / "c")["sigma_step"] > 1_000
