"""Which of the eleven actions an account may choose now."""

from __future__ import annotations

import torch

from foxhunt_assets.simulator.actions import HOLD, LONG_ENTRIES, N_ACTIONS, SHORT_ENTRIES
from foxhunt_assets.simulator.config import EnvConfig
from foxhunt_assets.simulator.state import Units

FLAT_FROM_LONG, FLAT_FROM_SHORT, TIGHTEN, LOOSEN, HALF_LONG, HALF_SHORT = 3, 4, 7, 8, 9, 10


def half_lots(lots: torch.Tensor) -> torch.Tensor:
    """Half of the position, rounded up."""
    return (lots + 1) // 2


def hold_left(units: Units, step: torch.Tensor, min_hold_steps: int) -> torch.Tensor:
    """int64 [B, U]: steps until the policy may close the unit; 0 for an empty slot."""
    return torch.where(units.active, min_hold_steps - (step - units.entry_step), 0).clamp(min=0)


def legal_actions(
    env: EnvConfig, side: torch.Tensor, units: Units, step: torch.Tensor, warm: torch.Tensor
) -> torch.Tensor:
    """bool [B, 11]. side: int64 [B] of the position; step: int64 [1] of the decision; warm: bool [B], the window
    is full (before that only a2_hold is legal).

    A close is legal when every unit it would touch was held min_hold_steps: a whole close touches all, a half close
    the oldest ones; an entry against the position is a whole close. An entry needs a free unit slot.
    """
    young = hold_left(units, step, env.min_hold_steps) > 0
    before = units.lots.cumsum(1) - units.lots
    touched_by_half = units.active & (before < half_lots(units.lots.sum(1))[:, None])
    may_close, may_halve = ~young.any(1), ~(young & touched_by_half).any(1)
    long, short, room = side > 0, side < 0, units.number < env.max_units
    mask = torch.zeros(side.shape[0], N_ACTIONS, dtype=torch.bool, device=side.device)
    for actions, same, opposite in ((LONG_ENTRIES, ~short, short), (SHORT_ENTRIES, ~long, long)):
        for action in actions:
            mask[:, action] = (same & room) | (opposite & may_close)
    mask[:, FLAT_FROM_LONG], mask[:, FLAT_FROM_SHORT] = long & may_close, short & may_close
    mask[:, HALF_LONG], mask[:, HALF_SHORT] = long & may_halve, short & may_halve
    mask[:, TIGHTEN] = mask[:, LOOSEN] = long | short
    mask &= warm[:, None]
    mask[:, HOLD] = True
    return mask
