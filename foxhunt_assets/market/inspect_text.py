"""The facts of `inspect` as a page of text: aligned, and one screen for an ordinary file."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import accumulate, pairwise
from typing import Any

from foxhunt_assets.contracts.instruments import PRICE_SCALE
from foxhunt_assets.market.calendar import CHICAGO

_LABEL = 13
_INSTRUMENTS, _SESSIONS, _SPREADS, _GAPS, _NOTES = 8, 6, 5, 2, 5  # lines or entries shown; --json has all
_MILLIS_BELOW = 60 * 10**9  # ns: a shorter span is shown to the millisecond
_DAY = "%Y-%m-%d"
GLOBEX_DAY = "trade date"  # session_kind of CME Globex, whose times are Chicago's

Facts = dict[str, Any]


def text(facts: Facts) -> str:
    """The page, without a line end."""
    return "\n".join(_folder(facts) if "files" in facts else _file(facts))


def _file(facts: Facts) -> list[str]:
    lines = [f"{facts['file']}  {facts['bytes']:,} bytes" + ("  (synthetic)" if facts["synthetic"] else "")]
    lines += _line("format", _format(facts)) + _line("with", facts.get("with", ""))
    if facts["records"]:
        lines += _line("request", _request(facts)) if "DBN" in facts["encoding"] else []
        lines += _line("received", _range(facts["first"], facts["last"], UTC, "UTC"))
        if facts["session_kind"] == GLOBEX_DAY:
            lines += _line("", _range(facts["first"], facts["last"], CHICAGO, "Chicago"))
        lines += _line("records", _records(facts))
        lines += _line("flags", _counts(facts["flags"]))
    elif "DBN" in facts["encoding"]:
        lines += _line("request", _request(facts)) + _line("records", "none")
    lines += ["", *_instruments(facts["instruments"])] if facts["instruments"] else []
    lines += ["", *_sessions(facts)] if facts["records"] and facts["session_kind"] else []
    books = [*_line("spread", _spread(facts)), *_line("book", _book(facts))] if facts.get("event_ends") else []
    silences = _line("silences", _gaps(facts)) if facts.get("sessions") and facts["actions"] else []
    lines += ["", *books, *silences] if books + silences else []
    lines.append("")
    lines += _list("warning", facts["warnings"])
    lines += _list("problem", facts["problems"][1:])
    return lines + _line("verdict", facts["verdict"])


def _folder(facts: Facts) -> list[str]:
    width = max((len(name) for name in facts["files"]), default=0)
    lines = [f"{facts['folder']}  batch of {len(facts['files'])} files"]
    lines += [f"  {name:<{width}}  {state}" for name, state in facts["files"].items()]
    lines += _list("day", [f"{day} {condition}" for day, condition in facts["bad_days"].items()])
    lines += _line("days", f"{len(facts['conditions'])} in condition.json, {len(facts['bad_days'])} not available")
    return lines + _line("verdict", facts["verdict"])


def _line(label: str, value: str) -> list[str]:
    return [f"{label:<{_LABEL}}{value}".rstrip()] if value else []


def _list(label: str, entries: list[str]) -> list[str]:
    lines = [line for n, entry in enumerate(entries[:_NOTES]) for line in _line(label if n == 0 else "", entry)]
    return lines + (_line("", f"... and {len(entries) - _NOTES} more") if len(entries) > _NOTES else [])


def _format(facts: Facts) -> str:
    packed = "not compressed" if facts["compression"] == "none" else str(facts["compression"])
    if facts.get("frames"):
        packed += f" in {facts['frames']} frame" + ("s" if facts["frames"] > 1 else "")
    parts = [facts["encoding"], packed, f"schema {facts['schema'] or 'mixed'}"]
    if facts["dataset"] != "unknown":
        parts.append(f"dataset {facts['dataset']}")
    if facts["ts_out"]:
        parts.append("with send times")
    return ", ".join(parts)


def _request(facts: Facts) -> str:
    symbols = facts["symbols"]
    named = ", ".join(symbols[:4]) + (f" ... ({len(symbols)})" if len(symbols) > 4 else "") or "no symbols"
    kind = f" ({facts['stype_in']})" if facts["stype_in"] else ""
    if not facts["request_start"]:
        return named + kind
    end = "open end" if facts["request_end"] is None else _instant(facts["request_end"], UTC, seconds=False)
    return f"{named}{kind}, {_instant(facts['request_start'], UTC, seconds=False)} to {end} UTC"


def _instant(ns: int, zone: Any, seconds: bool = True, millis: bool = False) -> str:
    at = datetime.fromtimestamp(ns // 10**9, zone)
    shown = at.strftime(f"{_DAY} %H:%M:%S" if seconds or at.second else f"{_DAY} %H:%M")
    return shown + (f".{ns // 10**6 % 1000:03d}" if millis else "")


def _range(first: int | None, last: int | None, zone: Any, name: str) -> str:
    if first is None or last is None:
        return "" if name == "Chicago" else "no record has a usable time"
    a, b = (_instant(t, zone, millis=last - first < _MILLIS_BELOW) for t in (first, last))
    return f"{a} to {b[11:] if a[:10] == b[:10] else b} {name}"


def _records(facts: Facts) -> str:
    kinds = facts["records_by_kind"]
    parts = [f"{facts['records']:,}"]
    if len(kinds) > 1:
        parts.append(f"({_counts(kinds)})")
    if facts["actions"]:
        parts.append("  actions " + ", ".join(f"{a} {n:,}" for a, n in facts["actions"].items()))
    return " ".join(parts)


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{name} {n:,}" for name, n in counts.items())


def _instruments(found: list[Facts]) -> list[str]:
    head = ("instrument", "id", "kind", "mapped (UTC days)", "records", "trades", "lots")
    shown = found[:_INSTRUMENTS]
    rows = [
        (
            i["symbol"], str(i["instrument_id"]), i["kind"], _mapped(i["mapped"]), f"{i['records']:,}",
            f"{i['trades']:,}", f"{i['lots']:,}",
        )
        for i in shown
    ]  # fmt: skip
    lines = _table([head, *rows], left=4)
    if len(found) > len(shown):
        rest = found[_INSTRUMENTS:]
        kinds = {k: sum(i["kind"] == k for i in rest) for k in ("outright", "series", "instrument", "spread")}
        listed = ", ".join(f"{n} {kind}{'s' if n > 1 else ''}" for kind, n in kinds.items() if n)
        lines.append(f"{'':<{_LABEL}}... and {listed}, {sum(i['records'] for i in rest):,} records")
    return lines


def _mapped(intervals: list[list[int]]) -> str:
    """First and last day, both of them included: the end of an interval is exclusive."""
    first, last = _day(intervals[0][0]), _day(intervals[-1][1] - 1)
    broken = any(a[1] != b[0] for a, b in pairwise(intervals))
    return (first if first == last else f"{first} to {last}") + (" with breaks" if broken else "")


def _day(ns: int) -> str:
    return datetime.fromtimestamp(ns // 10**9, UTC).strftime(_DAY)


def _table(rows: list[tuple[str, ...]], left: int) -> list[str]:
    """Columns side by side; the first `left` of them flush left, the others flush right."""
    widths = [max(len(row[n]) for row in rows) for n in range(len(rows[0]))]
    widths[0] = max(widths[0], _LABEL - 2)
    cells = (
        [f"{cell:<{w}}" if n < left else f"{cell:>{w}}" for n, (cell, w) in enumerate(zip(row, widths, strict=True))]
        for row in rows
    )
    return ["  ".join(row).rstrip() for row in cells]


def _sessions(facts: Facts) -> list[str]:
    zone: Any = CHICAGO if facts["session_kind"] == GLOBEX_DAY else UTC
    place = "Chicago" if zone is CHICAGO else "UTC"
    sessions = facts["sessions"]
    rows = [
        (s["date"], _instant(s["first"], zone), _instant(s["last"], zone)[11:], f"{s['records']:,}", s["lead"] or "")
        for s in sessions[:_SESSIONS]
    ]
    lead = "lead month" if any(s["lead"] for s in sessions) else ""
    head = (facts["session_kind"], f"first ({place})", "last", "records", lead)
    lines = _table([head, *rows], left=3) if rows else []
    if len(sessions) > _SESSIONS:
        lines.append(f"{'':<{_LABEL}}... and {len(sessions) - _SESSIONS} more, to {sessions[-1]['date']}")
    if facts["records_snapshot"]:
        lines += _line("before", f"{_count(facts['records_snapshot'], 'record')} of the opening book snapshot")
    if facts["records_outside_sessions"]:
        lines += _line("outside", f"{_count(facts['records_outside_sessions'], 'record')} in no session")
    return lines


def _count(n: int, noun: str) -> str:
    return f"{n:,} {noun}" + ("" if n == 1 else "s")


def _spread(facts: Facts) -> str:
    """Of the outright (or other instrument) with most records."""
    priced = [i for i in facts["instruments"] if i["spreads"] and i["kind"] != "spread"]
    if not priced:
        return ""
    one = priced[0]
    source = "" if one["tick_from"] == "contract" else " (from its prices)"
    return f"{one['symbol']} in ticks of {one['tick'] / PRICE_SCALE:g}{source}: {_distribution(one['spreads'])}"


def _distribution(counts: dict[str, int]) -> str:
    """All widths where they are few, else quantiles and the most common ones."""
    total, widths = sum(counts.values()), sorted(counts, key=float)
    listed = {w: f"{w} ({counts[w] / total:.1%})" for w in widths}
    if len(widths) <= _SPREADS:
        return ", ".join(listed.values())
    reached = list(accumulate(counts[w] for w in widths))
    low, middle, high = (widths[next(n for n, c in enumerate(reached) if c >= q * total)] for q in (0.05, 0.5, 0.95))
    common = sorted(widths, key=lambda w: -counts[w])[:2]
    return f"median {middle}, 5% to 95% {low} to {high}, most often {', '.join(listed[w] for w in common)}"


def _book(facts: Facts) -> str:
    ends = "event ends" if facts["actions"] else "samples"
    outside = facts["crossed_or_locked_outside_sessions"]
    where = f", {outside:,} of them outside sessions" if outside else ""
    return (
        f"{facts['event_ends']:,} {ends}: {facts['crossed']:,} crossed, {facts['locked']:,} locked{where}; "
        f"{facts['one_sided']:,} one-sided"
    )


def _gaps(facts: Facts) -> str:
    longest = facts["longest_silence_ns"] / 1e9
    unit = "session" if facts["session_kind"] == GLOBEX_DAY else "day"
    if not facts["gap_count"]:
        return f"none over {facts['gap_s']:g} s in a {unit}, the longest {longest:.1f} s"
    zone: Any = CHICAGO if facts["session_kind"] == GLOBEX_DAY else UTC
    longest_first = sorted(facts["gaps"], key=lambda g: g["from"] - g["to"])[:_GAPS]
    listed = ", ".join(f"{_instant(g['from'], zone)} ({(g['to'] - g['from']) / 1e9:,.0f} s)" for g in longest_first)
    which = ", the longest" if facts["gap_count"] > _GAPS else ""
    return f"{facts['gap_count']:,} over {facts['gap_s']:g} s in a {unit}{which}: {listed}"
