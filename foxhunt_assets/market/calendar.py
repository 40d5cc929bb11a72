"""When CME Globex equity-index futures trade. Local Chicago time throughout, so daylight saving needs no rule.

A trade date's session opens at 17:00 the evening before and closes at 16:00, Monday to Friday (CME Globex hours of
the equity-index products since 2015; earlier years closed later and their last minutes count as outside). Until
25 June 2021 trading also stopped from 15:15 to 15:30.

Holidays and early closes come from the CMES calendar of exchange_calendars, which is not always right: it has every
Good Friday as closed, knows no Juneteenth and no 3 July, and has 12:00 where equity-index products close at 12:15.
What we know is corrected here; for the rest the calendar only says when a window is `shut`, and a trade printed in
it proves the calendar wrong (see grid.py). A close that it does not know shows as a silence until the next session,
and ends the segment where the data end; `sessions.py` lists both kinds of disagreement.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

CHICAGO = ZoneInfo("America/Chicago")
OPEN, CLOSE = time(17), time(16)
HALT, HALT_OVER = time(15, 15), time(15, 30)
NO_HALT_SINCE = date(2021, 6, 28)
_SHORT_CLOSE, _NOON = time(12, 15), time(12)
_JUNETEENTH_SINCE = 2022
# Good Fridays with an employment report at 7:30: equity-index futures trade until 8:15.
_OPEN_GOOD_FRIDAYS = (date(2012, 4, 6), date(2015, 4, 3), date(2021, 4, 2), date(2023, 4, 7), date(2026, 4, 3))
_GOOD_FRIDAY_CLOSE = time(8, 15)


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
    close = max((w.shut_ns for w in parts if w.shut_ns > w.open_ns), default=parts[-1].close_ns)
    return parts[0].open_ns, close


def chicago_date(ts_ns: int) -> date:
    """Calendar date in Chicago of an instant."""
    return datetime.fromtimestamp(ts_ns // 10**9, CHICAGO).date()


def chicago_ns(day: date, at: time) -> int:
    """ns UTC of a Chicago wall-clock time."""
    return int(datetime.combine(day, at, CHICAGO).timestamp()) * 10**9


def calendar_close(day: date) -> time | None:
    """Closing time of a trade date by the holiday calendar; None where it says closed all day."""
    if day in _OPEN_GOOD_FRIDAYS:
        return _GOOD_FRIDAY_CLOSE
    known = _cmes(day.year)
    if day.year >= _JUNETEENTH_SINCE and day == _observed(date(day.year, 6, 19)):
        return _NOON
    close = known.get(day)
    black_friday = day.month == 11 and day.weekday() == 4
    if close == _NOON and (black_friday or (day.month, day.day) == (12, 24)):
        return _SHORT_CLOSE
    if close == CLOSE and (day.month, day.day) == (7, 3):
        return _SHORT_CLOSE
    return close


def _windows_of(day: date) -> list[Window]:
    close = calendar_close(day)
    start, end = chicago_ns(day - timedelta(1), OPEN), chicago_ns(day, CLOSE)
    shut = start if close is None else chicago_ns(day, close)
    spans = [(start, end)]
    if day < NO_HALT_SINCE:
        spans = [(start, chicago_ns(day, HALT)), (chicago_ns(day, HALT_OVER), end)]
    return [Window(day, a, b, min(max(shut, a), b)) for a, b in spans]


def _observed(day: date) -> date:
    """A holiday on a Saturday is kept on Friday, on a Sunday on Monday."""
    return day + timedelta({5: -1, 6: 1}.get(day.weekday(), 0))


@lru_cache(maxsize=64)
def _cmes(year: int) -> dict[date, time | None]:
    """Closing time of each weekday of a year by CMES; None: closed."""
    import exchange_calendars  # brings pandas: only decoding pays for it

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its own use of deprecated pandas, nothing a user can act on
        calendar = exchange_calendars.get_calendar("CMES", start=f"{year}-01-01", end=f"{year}-12-31")
    early = set(calendar.early_closes.date)
    opened = set(calendar.sessions.date)
    days = (date(year, 1, 1) + timedelta(n) for n in range(366))
    return {
        day: None if day not in opened else _NOON if day in early else CLOSE
        for day in days
        if day.year == year and day.weekday() < 5
    }
