"""Contract facts: tick, multiplier, listed months, expiry, roll and fees by date. One home of every dollar constant.

Sources: CME contract specifications of ES, MES and NQ; CME's equity roll dates page and its notice that from trade
date 13 June 2022 the lead month changes on the Monday of expiry week, where it had changed on the Thursday before.
The fee is an assumption, not a quote: 225 cents a side for ES covers exchange, clearing and a discount broker;
override it with env.fee_cents in foxhunt.toml for your own account.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, time

from foxhunt_assets.errors import BadInput

PRICE_SCALE = 1_000_000_000  # DBN fixed-point units in one point
UNDEF_PRICE = 2**63 - 1  # DBN: no price


@dataclass(frozen=True)
class ContractFacts:
    """One product.

    tick: smallest price step in DBN units (1e-9 points). tick_cents: what one tick of one lot is worth.
    months: listed delivery months. fee_cents: ((first trade date, cents a side), ...) in date order.
    expiry_week, expiry_weekday, expiry_time: a contract expires on the n-th such weekday (0 is Monday) of its month,
    the business day before where that is a holiday, at this time of Chicago. roll_days: ((first regular expiry, days
    before it on which the next month leads), ...) in date order.
    """

    root: str
    tick: int
    tick_cents: int
    months: str
    fee_cents: tuple[tuple[date, int], ...]
    expiry_week: int = 3
    expiry_weekday: int = 4
    expiry_time: time = time(8, 30)
    roll_days: tuple[tuple[date, int], ...] = ((date(1997, 1, 1), 8), (date(2022, 6, 1), 4))

    @property
    def multiplier_cents(self) -> int:
        """Cents one lot gains when the price rises by one point."""
        return self.tick_cents * PRICE_SCALE // self.tick

    @property
    def tick_points(self) -> float:
        return self.tick / PRICE_SCALE

    def fee_on(self, day: date) -> int:
        """Fee in cents a side and lot on a trade date."""
        cents = [c for first, c in self.fee_cents if first <= day]
        if not cents:
            raise BadInput(
                f"{self.root}: the fee table starts after {day}; add a row to training.overrides.env.fee_cents in "
                "foxhunt.toml"
            )
        return cents[-1]


_ALWAYS = date(1997, 9, 9)  # first trade date of ES
CONTRACTS: dict[str, ContractFacts] = {
    "ES": ContractFacts("ES", 250_000_000, 1_250, "HMUZ", ((_ALWAYS, 225),)),
    "MES": ContractFacts("MES", 250_000_000, 125, "HMUZ", ((_ALWAYS, 62),)),
    "NQ": ContractFacts("NQ", 250_000_000, 500, "HMUZ", ((_ALWAYS, 225),)),
}


def contract(root: str) -> ContractFacts:
    """Facts of a product by its root symbol."""
    if root not in CONTRACTS:
        raise BadInput(f"unknown product {root!r}; known: {', '.join(CONTRACTS)}")
    return CONTRACTS[root]
