"""Every feature against values worked out by hand or by the standard library, and books with parts missing."""

import math
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

import numpy as np
import pytest
import torch

from foxhunt_assets.contracts.tables import ABSENT_PX, LEVELS, SNAPSHOTS
from foxhunt_assets.market import features
from foxhunt_assets.market.features import ABSENT_GAP, COLUMNS, FEATURES, GROUPS, columns_of, index
from tests.market.made_snapshots import random_columns

CHICAGO = ZoneInfo("America/Chicago")


def one_row(**changes):
    """A book of one row: bids 20000, 19999, ..., asks 20001, ..., sizes 1..10 and 11..20, Monday 17:00 Chicago."""
    k = torch.arange(LEVELS, dtype=torch.int32)
    ts = torch.tensor([instant(datetime(2024, 4, 1, 17, tzinfo=CHICAGO))])
    columns = {
        "ts": ts, "ts_event": ts - 5_000_000,
        "bid_px": (20_000 - k)[None], "ask_px": (20_001 + k)[None], "bid_sz": (1 + k)[None], "ask_sz": (11 + k)[None],
        "buy_lots": torch.tensor([7], dtype=torch.int32), "sell_lots": torch.tensor([9], dtype=torch.int32),
        "bid_ct": (1 + k)[None], "ask_ct": (2 + k)[None], "n_trades": torch.tensor([3], dtype=torch.int32),
        "ofi": (-3 * (1 + k))[None],
    }  # fmt: skip
    return {**columns, **changes}


def instant(when):
    return int(when.timestamp()) * 10**9


def compute(columns):
    """A whole tape of one segment."""
    return features.compute(columns, torch.zeros(len(columns["ts"]), dtype=torch.int32))


def value(columns, name, row=0):
    return float(compute(columns)[row, index(name)])


def test_the_table():
    names = [f.name for f in FEATURES]
    assert len(FEATURES) == 56 == len(set(names)) and [index(n) for n in names] == list(range(56))
    counts = {"price": 20, "size": 20, "micro": 10, "ofi": 2, "time": 3, "flow": 1}
    assert tuple(counts) == GROUPS
    for group, count in counts.items():
        inside = FEATURES[columns_of(group)]
        assert len(inside) == count and {f.group for f in inside} == {group}
    assert all(f.unit and f.definition and f.source and f.low < f.high for f in FEATURES)
    assert set(COLUMNS) <= {c.name for c in SNAPSHOTS} and len(set(COLUMNS)) == len(COLUMNS)


def test_known_row():
    columns = one_row()
    x = compute(columns)
    assert x.shape == (1, 56) and x.dtype == torch.float32
    for k in range(LEVELS):
        assert value(columns, f"bid_gap_{k}") == value(columns, f"ask_gap_{k}") == k + 0.5
        assert value(columns, f"bid_size_{k}") == pytest.approx(math.log(2 + k), rel=1e-6)
        assert value(columns, f"ask_size_{k}") == pytest.approx(math.log(12 + k), rel=1e-6)
    assert value(columns, "ofi_touch") == -3 and value(columns, "trade_flow") == -2
    assert value(columns, "ofi_depth") == pytest.approx(-3 * 10 / sum(1 / (k + 1) for k in range(LEVELS)), rel=1e-6)
    assert value(columns, "event_age") == pytest.approx(math.log(6), rel=1e-6)
    assert value(columns, "session_sin") == 0 and value(columns, "session_cos") == 1


def test_gaps_are_to_the_mid():
    columns = one_row()
    columns["ask_px"] = columns["ask_px"] + 2  # bid 20000, ask 20003: mid 20001.5
    columns["bid_px"][0, 3] = 19_950
    assert [value(columns, n) for n in ("bid_gap_0", "ask_gap_0", "bid_gap_3", "ask_gap_9")] == [1.5, 1.5, 51.5, 10.5]
    columns["bid_px"][0, 4] = 10_000
    assert value(columns, "bid_gap_4") == ABSENT_GAP
    columns["bid_px"][0, 0] = 20_005  # crossed by two: mid 20004
    assert value(columns, "bid_gap_0") == value(columns, "ask_gap_0") == -1


def test_missing_levels_and_sides_have_stated_values():
    columns = one_row()
    columns["bid_px"][0, 7:], columns["bid_sz"][0, 7:] = ABSENT_PX, 0
    assert value(columns, "bid_gap_6") == 6.5 and value(columns, "bid_gap_7") == ABSENT_GAP
    assert value(columns, "bid_size_7") == 0
    columns["bid_px"][:], columns["bid_sz"][:] = ABSENT_PX, 0  # no bid: gaps of asks are to the best ask
    assert [value(columns, f"ask_gap_{k}") for k in range(3)] == [0, 1, 2]
    assert value(columns, "bid_gap_0") == ABSENT_GAP
    columns = one_row(ask_px=torch.full((1, LEVELS), ABSENT_PX, dtype=torch.int32))
    assert [value(columns, f"bid_gap_{k}") for k in range(3)] == [0, 1, 2]
    columns["bid_px"] = columns["ask_px"]
    x = compute(columns)
    assert torch.isfinite(x).all() and bool((x[0, :20] == ABSENT_GAP).all())
    assert value(one_row(bid_sz=columns["bid_sz"], ask_sz=columns["bid_sz"]), "weighted_book_pressure") == 0


