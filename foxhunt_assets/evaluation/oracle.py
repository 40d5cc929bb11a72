"""What a trader who knows the latent pressure of a generated market earns: the yardstick for a trained policy.

Generated prices drift with a pressure that no record names (`market/synthetic.py`). The oracle reads it and nothing
else, and trades through the same simulator as every policy: the same latency, minimum hold, trails, depth and fees.
It does not know how long the pressure will last, nor the next price.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from foxhunt_assets.errors import BadInput
from foxhunt_assets.evaluation.surrogate import MakeSimulator, one_thread
from foxhunt_assets.simulator.actions import ACTIONS, HOLD
from foxhunt_assets.simulator.state import N_HORIZONS

_LONG, _SHORT = ACTIONS.index("a6_long_large"), ACTIONS.index("a0_short_large")
_LOOSEN = ACTIONS.index("a8_trail_loosen")


@dataclass(frozen=True)
class OracleResult:
    """account_cents: net pnl of each account, cents."""

    account_cents: tuple[int, ...]

    @property
    def cents(self) -> int:
        return sum(self.account_cents)

    def share(self, pnl_cents: int) -> float | None:
        """A policy's net pnl over the oracle's; None where the oracle earns nothing to measure by."""
        return pnl_cents / self.cents if self.cents > 0 else None


def oracle(make_simulator: MakeSimulator, pressure: torch.Tensor, n_steps: int) -> OracleResult:
    """One evaluation walk and its drain row. pressure: int8 [N] in -1, 0, 1, the latent state at each tape row."""
    simulator = make_simulator(1)
    if pressure.shape != (simulator.market.rows,):
        raise BadInput(f"oracle: {tuple(pressure.shape)} states for a tape of {simulator.market.rows} rows")
    accounts, device = simulator.accounts, simulator.market.device
    signs = torch.zeros(accounts, N_HORIZONS, dtype=torch.int8, device=device)
    hold = torch.full((accounts,), HOLD, dtype=torch.int64, device=device)
    with one_thread():
        simulator.reset(0)
        for t in range(n_steps):
            wanted, legal = wish(pressure[simulator.walk.anchor]), simulator.legal_mask()
            rest = torch.where(legal[:, _LOOSEN], _LOOSEN, HOLD)
            chosen = torch.where(legal.gather(1, wanted[:, None])[:, 0] & (wanted != HOLD), wanted, rest)
            simulator.step(chosen, t, signs, phase_end=False)
            simulator.advance(t)
        done = simulator.step(hold, n_steps, signs, phase_end=True, drain=True)
    return OracleResult(tuple(done.phase_equity_cents.tolist()))


def wish(pressure: torch.Tensor) -> torch.Tensor:
    """int64 [A]: a large unit on the side of the pressure, nothing without any.

    Up to the cap that is an entry; against an open position it closes it. What is not legal gives way to loosening
    the trails, since a stop is no news to one who knows the drift. Positions are held while the pressure rests: half
    the time it comes back on the same side, and to leave and enter again costs a spread and two fees.
    """
    return torch.where(pressure > 0, _LONG, torch.where(pressure < 0, _SHORT, HOLD))
