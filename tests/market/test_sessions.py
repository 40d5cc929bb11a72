"""The session table: counts by hand, and every way in which data and holiday calendar can disagree."""

from __future__ import annotations

from pathlib import Path

import pytest

from foxhunt_assets.contracts.instruments import contract
from foxhunt_assets.market import inspect, sessions, snapshots
from tests.market import made_dbn as made
from tests.market.made_dbn import MS, mbp, ns

ES = contract("ES")


def table(folder: Path, records: list, **header) -> list[sessions.Session]:
    mode = "all" if header else "front_month"
    snapshots.decode(made.write_mbp(folder / "a.dbn", records, **header), folder, ES, 250, mode)
    snapshots.validate(folder)
    return sessions.session_table(folder)


def test_a_session_is_counted_as_by_hand(tmp_path: Path) -> None:
    at = ns("2024-03-01T15:00:00")
    records = [
        mbp(at, bid=19_990, ask=20_001),
        mbp(at + 10 * MS, action="T", side="B", size=3, flags=0),
        mbp(at + 10 * MS, action="T", side="A", size=4),
        mbp(at + 260 * MS, bid=20_005, ask=20_003),
        mbp(at + 510 * MS, bid=None, ask=20_030),
        mbp(at + 120_000 * MS, bid=20_000, ask=20_010),
    ]
    (found,) = table(tmp_path, records)
    assert (found.trade_date, found.symbol, found.rows, found.segments, found.gaps) == ("2024-03-01", "ESH4", 5, 2, 1)
    assert (found.trades, found.lots, found.crossed, found.one_sided) == (2, 7, 1, 1)
    assert (found.low_bid, found.high_ask) == (19_990, 20_010)
    assert (found.first, found.last) == (at, at + 120_000 * MS) and found.note == ""
    line = sessions.markdown([found]).splitlines()[2]
    assert "| 2024-03-01 | ESH4 | 5 | 2 | 1 | Fri 09:00:00 | Fri 09:02:00 | 2 | 7 |" in line and "as expected" in line


def minutes(first: str, last: str) -> list:
    """A record every 30 s from one time to another, both included."""
    return [mbp(t) for t in range(ns(first), ns(last) + 1, 30 * 10**9)]


def test_a_close_that_the_calendar_does_not_know_ends_the_session_where_the_data_end(tmp_path: Path) -> None:
    """A made-up Tuesday on which trading stops at 8:30 for good."""
    records = [
        *minutes("2024-03-05T14:20:00", "2024-03-05T14:29:30"),
        *minutes("2024-03-05T23:00:00", "2024-03-05T23:01:00"),
    ]
    one, two = table(tmp_path, records)
    assert one.note == "silent for the last 450 min before the calendar's close" and one.segments == 1
    assert (two.trade_date, two.note) == ("2024-03-06", "")


def test_trades_past_a_close_of_the_calendar_and_a_late_open_are_told(tmp_path: Path) -> None:
    late = ns("2024-07-04T17:10:00")
    records = [
        *minutes("2024-07-04T16:58:00", "2024-07-04T16:59:30"),
        mbp(late, action="T", flags=0), mbp(late), mbp(late + 30 * 10**9),
        *minutes("2024-07-04T23:00:00", "2024-07-04T23:01:00"),
    ]  # fmt: skip
    fourth, fifth = table(tmp_path, records)
    assert fourth.note == "open 10 min past the calendar's close" and fourth.segments == 2
    assert fifth.note == "silent for the first 60 min after the calendar's open"


def test_a_file_that_begins_or_ends_inside_a_session_is_no_disagreement(tmp_path: Path) -> None:
    found = table(tmp_path, minutes("2024-03-04T10:00:00", "2024-03-04T10:02:00"))
    assert [s.note for s in found] == [""]


def test_instruments_have_lines_of_their_own_and_many_lines_are_cut(tmp_path: Path) -> None:
    both = {"ESH4": [(*made.YEAR, made.ESH4)], "ESM4": [(*made.YEAR, made.ESM4)]}
    at = ns("2024-03-01T15:00:00")
    found = table(tmp_path, [mbp(at), mbp(at + 1, iid=made.ESM4, bid=20_220, ask=20_221)], mappings=both)
    assert [(s.symbol, s.rows, s.low_bid) for s in found] == [("ESH4", 1, 20_000), ("ESM4", 1, 20_220)]
    text = sessions.markdown(found * 30, limit=4)
    assert len(text.splitlines()) == 2 + 4 + 2 and text.endswith("56 sessions between are left out.")


def test_the_real_hour(real_data: Path, tmp_path: Path) -> None:
    name = "nautilus_trader/esh4-glbx-mdp3-20231225.mbo.dbn.zst"
    snapshots.decode(real_data / name, tmp_path, ES, 250)
    (found,) = sessions.session_table(tmp_path)
    assert (found.trade_date, found.rows, found.trades, found.lots) == ("2023-12-26", 14_398, 2_973, 9_848)
    assert (found.crossed, found.one_sided, found.note) == (0, 0, "")


@pytest.mark.parametrize("mode", ["front_month", "all", "volume", "ESH4"])
@pytest.mark.parametrize("grid_ms", [0, 250])
def test_the_real_hour_in_every_mode_is_the_same_hour(real_data: Path, tmp_path: Path, mode: str, grid_ms: int) -> None:
    name = "nautilus_trader/esh4-glbx-mdp3-20231225.mbo.dbn.zst"
    report = snapshots.decode(real_data / name, tmp_path, ES, grid_ms, mode)
    snapshots.validate(tmp_path)
    (found,) = sessions.session_table(tmp_path)
    assert report["trades"] == found.trades == 2_973 and report["instruments"] == ["ESH4"]
    assert found.rows == (14_398 if grid_ms else 46_097)
    # with the 22:39 to 23:00 UTC pre-open, which is in no session
    assert report["rows"] == (18_573 if grid_ms else 47_022) and report["rows_in_segments"] == found.rows
    facts = inspect.inspect(real_data / name)
    assert facts["usable"] and facts["records"] == report["records"] == 68_792
    assert facts["event_ends"] == report["event_ends"] == 47_022 and facts["lots"] == report["trade_lots"] == 9_892
    assert facts["event_ends"] - facts["records_outside_sessions"] == 46_097, "each of those outside is an event's end"
