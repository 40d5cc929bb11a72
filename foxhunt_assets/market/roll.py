"""Which instruments of a file are kept: symbols, expiries, and the day the lead month changes.

front_month: the lead month of each trade date by the exchange's convention (`contracts.instruments`). volume: the
contract that traded most in the last complete session before (`volume.py`). Either changes at the open of a trade
date's session (17:00 Chicago the evening before), never at midnight UTC. all, or symbols by name: each kept
instrument stands on its own, with no roll between them.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import cache
from pathlib import Path

from foxhunt_assets.contracts.instruments import ContractFacts
from foxhunt_assets.errors import BadInput
from foxhunt_assets.market import calendar
from foxhunt_assets.market.dbn import Header, Mapping

FRONT_MONTH, VOLUME, ALL = "front_month", "volume", "all"
MONTH_CODES = "FGHJKMNQUVXZ"  # January to December
ANY = -1  # lead code: every kept instrument counts

Lead = Callable[[date], int]  # code of the contract that leads on a trade date


@dataclass(frozen=True, order=True)
class Contract:
    """A delivery month. `code` orders contracts in time: 12 x year + month - 1."""

    year: int
    month: int

    @property
    def code(self) -> int:
        return 12 * self.year + self.month - 1

    @classmethod
    def of_code(cls, code: int) -> Contract:
        return cls(code // 12, code % 12 + 1)


@dataclass(frozen=True)
class Slot:
    """One instrument that is kept: its symbol, exchange id and contract code (ANY for a continuous symbol)."""

    symbol: str
    instrument_id: int
    code: int


@dataclass(frozen=True)
class Selection:
    """slots: instruments that make one series of rows. lead: only the rows of the contract it names count; None: all
    do. note: what a reader should know."""

    slots: tuple[Slot, ...]
    lead: Lead | None
    note: str

    def lead_on(self, trade_date: date) -> int:
        """Code of the contract whose rows count on a trade date, ANY where all do."""
        return ANY if self.lead is None else self.lead(trade_date)


def regular_expiry(contract: Contract, facts: ContractFacts) -> date:
    """The n-th weekday that the facts name; the lead month is counted from it even where expiry is moved."""
    first = date(contract.year, contract.month, 1)
    return first + timedelta((facts.expiry_weekday - first.weekday()) % 7 + 7 * (facts.expiry_week - 1))


@cache
def expiry(contract: Contract, facts: ContractFacts) -> date:
    """The last day of a contract: the regular one, or the business day before where the exchange keeps a holiday."""
    day = regular_expiry(contract, facts)
    while day.weekday() > 4 or calendar.calendar_close(day) != calendar.regular_close(day):
        day -= timedelta(1)
    return day


def expiry_ns(contract: Contract, facts: ContractFacts) -> int:
    """Instant of final settlement, ns UTC."""
    return calendar.chicago_ns(expiry(contract, facts), facts.expiry_time)


def outlived(slot: Slot, facts: ContractFacts, last: int) -> list[str]:
    """A sentence where an instrument has records up to `last`, ns UTC, after its final settlement."""
    if slot.code == ANY or last < (end := expiry_ns(Contract.of_code(slot.code), facts)):
        return []
    a, b = (f"{datetime.fromtimestamp(t // 10**9, calendar.CHICAGO):%Y-%m-%d %H:%M}" for t in (end, last))
    return [f"{slot.symbol} expired at {a} Chicago and has records until {b}; what follows the expiry is no market"]


def lead_until(contract: Contract, facts: ContractFacts) -> date:
    """The trade date from which the next listed month leads."""
    regular = regular_expiry(contract, facts)
    days = [days for first, days in facts.roll_days if first <= regular]
    return regular - timedelta(days[-1])


def parse_outright(symbol: str, facts: ContractFacts, on: date) -> Contract | None:
    """The contract an outright symbol of this product meant on a date; None for a spread or another product.

    A one-digit year is the first year with that digit whose contract had not expired on the date.
    """
    match = re.fullmatch(rf"{re.escape(facts.root)}([{facts.months}])(\d{{1,2}})", symbol)
    if match is None:
        return None
    month, digits = MONTH_CODES.index(match[1]) + 1, match[2]
    if len(digits) == 2:
        return Contract(2000 + int(digits) if int(digits) < 70 else 1900 + int(digits), month)
    candidates = (Contract(year, month) for year in range(on.year, on.year + 11) if year % 10 == int(digits))
    return next(c for c in candidates if regular_expiry(c, facts) >= on)


def is_spread(symbol: str) -> bool:
    """Two legs in one symbol, e.g. ESH4-ESM4."""
    return re.fullmatch(r"[A-Z0-9]+[FGHJKMNQUVXZ]\d{1,2}-[A-Z0-9]+[FGHJKMNQUVXZ]\d{1,2}", symbol) is not None


def symbol_of(contract: Contract, facts: ContractFacts) -> str:
    """Raw symbol with a one-digit year, e.g. ESH4."""
    return f"{facts.root}{MONTH_CODES[contract.month - 1]}{contract.year % 10}"


def next_listed(contract: Contract, facts: ContractFacts) -> Contract:
    """The listed delivery month after this one."""
    code = contract.code + 1
    while MONTH_CODES[code % 12] not in facts.months:
        code += 1
    return Contract.of_code(code)


def lead_contract(trade_date: date, facts: ContractFacts) -> Contract:
    """The lead month of a trade date by the exchange's convention."""
    months = [MONTH_CODES.index(m) + 1 for m in facts.months]
    listed = (Contract(year, m) for year in (trade_date.year, trade_date.year + 1) for m in months)
    return next(c for c in listed if trade_date < lead_until(c, facts))


