"""Who leads by volume: sessions put together from files, no look-ahead, no way back."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest

from foxhunt_assets.contracts.instruments import contract
from foxhunt_assets.market import roll, volume
from foxhunt_assets.market.volume import FileVolume
from tests.market import made_dbn as made
from tests.market.made_dbn import mbo, mbp, ns

ES = contract("ES")
H4, M4, U4 = (roll.Contract(2024, month).code for month in (3, 6, 9))
DAYS = [date(2024, 3, day) for day in (4, 5, 6, 7, 8)]


def test_lots_go_to_the_session_they_traded_in(tmp_path: Path) -> None:
    """Thursday evening after the open is Friday's; the break is nobody's; a spread and a quote are no volume."""
    both = {"ESH4": [(*made.YEAR, made.ESH4)], "ESM4": [(*made.YEAR, made.ESM4)], "ESH4-ESM4": [(*made.YEAR, 9)]}
    records = [
        mbp(ns("2024-03-07T21:59:59"), action="T", size=3),
        mbp(ns("2024-03-07T22:30:00"), action="T", size=100),  # in the break
        mbp(ns("2024-03-07T23:00:00"), action="T", size=4),
        mbp(ns("2024-03-08T00:00:00"), action="T", size=5, iid=made.ESM4),
        mbp(ns("2024-03-08T00:00:01"), action="T", size=50, iid=9),
        mbp(ns("2024-03-08T00:00:02"), size=70),
    ]
    found = volume.file_volume(made.write_mbp(tmp_path / "a.dbn", records, mappings=both), ES)
    assert found is not None
    assert found.lots == {date(2024, 3, 7): {H4: 3}, date(2024, 3, 8): {H4: 4, M4: 5}}
    assert (found.first, found.last) == (ns("2024-03-07T21:59:59"), ns("2024-03-08T00:00:02"))
    assert FileVolume.from_json(found.to_json()) == found


def test_orders_files_are_counted_alike_and_an_empty_file_is_none(tmp_path: Path) -> None:
    at = ns("2024-03-07T15:00:00")
    records = [mbo(at, "A", "B", 1, 20_000, 5), mbo(at, "T", "B", 0, 20_000, 2), mbo(at, "F", "B", 1, 20_000, 2)]
    found = volume.file_volume(made.write_mbo(tmp_path / "a.dbn", records), ES)
    assert found is not None and found.lots == {date(2024, 3, 7): {H4: 2}}, "a fill is the other side of a trade"
    assert volume.file_volume(made.write_mbp(tmp_path / "b.dbn", [mbp(at)[:0]]), ES) is None


def span(first: str, last: str, lots: volume.Lots) -> FileVolume:
    return FileVolume(ns(first), ns(last), lots)


def test_a_session_is_complete_only_when_its_files_cover_it() -> None:
    """Cut at UTC midnight, as the archive does: 7 March is whole, 6 and 8 March are not."""
    six, seven, eight = DAYS[2:]
    day = span("2024-03-06T10:00:00", "2024-03-06T23:59:58", {six: {H4: 9}, seven: {H4: 1, M4: 5}})
    next_day = span("2024-03-07T00:00:02", "2024-03-07T21:59:58", {seven: {H4: 3}, eight: {H4: 8}})
    assert volume.complete_sessions([next_day, day]) == {seven: {H4: 4, M4: 5}}
    late = span("2024-03-07T00:02:00", "2024-03-07T21:59:58", {seven: {H4: 3}})
    assert volume.complete_sessions([day, late]) == {}, "two minutes are missing between the files"
    assert volume.complete_sessions([day]) == {} and volume.complete_sessions([next_day]) == {}


def test_a_session_that_closes_early_is_complete_at_that_close() -> None:
    fourth = date(2024, 7, 4)
    file = span("2024-07-03T22:00:00", "2024-07-04T16:59:59", {fourth: {M4: 2}})
    assert volume.complete_sessions([file]) == {fourth: {M4: 2}}


def test_the_lead_is_known_before_the_session_and_never_goes_back() -> None:
    sessions = {DAYS[0]: {H4: 9, M4: 1}, DAYS[1]: {H4: 4, M4: 5}, DAYS[2]: {H4: 6, M4: 5}, DAYS[3]: {M4: 9}}
    lead = volume.lead_by_volume(sessions, ES)
    assert [lead(day) for day in DAYS] == [H4, H4, M4, M4, M4], "one day behind, and the 6th does not turn it back"
    for cut in range(4):  # the future does not move the past
        seen = {day: sessions[day] for day in DAYS[:cut]}
        assert [volume.lead_by_volume(seen, ES)(day) for day in DAYS[: cut + 1]] == [lead(d) for d in DAYS[: cut + 1]]


@pytest.mark.parametrize(
    ("sessions", "day", "code"),
    [
        ({}, date(2024, 3, 8), H4),  # nothing known: the exchange's convention
        ({}, date(2024, 3, 11), M4),
        ({date(2024, 3, 8): {H4: 9}}, date(2024, 3, 15), H4),  # its last day
        ({date(2024, 3, 8): {H4: 9}}, date(2024, 3, 18), M4),  # expired, and no session since
        ({date(2024, 3, 8): {H4: 5, M4: 5}}, date(2024, 3, 11), H4),  # a tie stays with the nearer month
        ({date(2024, 3, 8): {U4: 9}}, date(2024, 3, 11), U4),
    ],
)
def test_the_lead_where_volume_says_little(sessions: volume.Lots, day: date, code: int) -> None:
    assert volume.lead_by_volume(sessions, ES)(day) == code