def test_event_age_is_bounded():
    ts = one_row()["ts"]
    assert value(one_row(ts_event=ts + 10), "event_age") == 0  # an exchange clock ahead of ours
    hour = pytest.approx(math.log1p(3.6e6), rel=1e-6)
    assert value(one_row(ts_event=torch.tensor([-1])), "event_age") == hour  # no event time


def test_session_time_follows_chicago_through_the_years():
    whens = [datetime(2008, 1, 1, 5, tzinfo=ZoneInfo("UTC")) + timedelta(hours=17 * i) for i in range(12_000)]
    # the hour around each switch of 2024
    whens += [datetime(2024, m, d, h, 30, tzinfo=ZoneInfo("UTC")) for m, d in ((3, 10), (11, 3)) for h in range(4, 12)]
    ts = torch.tensor([instant(w) for w in whens])
    got = features._session_angle(ts) * 23 / (2 * math.pi)  # hours since 17:00
    for when, hours in zip(whens, got.tolist()):
        local = when.astimezone(CHICAGO)
        assert hours == pytest.approx((local.hour + local.minute / 60 - 17) % 24, abs=1e-9), when


def test_quarter_of_the_trade_day():
    quarter = instant(datetime(2024, 4, 1, 17, tzinfo=CHICAGO)) + 23 * 3_600 * 10**9 // 4
    columns = one_row(ts=torch.tensor([quarter]), ts_event=torch.tensor([quarter]))
    assert value(columns, "session_sin") == pytest.approx(1) and value(columns, "session_cos") == pytest.approx(
        0, abs=1e-6
    )


def test_a_lone_row_has_no_past():
    """What a segment's first row says: nothing moved, nothing was lost, the mean is its own."""
    columns = one_row()
    for name in ("realized_variance", "spread_dynamics", "queue_depletion_asymmetry", "order_count_flux"):
        assert value(columns, name) == 0, name
    for name in ("intra_bar_momentum", "regime_score", "ofi_trajectory"):
        assert value(columns, name) == 0, name
    assert value(columns, "hawkes_intensity") == pytest.approx(0.2 + 3 * 0.16)
    # 16 lots traded; of an OFI of -3 signed trades explain -2
    assert value(columns, "aggression_ratio") == pytest.approx(16 / 17)
    weights = [1 / (k + 0.5) for k in range(LEVELS)]
    bid, ask = (sum(w * (q + k) for k, w in enumerate(weights)) for q in (1, 11))
    assert value(columns, "weighted_book_pressure") == pytest.approx((bid - ask) / (bid + ask), rel=1e-6)


def extreme_columns(n, seed):
    """Columns at the ends of their types, in no order a market would have."""
    rng = np.random.default_rng(seed)
    made = {name: torch.from_numpy(v) for name, v in random_columns(n, seed).items() if name in COLUMNS}
    for name, v in made.items():
        least = 0 if name[-2:] in ("sz", "ct") or name in ("buy_lots", "sell_lots", "n_trades") else -(2**31)
        wild = torch.from_numpy(rng.choice([least, 0, 2**31 - 1, 5], v.shape))
        made[name] = torch.where(torch.from_numpy(rng.random(v.shape) < 0.3), wild, v.long()).to(v.dtype)
    return made


@pytest.mark.parametrize("seed", range(4))
def test_no_book_breaks_the_bounds_of_the_table(seed):
    x = features.compute(extreme_columns(600, seed), torch.arange(600, dtype=torch.int32) // 250)
    assert torch.isfinite(x).all()
    for column, feature in enumerate(FEATURES):
        low, high = x[:, column].min().item(), x[:, column].max().item()
        assert feature.low - 1e-6 <= low and high <= feature.high + 1e-6, (feature.name, low, high)


def test_the_row_alone_makes_all_but_the_microstructure():
    columns = {name: torch.from_numpy(v) for name, v in random_columns(300, 5).items() if name in COLUMNS}
    whole = compute(columns)
    alone = torch.ones(len(FEATURES), dtype=torch.bool)
    alone[columns_of("micro")] = False
    alone[index("weighted_book_pressure")] = True
    for a, b in ((0, 1), (17, 40), (299, 300)):
        assert torch.equal(compute({k: v[a:b] for k, v in columns.items()})[:, alone], whole[a:b, alone])