def outrights(header: Header, facts: ContractFacts) -> list[Slot]:
    """Every outright and continuous series of the product that a header maps, nearest month first."""
    return sorted({slot for m in header.mappings if (slot := _slot(m, facts)) is not None}, key=_slot_order)


def select(
    path: Path, header: Header, facts: ContractFacts, mode: str, by_volume: Lead | None = None
) -> tuple[Selection, ...]:
    """What to keep of a file: one selection a series of rows.

    mode: front_month, volume (with by_volume, which says who leads), all, or outright symbols with commas between.
    A file with a single outright keeps it whatever the roll says; so does one under a continuous symbol.
    """
    slots = outrights(header, facts)
    if not slots:
        raise BadInput(_nothing_of(path, header, facts))
    if mode not in (FRONT_MONTH, VOLUME):
        return _each(path, slots, mode)
    symbols = sorted({s.symbol for s in slots})
    if len({(s.symbol, s.code) for s in slots}) == 1:
        return (Selection(tuple(slots), None, f"one outright, {symbols[0]}: kept whatever the roll says"),)
    if any(s.code == ANY for s in slots):
        raise BadInput(f"{path}: several series in one file ({', '.join(symbols)}); set instrument_mode to one of them")
    if mode == VOLUME:
        assert by_volume is not None
        return (Selection(tuple(slots), by_volume, "the contract that traded most in the last complete session"),)
    return (Selection(tuple(slots), lambda day: lead_contract(day, facts).code, "lead month of each trade date"),)


def _each(path: Path, slots: list[Slot], mode: str) -> tuple[Selection, ...]:
    """A selection an instrument; one whose exchange id changes stays one series."""
    wanted = {s.symbol for s in slots} if mode == ALL else {name.strip() for name in mode.split(",")}
    kept = [s for s in slots if s.symbol in wanted]
    if not kept:
        known = ", ".join(sorted({s.symbol for s in slots}))
        raise BadInput(
            f"{path}: instrument_mode {mode!r} is not in the file; use {FRONT_MONTH}, {VOLUME}, {ALL}, or symbols of "
            f"{known}"
        )
    series: dict[tuple[int, str], list[Slot]] = {}
    for slot in kept:
        series.setdefault((slot.code, slot.symbol), []).append(slot)
    return tuple(
        Selection(tuple(group), None, f"kept {symbol}, as instrument_mode says")
        for (_, symbol), group in series.items()
    )


def _slot(mapping: Mapping, facts: ContractFacts) -> Slot | None:
    on = datetime.fromtimestamp(mapping.start_ns // 10**9, UTC).date()
    if re.fullmatch(rf"{re.escape(facts.root)}\.[cvn]\.\d+", mapping.symbol):
        return Slot(mapping.symbol, mapping.instrument_id, ANY)
    contract = parse_outright(mapping.symbol, facts, on)
    return None if contract is None else Slot(mapping.symbol, mapping.instrument_id, contract.code)


def _slot_order(slot: Slot) -> tuple[int, str, int]:
    return slot.code, slot.symbol, slot.instrument_id


def _nothing_of(path: Path, header: Header, facts: ContractFacts) -> str:
    symbols = sorted({m.symbol for m in header.mappings})
    if not symbols:
        return f"{path}: the header maps no symbol to an instrument id; download it with symbols {facts.root}.FUT"
    shown = ", ".join(symbols[:5]) + (" ..." if len(symbols) > 5 else "")
    if all(is_spread(s) for s in symbols):
        return f"{path}: holds only calendar spreads ({shown}); download the outrights with symbols {facts.root}.FUT"
    return (
        f"{path}: holds no {facts.root} outright ({shown}); download {facts.root}.FUT or set data.root in foxhunt.toml"
    )
