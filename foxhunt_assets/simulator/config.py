"""What the environment is made of. Times are in rows of the snapshot grid."""

from __future__ import annotations

import datetime
import itertools
from dataclasses import dataclass
from typing import Any

from foxhunt_assets.errors import BadInput

MAX_UNITS = 4  # unit slots that the diagnostics contract has leaves for


@dataclass(frozen=True)
class EnvConfig:
    """latency_steps: rows from decision to fill, 1 or more (an order never fills on the book it was decided on).
    min_hold_steps: rows a unit is held before the policy may close it. episode_length: rows until truncation.
    start_equity_cents: equity an episode starts with; at 0 the account is blown. max_units: pyramid cap, 1 to 4.
    initial_r_ticks: R of a new unit; its trail starts at trail_initial_mult x R, bounded by trail_min and trail_max.
    fee_cents: ((first trade date, cents a side), ...) in date order, overriding the contract facts; empty: the facts.
    BadInput names a value that cannot be simulated.
    """

    latency_steps: int = 1
    min_hold_steps: int = 100
    episode_length: int = 1024
    start_equity_cents: int = 2_500_000
    max_units: int = 4
    lots_small: int = 1
    lots_large: int = 2
    initial_r_ticks: int = 4
    trail_initial_mult: float = 2.0
    trail_tighten: float = 0.8
    trail_loosen: float = 1.25
    trail_min_ticks: int = 2
    trail_max_ticks: int = 40
    fee_cents: tuple[tuple[str, int], ...] = ()

    def __post_init__(self) -> None:
        rules = {
            "latency_steps must be 1 or more: an order never fills on the book it was decided on": self.latency_steps
            >= 1,
            "min_hold_steps must be 0 or more": self.min_hold_steps >= 0,
            "episode_length must be 1 or more": self.episode_length >= 1,
            "start_equity_cents must be positive": self.start_equity_cents > 0,
            f"max_units must be 1 to {MAX_UNITS}": 1 <= self.max_units <= MAX_UNITS,
            "lots_small and lots_large must be 1 or more": min(self.lots_small, self.lots_large) >= 1,
            "initial_r_ticks must be 1 or more": self.initial_r_ticks >= 1,
            "trail_min_ticks must be 1 or more and not over trail_max_ticks": 1
            <= self.trail_min_ticks
            <= self.trail_max_ticks,
            "trail_tighten must lie in (0, 1], trail_loosen be 1 or more": 0 < self.trail_tighten <= 1
            and self.trail_loosen >= 1,
            "trail_initial_mult must be positive": self.trail_initial_mult > 0,
            'fee_cents must be pairs in date order such as ["2024-01-02", 225]: ISO date, whole cents of 0 or more': (
                all(map(_is_fee, self.fee_cents)) and all(a[0] < b[0] for a, b in itertools.pairwise(self.fee_cents))
            ),
        }
        for text, fine in rules.items():
            if not fine:
                raise BadInput(f"configuration: env.{text}")


def _is_fee(row: Any) -> bool:
    """Whether a row of the fee table is an ISO trade date and whole cents; dates are compared as text."""
    if not isinstance(row, tuple) or len(row) != 2 or not isinstance(row[0], str) or type(row[1]) is not int:
        return False
    try:
        return datetime.date.fromisoformat(row[0]).isoformat() == row[0] and row[1] >= 0
    except ValueError:
        return False
