"""Values no account could be stepped with are refused by name."""

from __future__ import annotations

import pytest

from foxhunt_assets.errors import BadInput
from foxhunt_assets.simulator.config import EnvConfig


@pytest.mark.parametrize(
    "values",
    [
        {"latency_steps": 0},
        {"min_hold_steps": -1},
        {"episode_length": 0},
        {"start_equity_cents": 0},
        {"max_units": 5},
        {"max_units": 0},
        {"lots_small": 0},
        {"lots_large": 0},
        {"initial_r_ticks": 0},
        {"trail_min_ticks": 0},
        {"trail_min_ticks": 41},
        {"trail_tighten": 1.1},
        {"trail_loosen": 0.9},
        {"trail_initial_mult": 0.0},
        {"fee_cents": (("2024-01-02", 225), ("2023-01-02", 200))},  # the last row in force would be the older one
        {"fee_cents": (("2024-1-2", 225),)},
        {"fee_cents": (("2024-01-02", 2.25),)},
        {"fee_cents": (("2024-01-02", -1),)},
        {"fee_cents": ("2024-01-02", 225)},
    ],
)
def test_a_value_that_cannot_be_simulated_is_named(values):
    (name,) = values
    with pytest.raises(BadInput, match=rf"^configuration: env\..*{name}"):
        EnvConfig(**values)
