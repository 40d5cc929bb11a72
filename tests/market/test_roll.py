"""Symbols, expiries and the lead month, with dates from the exchange's notices."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest

from foxhunt_assets.contracts.instruments import contract
from foxhunt_assets.errors import BadInput
from foxhunt_assets.market import roll
from foxhunt_assets.market.dbn import Header, Mapping
from tests.market.made_dbn import ns

ES = contract("ES")


def header(*symbols: str) -> Header:
    start, end = ns("2024-03-01T00:00:00"), ns("2024-04-01T00:00:00")
    mappings = tuple(Mapping(s, 100 + i, start, end) for i, s in enumerate(symbols))
    return Header(3, "mbp-10", "GLBX.MDP3", start, end, False, "parent", ("ES.FUT",), mappings)


@pytest.mark.parametrize(
    ("trade_date", "lead"),
    [
        (date(2022, 3, 9), (2022, 3)), (date(2022, 3, 10), (2022, 6)),  # the last Thursday roll
        (date(2022, 6, 10), (2022, 6)), (date(2022, 6, 13), (2022, 9)),  # the first Monday roll
        (date(2024, 3, 8), (2024, 3)), (date(2024, 3, 11), (2024, 6)),
        (date(2024, 6, 14), (2024, 6)), (date(2024, 6, 17), (2024, 9)),
        (date(2026, 6, 12), (2026, 6)), (date(2026, 6, 15), (2026, 9)),  # expiry moved to Thursday, the roll did not
        (date(2023, 12, 26), (2024, 3)),
    ],
)  # fmt: skip
def test_lead_month_by_trade_date(trade_date: date, lead: tuple[int, int]) -> None:
    assert roll.lead_contract(trade_date, ES) == roll.Contract(*lead)


@pytest.mark.parametrize(
    ("symbol", "on", "year"),
    [
        ("ESH4", date(2014, 1, 2), 2014), ("ESH4", date(2023, 12, 25), 2024), ("ESH4", date(2024, 3, 15), 2024),
        ("ESH4", date(2024, 3, 16), 2034), ("ESH0", date(2025, 1, 2), 2030), ("ESH24", date(2030, 1, 1), 2024),
        ("ESH99", date(1999, 1, 4), 1999),
    ],
)  # fmt: skip
def test_one_digit_years_follow_the_date(symbol: str, on: date, year: int) -> None:
    assert roll.parse_outright(symbol, ES, on) == roll.Contract(year, 3)


@pytest.mark.parametrize(
    "symbol", ["ESH4-ESM4", "ESF4", "MESH4", "ES", "ESH", "ESH4 P5000", "ES.c.0", "NQH4", "ESH124"]
)
def test_what_is_no_outright_of_the_product(symbol: str) -> None:
    assert roll.parse_outright(symbol, ES, date(2024, 1, 2)) is None


def test_spreads_are_told_by_their_legs() -> None:
    assert roll.is_spread("ESH4-ESM4") and roll.is_spread("ESH24-ESM24")
    assert not roll.is_spread("ESH4") and not roll.is_spread("ESH4-")


def test_front_month_keeps_the_outrights_and_rolls() -> None:
    chosen = roll.select(Path("f"), header("ESM4", "ESH4", "ESH4-ESM4", "NQH4"), ES, roll.FRONT_MONTH)
    assert [s.symbol for s in chosen.slots] == ["ESH4", "ESM4"] and chosen.by_roll


def test_a_single_outright_is_kept_whatever_the_roll_says() -> None:
    chosen = roll.select(Path("f"), header("ESZ5", "ESH4-ESM4"), ES, roll.FRONT_MONTH)
    assert [s.symbol for s in chosen.slots] == ["ESZ5"] and not chosen.by_roll and "whatever the roll" in chosen.note


def test_a_symbol_as_mode_keeps_only_that_one() -> None:
    chosen = roll.select(Path("f"), header("ESM4", "ESH4"), ES, "ESM4")
    assert [s.symbol for s in chosen.slots] == ["ESM4"] and not chosen.by_roll
    with pytest.raises(BadInput, match="'ESZ4' is not in the file; use front_month or one of ESH4, ESM4"):
        roll.select(Path("f"), header("ESM4", "ESH4"), ES, "ESZ4")


def test_a_continuous_symbol_is_kept_and_two_are_refused() -> None:
    assert roll.select(Path("f"), header("ES.c.0"), ES, roll.FRONT_MONTH).slots[0].code == roll.ANY
    with pytest.raises(BadInput, match="several series"):
        roll.select(Path("f"), header("ES.c.0", "ES.c.1"), ES, roll.FRONT_MONTH)


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (header("ESH4-ESM4", "ESM4-ESU4"), "only calendar spreads"),
        (header("NQH4"), "holds no ES outright"),
        (replace(header(), mappings=()), "maps no symbol"),
    ],
)
def test_nothing_to_keep_is_said_why(made: Header, words: str) -> None:
    with pytest.raises(BadInput, match=words):
        roll.select(Path("f"), made, ES, roll.FRONT_MONTH)
