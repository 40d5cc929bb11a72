"""When CME Globex equity-index futures trade. Local Chicago time throughout, so daylight saving needs no rule.

A trade date's session opens at 17:00 the evening before. What is known of it, and from where:
- it closes at 16:00 since 21 September 2015 (NinjaTrader advisory 25 of 15 September 2015), before that at 16:15, and
  before 19 November 2012 at 15:15 (CME's letter on daily price limits, reprinted by eminiroom.com on 11 April 2013);
- before that day the hour from 15:30 to 16:30 of Monday to Thursday belonged to the next trade date (CME's hours as
  quoted on elitetrader.com on 21 November 2010; traderhabits.com on the change; pandas_market_calendars#242). After a
  holiday's early close it did not reopen before 17:00 (CME's schedule for Labor Day 2007, a broker's for 4 July 2013);
- it stopped from 15:15 to 15:30 until 25 June 2021 (CME Globex notices of 21 June 2021; the trading status records of
  ESH1 on 28 December 2020);
- on a holiday it closes at 12:00, and before Memorial Day 2014 at 10:30 (the tests of pandas_market_calendars' CME
  Globex equities calendar for 2009 to 2022; notices of brokers for 4 July 2013 and 20 January 2014);
- Juneteenth is such a holiday since 2022 (daytradetowin.com for 20 June 2022, forexlive.com for 19 June 2024,
  exchange_calendars#585);
- the day after Thanksgiving, Christmas Eve and a 3 July that no holiday falls on close at 12:15 (the same tests; a
  broker's notice of 3 July 2013, zerohedge.com of 24 December 2013, pandas_market_calendars#464 for 2026);
- a Good Friday with an employment report is open until 8:15: 2010, 2012, 2015 and 2021 (the same tests), 2023
  (pandas_market_calendars#244 and #311), 2026 (#456). The others are closed, 2025 too (barrons.com, 18 April 2025);
- two national days of mourning closed at 8:30: 5 December 2018 and 9 January 2025 (CME's press releases of 2 December
  2018 and 30 December 2024);
- for hurricane Sandy it closed at 8:15 on 29 and 30 October 2012 (CME's notices of 28 and 29 October 2012).

Which days are holidays comes from the CMES calendar of exchange_calendars, which has every Good Friday and day of
mourning as closed, no 3 July, up to version 4.13.2 no Juneteenth, and one closing time for all. A day that is wrong
here all the same does no harm: the calendar only says when a window is `shut`, and a trade printed in it proves the
calendar wrong (see grid.py). A close that it does not know shows as a silence until the next session, and ends the
segment where the data end; `sessions.py` lists both kinds of disagreement.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

CHICAGO = ZoneInfo("America/Chicago")
OPEN = time(17)
_ONE_OPEN_SINCE, _EVENING_OVER = date(2012, 11, 19), time(16, 30)  # before, the next trade date began at HALT_OVER
_CLOSES = ((date(2015, 9, 21), time(16)), (_ONE_OPEN_SINCE, time(16, 15)), (date.min, time(15, 15)))  # since
HALT, HALT_OVER = time(15, 15), time(15, 30)
NO_HALT_SINCE = date(2021, 6, 28)
_HOLIDAY_CLOSES = ((date(2014, 5, 26), time(12)), (date.min, time(10, 30)))  # since
_SHORT_CLOSE = time(12, 15)
_JUNETEENTH_SINCE = 2022
_SPECIAL_CLOSES = {
    **dict.fromkeys(
        (date(2010, 4, 2), date(2012, 4, 6), date(2015, 4, 3), date(2021, 4, 2), date(2023, 4, 7), date(2026, 4, 3)),
        time(8, 15),  # Good Fridays
    ),
    **dict.fromkeys((date(2018, 12, 5), date(2025, 1, 9)), time(8, 30)),  # days of mourning
    **dict.fromkeys((date(2012, 10, 29), date(2012, 10, 30)), time(8, 15)),  # a hurricane
}


@dataclass(frozen=True)
class Window:
    """One stretch in which trading is open: [open_ns, close_ns) UTC. From shut_ns on, the calendar says holiday."""

    trade_date: date
    open_ns: int
    close_ns: int
    shut_ns: int


def windows(first: date, last: date) -> list[Window]:
    """All windows of the trade dates first..last, in order of time."""
    days = (first + timedelta(n) for n in range((last - first).days + 1))
    return [window for day in days if day.weekday() < 5 for window in _windows_of(day)]


def session_bounds(trade_date: date) -> tuple[int, int]:
    """(open, close) of a trade date's session in ns UTC, by the weekly rule and the early closes."""
    parts = _windows_of(trade_date)
    open_parts = [w for w in parts if w.shut_ns > w.open_ns]
    return (open_parts[0].open_ns, open_parts[-1].shut_ns) if open_parts else (parts[0].open_ns, parts[-1].close_ns)


