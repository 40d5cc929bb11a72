"""Symbols, expiries and the lead month, with dates from the exchange's notices."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from pathlib import Path

import databento
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
    (chosen,) = roll.select(Path("f"), header("ESM4", "ESH4", "ESH4-ESM4", "NQH4"), ES, roll.FRONT_MONTH)
    assert [s.symbol for s in chosen.slots] == ["ESH4", "ESM4"]
    assert [chosen.lead_on(date(2024, 3, d)) for d in (8, 11)] == [s.code for s in chosen.slots]


def test_a_single_outright_is_kept_whatever_the_roll_says() -> None:
    (chosen,) = roll.select(Path("f"), header("ESZ5", "ESH4-ESM4"), ES, roll.FRONT_MONTH)
    assert [s.symbol for s in chosen.slots] == ["ESZ5"] and "whatever the roll" in chosen.note
    assert chosen.lead_on(date(2024, 3, 8)) == roll.ANY


def test_symbols_as_mode_keep_those_each_as_a_series_of_its_own() -> None:
    (chosen,) = roll.select(Path("f"), header("ESM4", "ESH4"), ES, "ESM4")
    assert [s.symbol for s in chosen.slots] == ["ESM4"] and chosen.lead is None
    several = header("ESM4", "ESH4", "ESU4", "ESH4-ESM4")
    for mode, kept in (("all", ["ESH4", "ESM4", "ESU4"]), ("ESU4,ESH4", ["ESH4", "ESU4"])):
        assert [[s.symbol for s in c.slots] for c in roll.select(Path("f"), several, ES, mode)] == [[k] for k in kept]
    with pytest.raises(BadInput, match="'ESZ4' is not in the file; use front_month, volume, all, or symbols of ESH4"):
        roll.select(Path("f"), header("ESM4", "ESH4"), ES, "ESZ4")


def test_a_continuous_symbol_is_kept_and_two_are_refused() -> None:
    assert roll.select(Path("f"), header("ES.c.0"), ES, roll.FRONT_MONTH)[0].slots[0].code == roll.ANY
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


@pytest.mark.parametrize(
    ("contract_of", "day", "utc"),
    [
        (roll.Contract(2024, 3), date(2024, 3, 15), "13:30"),  # summer time began on the Sunday before
        (roll.Contract(2023, 12), date(2023, 12, 15), "14:30"),
        (roll.Contract(2026, 6), date(2026, 6, 18), "13:30"),  # the third Friday is Juneteenth
        (roll.Contract(2027, 6), date(2027, 6, 17), "13:30"),  # Juneteenth is a Saturday, kept on the third Friday
        (roll.Contract(2008, 3), date(2008, 3, 20), "13:30"),  # the third Friday is Good Friday
    ],
)
@pytest.mark.parametrize("root", ["ES", "MES", "NQ"])
def test_expiry_is_the_third_friday_unless_that_is_a_holiday(
    root: str, contract_of: roll.Contract, day: date, utc: str
) -> None:
    facts = contract(root)
    assert roll.expiry(contract_of, facts) == day
    assert roll.expiry_ns(contract_of, facts) == ns(f"{day}T{utc}:00")
    assert roll.regular_expiry(contract_of, facts).weekday() == 4


@pytest.mark.parametrize(("root", "lead"), [("MES", "MESM4"), ("NQ", "NQM4")])
def test_other_index_products_roll_by_the_same_facts(root: str, lead: str) -> None:
    facts = contract(root)
    symbols = [lead.replace("M4", "H4"), lead, f"{root}F4", "ESH4"]
    (chosen,) = roll.select(Path("f"), header(*symbols), facts, roll.FRONT_MONTH)
    assert [s.symbol for s in chosen.slots] == symbols[:2], "only the months that are listed, only this product"
    assert roll.symbol_of(roll.lead_contract(date(2024, 3, 11), facts), facts) == lead


def test_expiries_of_real_definitions(real_data: Path) -> None:
    for name in ("nautilus_trader/historical_bars__futures_definition.dbn.zst",
                 "nautilus_trader/options_catalog__futures_definition.dbn.zst"):  # fmt: skip
        store = databento.DBNStore.from_file(real_data / name)
        found = {str(r.raw_symbol): int(r.expiration) for r in store}
        assert len(found) == 2
        for symbol, expiration in found.items():
            facts = contract("NQ" if symbol.startswith("NQ") else "ES")
            made = roll.parse_outright(symbol, facts, date(2024, 5, 9))
            assert made is not None and roll.expiry_ns(made, facts) == expiration, symbol
