"""The counting pass behind `inspect`: its steps one by one, and its best prices against the decoder's rows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from foxhunt_assets.contracts.instruments import UNDEF_PRICE, contract
from foxhunt_assets.contracts.tables import ABSENT_PX
from foxhunt_assets.market import book, inspect, snapshots, survey, survey_sessions
from foxhunt_assets.market.dbn import DbnReader
from foxhunt_assets.market.snapshot_folder import open_snapshots
from tests.market import made_dbn as made
from tests.market.made_dbn import MS, mbo, mbp

ES = contract("ES")
T0 = made.ns("2024-03-01T15:00:00")
HOUR = "nautilus_trader/esh4-glbx-mdp3-20231225.mbo.dbn.zst"


@pytest.mark.parametrize(
    ("prices", "before", "step"),
    [
        ([], 0, 0),
        ([UNDEF_PRICE], 250, 250),
        ([1_000, 1_750], 0, 250),
        ([1_000, -1_100], 250, 50),
        ([0, 500], 250, 250),
        ([7], 250, 1),
    ],
)
def test_the_step_is_the_greatest_that_all_prices_share(prices: list[int], before: int, step: int) -> None:
    assert survey.common_step(np.array(prices, np.int64), before) == step


def test_best_prices_after_each_event_of_the_real_hour_are_the_decoders(real_data: Path, tmp_path: Path) -> None:
    snapshots.decode(real_data / HOUR, tmp_path, ES, snapshots.EVENT_CLOCK)
    rows = open_snapshots(tmp_path)
    chunks, bids, asks, ends = survey.RecordChunks(), [], [], []
    with DbnReader(real_data / HOUR) as reader:
        for batch in reader.batches():
            for chunk in chunks.of(batch):
                assert chunk.bid is not None and chunk.ask is not None and chunk.ends is not None
                bids.append(chunk.bid[chunk.ends])
                asks.append(chunk.ask[chunk.ends])
                ends.append(chunk.ends)
    assert np.flatnonzero(np.concatenate(ends)).tolist() == rows["source_row"].to_pylist()
    for ours, name in ((bids, "bid_px"), (asks, "ask_px")):
        best = rows[name].combine_chunks().flatten().to_numpy()[::10].astype(np.int64)
        want = np.where(best == ABSENT_PX, UNDEF_PRICE, best * ES.tick)
        assert (np.concatenate(ours) == want).all(), name
    assert not any(chunks.order_errors.values()) and chunks.not_rebuilt == 0 and chunks.unit == ES.tick


def test_orders_that_no_book_can_hold_are_told(tmp_path: Path) -> None:
    many = []
    for n in range(book.MAX_SLOTS + 2):
        record = mbo(T0 + n, "A", "B", n, 20_000, 1)
        record["instrument_id"] = made.ESH4 + n
        many.append(record)
    odd = mbo(T0 + 999, "A", "A", 999, 20_001, 1)
    odd["price"] = 1
    facts = inspect.inspect(made.write_mbo(tmp_path / "a.dbn", [*many, odd], clear=False))
    assert "3 order records in no book" in facts["warnings"][-1], "two instruments too many, one price off the step"


def test_a_silence_is_counted_across_chunks_and_not_across_sessions() -> None:
    sessions = survey_sessions.Sessions(globex=True, gap_ns=1_000 * MS)
    close = made.ns("2024-03-07T22:00:00")
    none = np.zeros(1, bool)
    for at in (close - 9_000 * MS, close - 2_000 * MS, close - 1_500 * MS, close + 3_600_000 * MS):
        ts = np.array([at])
        sessions.add(ts, sessions.place(ts, ts.astype(np.uint64), none), none)
    assert (sessions.gap_count, sessions.longest) == (1, 7_000 * MS)
    assert sessions.gaps == [(close - 9_000 * MS, close - 2_000 * MS)]
    assert [n for n, *_ in sessions.found.values()] == [3, 1] and list(sessions.found) == ["2024-03-07", "2024-03-08"]


def test_another_venue_is_counted_by_utc_day() -> None:
    sessions = survey_sessions.Sessions(globex=False, gap_ns=10**18)
    at = np.array([made.ns("2024-03-02T23:59:59"), made.ns("2024-03-03T00:00:00")])
    sessions.add(at, sessions.place(at, at.astype(np.uint64), np.zeros(2, bool)), np.array([True, False]))
    assert {day: bad for day, (_, _, _, bad) in sessions.found.items()} == {"2024-03-02": 1, "2024-03-03": 0}
    assert sessions.outside == 0


def test_past_a_close_of_the_holiday_calendar_only_a_trade_proves_the_market_open() -> None:
    """4 July 2024: noon Chicago by the calendar. A trade stamped before it and received after proves nothing."""
    noon, second = made.ns("2024-07-04T17:00:00"), 1_000 * MS
    ts = noon + second * np.array([-1, 1, 2, 3, 4, 5])
    stamped = (ts - np.array([0, 0, 5 * second, 0, 0, 0])).astype(np.uint64)
    traded = np.array([False, False, True, False, True, False])
    sessions = survey_sessions.Sessions(globex=True, gap_ns=10**18)
    window = sessions.place(ts, stamped, traded)
    assert (window >= 0).tolist() == [True, False, False, False, True, True]
    assert (sessions.place(ts[1:2], stamped[1:2], traded[1:2]) >= 0).all(), "and it stays so"
    assert {sessions.name(w) for w in window[window >= 0].tolist()} == {"2024-07-04"}


def test_records_of_several_kinds_are_counted_apart() -> None:
    octets = np.concatenate([mbp(T0 + n) for n in range(4)]).view(np.uint8).reshape(4, -1).copy()
    octets[2, 1] = 23  # a system record of the same length
    kinds = [(c.kind, len(c.ts)) for c in survey.RecordChunks().of(octets)]
    assert kinds == [("mbp-10", 2), ("system", 1), ("mbp-10", 1)]


def test_a_record_of_another_length_is_read_by_its_header_alone() -> None:
    sound = mbp(T0).view(np.uint8).reshape(1, -1)
    longer = np.concatenate([sound, np.zeros((1, 8), np.uint8)], axis=1)  # with its send time
    (with_send_time,) = survey.RecordChunks().of(longer)
    assert with_send_time.kind == "mbp-10" and with_send_time.bid is not None and with_send_time.prices is not None
    assert with_send_time.bid.tolist() == [20_000 * made.TICK] and with_send_time.prices.shape == (1, 20)
    (cut,) = survey.RecordChunks().of(np.ascontiguousarray(sound[:, :60]))
    assert cut.kind == "mbp-10 of 60 bytes" and cut.bid is None
    assert cut.ids.tolist() == [made.ESH4] and cut.ts.tolist() == [T0]