def chicago_date(ts_ns: int) -> date:
    """Calendar date in Chicago of an instant."""
    return datetime.fromtimestamp(ts_ns // 10**9, CHICAGO).date()


def chicago_ns(day: date, at: time) -> int:
    """ns UTC of a Chicago wall-clock time."""
    return int(datetime.combine(day, at, CHICAGO).timestamp()) * 10**9


def regular_close(day: date) -> time:
    """Closing time of a trade date by the weekly rule."""
    return _at(_CLOSES, day)


def calendar_close(day: date) -> time | None:
    """Closing time of a trade date by the holiday calendar; None where it says closed all day."""
    if day in _SPECIAL_CLOSES:
        return _SPECIAL_CLOSES[day]
    closed, early = _cmes(day.year)
    if day in closed:
        return None
    day_after_thanksgiving = day in early and day.month == 11 and day.weekday() == 4
    if day_after_thanksgiving or (day in early and (day.month, day.day) == (12, 24)):
        return _SHORT_CLOSE
    if day in early or (day.year >= _JUNETEENTH_SINCE and day == _observed(date(day.year, 6, 19))):
        return _at(_HOLIDAY_CLOSES, day)
    return _SHORT_CLOSE if (day.month, day.day) == (7, 3) else regular_close(day)


def _at(since: tuple[tuple[date, time], ...], day: date) -> time:
    """The newest rule that holds on a day."""
    return next(close for first, close in since if day >= first)


def _windows_of(day: date) -> list[Window]:
    close, regular = calendar_close(day), regular_close(day)
    start, end = chicago_ns(day - timedelta(1), OPEN), chicago_ns(day, regular)
    shut = start if close is None else chicago_ns(day, close)
    spans = [(start, end)]
    if day < NO_HALT_SINCE and regular > HALT:
        spans = [(start, chicago_ns(day, HALT)), (chicago_ns(day, HALT_OVER), end)]
    found = [Window(day, a, b, min(max(shut, a), b)) for a, b in spans]
    if day < _ONE_OPEN_SINCE and day.weekday() > 0:
        found.insert(0, _evening(day - timedelta(1), day, closed=close is None))
    return found


def _evening(before: date, day: date, closed: bool) -> Window:
    """The hour after the halt of the day before, in the years in which it belonged to the next trade date."""
    a, b = chicago_ns(before, HALT_OVER), chicago_ns(before, _EVENING_OVER)
    return Window(day, a, b, a if closed or calendar_close(before) != regular_close(before) else b)


def _observed(day: date) -> date:
    """A holiday on a Saturday is kept on Friday, on a Sunday on Monday."""
    return day + timedelta({5: -1, 6: 1}.get(day.weekday(), 0))


@lru_cache(maxsize=64)
def _cmes(year: int) -> tuple[frozenset[date], frozenset[date]]:
    """(weekdays of a year that CMES has as closed, those that it has as closing early)."""
    import exchange_calendars  # brings pandas: only decoding pays for it

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its own use of deprecated pandas, nothing a user can act on
        calendar = exchange_calendars.get_calendar("CMES", start=f"{year}-01-01", end=f"{year}-12-31")
    opened = set(calendar.sessions.date)
    days = (date(year, 1, 1) + timedelta(n) for n in range(366))
    closed = (day for day in days if day.year == year and day.weekday() < 5 and day not in opened)
    return frozenset(closed), frozenset(calendar.early_closes.date)
