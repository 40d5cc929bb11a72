"""Symbology files beside the data."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest

from foxhunt_assets.errors import BadInput
from foxhunt_assets.market import roll, symbology
from tests.market.made_dbn import ns


def test_consecutive_days_are_one_interval_and_a_hole_makes_two() -> None:
    days = {(7, "ESH4"): [date(2024, 3, d) for d in (2, 1, 5, 2)], (7, "ESM4"): [date(2024, 3, 6)]}
    assert [(m.symbol, m.start_ns, m.end_ns) for m in symbology.intervals(days)] == [
        ("ESH4", ns("2024-03-01T00:00:00"), ns("2024-03-03T00:00:00")),
        ("ESH4", ns("2024-03-05T00:00:00"), ns("2024-03-06T00:00:00")),
        ("ESM4", ns("2024-03-06T00:00:00"), ns("2024-03-07T00:00:00")),
    ]


def test_a_real_parent_symbology_has_outrights_and_spreads(real_data: Path) -> None:
    got = symbology.read_csv(real_data / "alegitdude-Backtester/ES-20251105_symbology.csv")
    assert len(got) == 41 and {m.end_ns - m.start_ns for m in got} == {86_400 * 10**9}
    assert sum(roll.is_spread(m.symbol) for m in got) == 20
    assert next(m.instrument_id for m in got if m.symbol == "ESH7") == 42_140_860


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("symbology.csv", "symbol,id\nESH4,1\n", "line 1: columns raw_symbol, instrument_id, date are needed"),
        ("symbology.csv", "raw_symbol,instrument_id,date\nESH4,one,2024-03-01\n", "line 2: .*one"),
        ("symbology.csv", "raw_symbol,instrument_id,date\nESH4,1,2024-13-01\n", "line 2: "),
        ("symbology.json", "{}", "not a symbology file"),
        ("symbology.json", '{"result": {"ESH4": [{"d0": "2024-03-01", "s": "1"}]}}', "not a symbology file"),
    ],
)
def test_a_broken_symbology_file_is_refused(tmp_path: Path, name: str, text: str, words: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(BadInput, match=f"{name}: {words}"):
        symbology.beside(tmp_path / "a.csv")


def test_a_folder_without_one_says_none(tmp_path: Path) -> None:
    assert symbology.beside(tmp_path / "a.csv") is None
