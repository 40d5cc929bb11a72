"""Trading windows: daylight saving, the old afternoon halt, holidays and where the library's calendar is wrong."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from itertools import pairwise
from pathlib import Path

import databento
import pytest

from foxhunt_assets.market import calendar
from tests.market.made_dbn import ns


@pytest.mark.parametrize(
    ("day", "opens", "closes"),
    [
        (date(2024, 3, 8), "2024-03-07T23:00:00", "2024-03-08T22:00:00"),  # Friday, winter time
        (date(2024, 3, 11), "2024-03-10T22:00:00", "2024-03-11T21:00:00"),  # Monday after the clocks changed
        (date(2024, 11, 4), "2024-11-03T23:00:00", "2024-11-04T22:00:00"),  # and back
        (date(2023, 12, 26), "2023-12-25T23:00:00", "2023-12-26T22:00:00"),  # opens on Christmas night
    ],
)
def test_sessions_keep_chicago_time(day: date, opens: str, closes: str) -> None:
    (window,) = calendar.windows(day, day)
    assert (window.open_ns, window.close_ns, window.shut_ns) == (ns(opens), ns(closes), ns(closes))
    assert calendar.session_bounds(day) == (ns(opens), ns(closes))


def test_a_week_has_five_sessions_with_the_break_between() -> None:
    week = calendar.windows(date(2024, 2, 4), date(2024, 2, 11))  # Sunday to Sunday
    assert [w.trade_date.day for w in week] == [5, 6, 7, 8, 9]
    hour = 3600 * 10**9
    assert [b.open_ns - a.close_ns for a, b in pairwise(week)] == [hour] * 4


# What closed early or not at all, month and day, as the tests of pandas_market_calendars' CME Globex equities calendar
# have it from the exchange's schedules; every other weekday of these years was whole.
CLOSES = {
    2010: {"closed": "0101 1224", "10:30": "0118 0215 0531 0705 0906 1125", "08:15": "0402", "12:15": "1126"},
    2011: {"closed": "0422 1226", "10:30": "0117 0221 0530 0704 0905 1124", "12:15": "1125"},
    2012: {
        "closed": "0102 1225", "10:30": "0116 0220 0528 0704 0903 1122", "12:15": "0703 1123 1224",
        "08:15": "0406 1029 1030",  # October's are not in those tests: CME's notices of 28 and 29 October 2012
    },
    2013: {"closed": "0101 0329 1225", "10:30": "0121 0218 0527 0704 0902 1128", "12:15": "0703 1129 1224"},
    2014: {
        "closed": "0101 0418 1225", "10:30": "0120 0217", "12:00": "0526 0704 0901 1127", "12:15": "0703 1128 1224",
    },
    2015: {"closed": "0101 1225", "12:00": "0119 0216 0525 0703 0907 1126", "08:15": "0403", "12:15": "1127 1224"},
    2016: {"closed": "0101 0325 1226", "12:00": "0118 0215 0530 0704 0905 1124", "12:15": "1125"},
    2017: {"closed": "0102 0414 1225", "12:00": "0116 0220 0529 0704 0904 1123", "12:15": "0703 1124"},
    2018: {
        "closed": "0101 0330 1225", "12:00": "0115 0219 0528 0704 0903 1122", "12:15": "0703 1123 1224",
        "08:30": "1205",  # not in those tests: CME's press release of 2 December 2018
    },
    2019: {"closed": "0101 0419 1225", "12:00": "0121 0218 0527 0704 0902 1128", "12:15": "0703 1129 1224"},
    2020: {"closed": "0101 0410 1225", "12:00": "0120 0217 0525 0703 0907 1126", "12:15": "1127 1224"},
    2021: {"closed": "0101 1224", "12:00": "0118 0215 0531 0705 0906 1125", "08:15": "0402", "12:15": "1126"},
    2022: {"closed": "0415 1226", "12:00": "0117 0221 0530 0620 0704 0905 1124", "12:15": "1125"},
}  # fmt: skip


@pytest.mark.parametrize("year", CLOSES)
def test_every_weekday_of_thirteen_years_closes_when_the_exchange_closed(year: int) -> None:
    special = {day: close for close, days in CLOSES[year].items() for day in days.split()}
    days = [date(year, 1, 1) + timedelta(n) for n in range(365)]
    for day in (d for d in days if d.weekday() < 5):
        said = special.pop(f"{day:%m%d}", None)
        want = None if said == "closed" else time.fromisoformat(said) if said else calendar.regular_close(day)
        assert calendar.calendar_close(day) == want, day
    assert not special


@pytest.mark.parametrize(
    ("day", "close"),
    [
        (date(2023, 4, 7), time(8, 15)),  # pandas_market_calendars#244: Good Friday with an employment report
        (date(2023, 11, 24), time(12, 15)),
        (date(2024, 1, 15), time(12)),  # forexlive.com, 12 January 2024
        (date(2024, 6, 19), time(12)),  # forexlive.com, 17 June 2024
        (date(2024, 7, 3), time(12, 15)),
        (date(2024, 7, 4), time(12)),
        (date(2024, 11, 28), time(12)),  # forexlive.com, 28 November 2024
        (date(2024, 12, 24), time(12, 15)),
        (date(2025, 1, 9), time(8, 30)),  # CME's press release of 30 December 2024
        (date(2025, 1, 20), time(12)),  # forexlive.com, 19 January 2025
        (date(2025, 4, 18), None),  # barrons.com, 18 April 2025: no report that day
        (date(2026, 4, 3), time(8, 15)),  # pandas_market_calendars#456
        (date(2026, 6, 19), time(12)),  # pandas_market_calendars#464, this and the next three
        (date(2026, 7, 3), time(12)),
        (date(2026, 9, 7), time(12)),
        (date(2026, 11, 27), time(12, 15)),
        (date(2027, 6, 18), time(12)),  # Juneteenth on a Saturday is kept on Friday
        (date(2021, 6, 18), time(16)),  # before the exchange kept it
        (date(2024, 3, 28), time(16)),
    ],
)
def test_early_closes_and_holidays(day: date, close: time | None) -> None:
    assert calendar.calendar_close(day) == close
    window = calendar.windows(day, day)[-1]
    assert window.shut_ns == (window.open_ns if close is None else calendar.chicago_ns(day, close))
    assert window.close_ns == calendar.chicago_ns(day, time(16)), "the weekly rule stands behind the holiday"


@pytest.mark.parametrize(
    ("day", "windows"),
    [
        (date(2012, 11, 12), [("17:00", "15:15")]),  # a Monday: nothing on the Friday or Sunday before
        (date(2012, 11, 16), [("15:30", "16:30"), ("17:00", "15:15")]),  # the last Friday of the old hours
        (date(2012, 11, 19), [("17:00", "15:15"), ("15:30", "16:15")]),
        (date(2015, 9, 18), [("17:00", "15:15"), ("15:30", "16:15")]),
        (date(2015, 9, 21), [("17:00", "15:15"), ("15:30", "16:00")]),
        (date(2021, 6, 25), [("17:00", "15:15"), ("15:30", "16:00")]),
        (date(2021, 6, 28), [("17:00", "16:00")]),
    ],
)
def test_the_hours_of_the_week_changed_three_times(day: date, windows: list[tuple[str, str]]) -> None:
    def clock(t: int) -> str:
        return f"{datetime.fromtimestamp(t // 10**9, calendar.CHICAGO):%H:%M}"

    assert [(clock(w.open_ns), clock(w.close_ns)) for w in calendar.windows(day, day)] == windows


def test_the_hour_that_belonged_to_the_next_day_is_shut_beside_a_holiday() -> None:
    """Labor Day 2012 closed at 10:30 and reopened at 17:00; nothing traded for Good Friday 2011 on the Thursday."""
    afternoon, night = calendar.windows(date(2012, 9, 4), date(2012, 9, 4))
    assert (afternoon.open_ns, afternoon.close_ns) == (ns("2012-09-03T20:30:00"), ns("2012-09-03T21:30:00"))
    assert afternoon.shut_ns == afternoon.open_ns and night.shut_ns == night.close_ns
    assert calendar.session_bounds(date(2012, 9, 4)) == (ns("2012-09-03T22:00:00"), ns("2012-09-04T20:15:00"))
    assert calendar.session_bounds(date(2012, 9, 5))[0] == ns("2012-09-04T20:30:00")
    assert [w.shut_ns - w.open_ns for w in calendar.windows(date(2011, 4, 22), date(2011, 4, 22))] == [0, 0]


def test_windows_lie_in_order_of_time_across_the_old_hours() -> None:
    found = calendar.windows(date(2012, 10, 1), date(2012, 12, 31))
    assert all(a.close_ns <= b.open_ns for a, b in pairwise(found)) and len(found) > 100


def test_the_exchange_s_own_status_records_show_the_open_and_the_old_halt(real_data: Path) -> None:
    """ESH1 on 28 December 2020: trading until 15:15 Chicago, paused, trading again from 15:30."""
    path = real_data / "dbn/test_data.status.v3.dbn.zst"
    changes = [(r.ts_event, r.is_trading) for r in databento.DBNStore.from_file(path)]
    opens = {t for t, is_trading in changes if is_trading}
    paused = min(t for t, is_trading in changes if not is_trading)
    first, second = calendar.windows(date(2020, 12, 28), date(2020, 12, 28))
    assert opens == {first.open_ns, second.open_ns} and paused == first.close_ns


def test_the_first_real_trade_of_christmas_night_is_at_the_calendar_s_open(real_data: Path) -> None:
    path = real_data / "nautilus_trader/esh4-glbx-mdp3-20231225.mbo.dbn.zst"
    records = databento.DBNStore.from_file(path).to_ndarray()
    opened, closed = calendar.session_bounds(date(2023, 12, 26))
    times = records["ts_event"][records["action"] == b"T"]
    assert times.min() == opened and times.max() < closed
    assert calendar.calendar_close(date(2023, 12, 25)) is None, "and none of Christmas Day's own session"


def test_an_early_close_bounds_the_session() -> None:
    assert calendar.session_bounds(date(2024, 7, 4)) == (ns("2024-07-03T22:00:00"), ns("2024-07-04T17:00:00"))


def test_chicago_date_is_not_the_utc_date() -> None:
    assert calendar.chicago_date(ns("2024-03-11T04:59:59")) == date(2024, 3, 10)
    assert calendar.chicago_date(ns("2024-03-11T05:00:00")) == date(2024, 3, 11)


def test_the_utc_hour_of_the_open_moves_with_daylight_saving_and_the_local_one_never() -> None:
    opens = [w.open_ns for w in calendar.windows(date(2024, 1, 2), date(2024, 12, 31))]
    hours = {datetime.fromtimestamp(t // 10**9, UTC).hour for t in opens}
    assert hours == {22, 23}
    assert {datetime.fromtimestamp(t // 10**9, calendar.CHICAGO).time() for t in opens} == {time(17)}
    changes = [b for a, b in pairwise(opens) if (b - a) % (24 * 3600 * 10**9)]
    assert [str(calendar.chicago_date(t)) for t in changes] == ["2024-03-10", "2024-11-03"]
