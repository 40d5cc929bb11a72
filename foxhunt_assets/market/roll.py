"""Which instrument of a file is the contract to keep: symbols, expiries, and the day the lead month changes.

Lead-month convention of E-mini equity-index futures: through March 2022 it changed on the Thursday eight days before
expiry; since 13 June 2022 it changes on the Monday of expiry week. The change takes place at the open of that trade
date's session (17:00 Chicago the evening before), never at midnight UTC.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

from foxhunt_assets.contracts.instruments import ContractFacts
from foxhunt_assets.errors import BadInput
from foxhunt_assets.market.dbn import Header, Mapping

FRONT_MONTH = "front_month"
MONTH_CODES = "FGHJKMNQUVXZ"  # January to December
LAST_THURSDAY_ROLL = date(2022, 3, 18)  # expiry of the last contract that rolled on the Thursday
ANY = -1  # lead code: every kept instrument counts


@dataclass(frozen=True, order=True)
class Contract:
    """A delivery month. `code` orders contracts in time: 12 x year + month - 1."""

    year: int
    month: int

    @property
    def code(self) -> int:
        return 12 * self.year + self.month - 1

    @property
    def third_friday(self) -> date:
        """Regular expiry; the exchange moves it when it is a holiday, the roll does not follow."""
        first = date(self.year, self.month, 1)
        return first + timedelta((4 - first.weekday()) % 7 + 14)

    @property
    def lead_until(self) -> date:
        """The trade date from which the next listed month leads."""
        friday = self.third_friday
        return friday - timedelta(8 if friday <= LAST_THURSDAY_ROLL else 4)


@dataclass(frozen=True)
class Slot:
    """One instrument that is kept: its symbol, exchange id and contract code (ANY for a continuous symbol)."""

    symbol: str
    instrument_id: int
    code: int


@dataclass(frozen=True)
class Selection:
    """slots: kept instruments. by_roll: only the lead month's rows count. note: what a reader should know."""

    slots: tuple[Slot, ...]
    by_roll: bool
    note: str


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
    return next(c for c in candidates if c.third_friday >= on)


def is_spread(symbol: str) -> bool:
    """Two legs in one symbol, e.g. ESH4-ESM4."""
    return re.fullmatch(r"[A-Z0-9]+[FGHJKMNQUVXZ]\d{1,2}-[A-Z0-9]+[FGHJKMNQUVXZ]\d{1,2}", symbol) is not None


def lead_contract(trade_date: date, facts: ContractFacts) -> Contract:
    """The lead month of a trade date."""
    months = [MONTH_CODES.index(m) + 1 for m in facts.months]
    listed = (Contract(year, m) for year in (trade_date.year, trade_date.year + 1) for m in months)
    return next(c for c in listed if trade_date < c.lead_until)


def select(path: Path, header: Header, facts: ContractFacts, mode: str) -> Selection:
    """What to keep of a file. mode: front_month, or one outright symbol such as ESM4.

    A file with a single outright keeps it whatever the roll says; so does one under a continuous symbol.
    """
    slots = sorted({slot for m in header.mappings if (slot := _slot(m, facts)) is not None}, key=_slot_order)
    if not slots:
        raise BadInput(_nothing_of(path, header, facts))
    if mode != FRONT_MONTH:
        kept = tuple(s for s in slots if s.symbol == mode)
        if not kept:
            known = ", ".join(sorted({s.symbol for s in slots}))
            raise BadInput(f"{path}: instrument_mode {mode!r} is not in the file; use {FRONT_MONTH} or one of {known}")
        return Selection(kept, False, f"kept {mode}, as instrument_mode says")
    symbols = sorted({s.symbol for s in slots})
    if len({(s.symbol, s.code) for s in slots}) == 1:
        return Selection(tuple(slots), False, f"one outright, {symbols[0]}: kept whatever the roll says")
    if any(s.code == ANY for s in slots):
        raise BadInput(f"{path}: several series in one file ({', '.join(symbols)}); set instrument_mode to one of them")
    return Selection(tuple(slots), True, "lead month of each trade date")


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
