"""What the environment is made of. Times are in rows of the snapshot grid."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class EnvConfig:
    """latency_steps: rows from decision to fill, 1 or more (an order never fills on the book it was decided on).
    min_hold_steps: rows a unit is held before the policy may close it. episode_length: rows until truncation.
    start_equity_cents: equity an episode starts with; at 0 the account is blown. max_units: pyramid cap, 1 to 4.
    initial_r_ticks: R of a new unit; its trail starts at trail_initial_mult x R, bounded by trail_min and trail_max.
    fee_cents: ((first trade date, cents a side), ...) overriding the contract facts; empty: the facts.
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
