"""Every feature against values worked out by hand or by the standard library, and books with parts missing."""

import math
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
import torch

from foxhunt_assets.contracts.tables import ABSENT_PX, LEVELS, SNAPSHOTS
from foxhunt_assets.market import features
from foxhunt_assets.market.features import ABSENT_GAP, COLUMNS, FEATURES, compute, index
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
        "ofi": (-3 * (1 + k))[None],
    }  # fmt: skip
    return {**columns, **changes}


def instant(when):
    return int(when.timestamp()) * 10**9


def value(columns, name, row=0):
    return float(compute(columns)[row, index(name)])


def test_the_table():
    names = [f.name for f in FEATURES]
    assert len(FEATURES) == 45 == len(set(names)) and [index(n) for n in names] == list(range(45))
    groups = [f.group for f in FEATURES]
    assert {g: groups.count(g) for g in set(groups)} == {"price": 20, "size": 20, "ofi": 1, "time": 3, "flow": 1}
    assert all(f.unit and f.definition and f.source for f in FEATURES)
    assert set(COLUMNS) <= {c.name for c in SNAPSHOTS}


def test_known_row():
    columns = one_row()
    x = compute(columns)
    assert x.shape == (1, 45) and x.dtype == torch.float32
    for k in range(LEVELS):
        assert value(columns, f"bid_gap_{k}") == value(columns, f"ask_gap_{k}") == k + 0.5
        assert value(columns, f"bid_size_{k}") == pytest.approx(math.log(2 + k), rel=1e-6)
        assert value(columns, f"ask_size_{k}") == pytest.approx(math.log(12 + k), rel=1e-6)
    assert value(columns, "ofi_touch") == -3 and value(columns, "trade_flow") == -2
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


def test_a_row_depends_on_itself_alone():
    made = random_columns(300, 5)
    columns = {name: torch.from_numpy(made[name]) for name in COLUMNS}
    whole = compute(columns)
    assert torch.isfinite(whole).all()
    for a, b in ((0, 1), (17, 40), (299, 300)):
        assert torch.equal(compute({k: v[a:b] for k, v in columns.items()}), whole[a:b])
    future = {k: torch.cat((v[:200], v[200:].flip(0))) for k, v in columns.items()}
    assert torch.equal(compute(future)[:200], whole[:200])
    assert not torch.equal(compute(future)[200:], whole[200:])
