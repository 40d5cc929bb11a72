"""Trading windows: daylight saving, the old afternoon halt, holidays and where the library's calendar is wrong."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from itertools import pairwise

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


def test_the_afternoon_halt_ended_on_28_june_2021() -> None:
    before = calendar.windows(date(2021, 6, 25), date(2021, 6, 25))
    assert [(w.open_ns, w.close_ns) for w in before] == [
        (ns("2021-06-24T22:00:00"), ns("2021-06-25T20:15:00")),
        (ns("2021-06-25T20:30:00"), ns("2021-06-25T21:00:00")),
    ]
    assert len(calendar.windows(date(2021, 6, 28), date(2021, 6, 28))) == 1


@pytest.mark.parametrize(
    ("day", "close"),
    [
        (date(2024, 1, 15), time(12)),  # Martin Luther King
        (date(2024, 6, 19), time(12)),  # Juneteenth: not in the library
        (date(2022, 6, 20), time(12)),  # observed on Monday
        (date(2021, 6, 18), time(16)),  # before the exchange kept it
        (date(2023, 11, 24), time(12, 15)),  # the library says 12:00
        (date(2024, 12, 24), time(12, 15)),
        (date(2024, 7, 3), time(12, 15)),
        (date(2024, 7, 4), time(12)),
        (date(2024, 12, 25), None),
        (date(2024, 3, 29), None),  # Good Friday
        (date(2023, 4, 7), time(8, 15)),  # Good Friday with an employment report: the library has it closed
        (date(2026, 4, 3), time(8, 15)),
        (date(2022, 4, 15), None),
        (date(2023, 6, 19), time(12)),
        (date(2027, 6, 18), time(12)),  # Juneteenth on a Saturday is kept on Friday
        (date(2024, 3, 28), time(16)),
    ],
)
def test_early_closes_and_holidays(day: date, close: time | None) -> None:
    assert calendar.calendar_close(day) == close
    window = calendar.windows(day, day)[-1]
    assert window.shut_ns == (window.open_ns if close is None else calendar.chicago_ns(day, close))
    assert window.close_ns == calendar.chicago_ns(day, time(16)), "the weekly rule stands behind the holiday"


def test_an_early_close_bounds_the_session() -> None:
    assert calendar.session_bounds(date(2024, 7, 4)) == (ns("2024-07-03T22:00:00"), ns("2024-07-04T17:00:00"))


def test_chicago_date_is_not_the_utc_date() -> None:
    assert calendar.chicago_date(ns("2024-03-11T04:59:59")) == date(2024, 3, 10)
    assert calendar.chicago_date(ns("2024-03-11T05:00:00")) == date(2024, 3, 11)


@pytest.mark.parametrize("year", range(2012, 2031))
def test_every_weekday_of_a_year_has_an_answer_and_holidays_are_few(year: int) -> None:
    days = [date(year, 1, 1) + timedelta(n) for n in range(365)]
    closes = [calendar.calendar_close(day) for day in days if day.weekday() < 5]
    assert 1 <= closes.count(None) <= 4 and 6 <= sum(c not in (None, time(16)) for c in closes) <= 14


def test_the_utc_hour_of_the_open_moves_with_daylight_saving_and_the_local_one_never() -> None:
    opens = [w.open_ns for w in calendar.windows(date(2024, 1, 2), date(2024, 12, 31))]
    hours = {datetime.fromtimestamp(t // 10**9, UTC).hour for t in opens}
    assert hours == {22, 23}
    assert {datetime.fromtimestamp(t // 10**9, calendar.CHICAGO).time() for t in opens} == {time(17)}
    changes = [b for a, b in pairwise(opens) if (b - a) % (24 * 3600 * 10**9)]
    assert [str(calendar.chicago_date(t)) for t in changes] == ["2024-03-10", "2024-11-03"]
