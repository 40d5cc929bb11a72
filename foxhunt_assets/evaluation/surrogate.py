"""Is the result better than chance? The same action sequences on the wrong stretches of market, and what they earn.

The gate permutes whole sequences across accounts, so that turnover, holding times and the mix of actions stay what
they are and only the match of action and market is lost. The matched-marginal test (actions drawn one by one from
the same histogram) is reported beside it and gates nothing: a policy that merely holds longer beats it on a
martingale.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import torch

from foxhunt_assets.contracts.buffers import BufferSpec
from foxhunt_assets.errors import BadInput, ContractBroken
from foxhunt_assets.simulator.actions import HOLD
from foxhunt_assets.simulator.config import EnvConfig
from foxhunt_assets.simulator.market_view import MarketView
from foxhunt_assets.simulator.simulator import Simulator
from foxhunt_assets.simulator.state import N_HORIZONS, specs
from foxhunt_assets.simulator.walk import EvalWalk, Range
from kernels.philox import op as philox

GATE_P = 0.05  # largest p-value that passes
MIN_PERMUTATIONS = 199  # the least p-value is then 0.005
_MAX_ACCOUNTS = 8_192  # simulated together: bounds memory, not the result

MakeSimulator = Callable[[int], Simulator]


@dataclass(frozen=True)
class SurrogateResult:
    """Net pnl of the evaluated actions and of their surrogates, int cents."""

    scheme: Literal["permutation", "matched_marginal"]
    trained_cents: int
    surrogate_cents: tuple[int, ...]

    @property
    def exceed(self) -> int:
        """Surrogates that earned at least as much; a tie counts against the policy."""
        return sum(cents >= self.trained_cents for cents in self.surrogate_cents)

    @property
    def p_value(self) -> float:
        """(1 + k) / (N + 1): the policy itself is one of the equally likely arrangements (Phipson and Smyth 2010)."""
        return (1 + self.exceed) / (len(self.surrogate_cents) + 1)

    @property
    def passed(self) -> bool:
        return self.p_value <= GATE_P

    def to_json(self) -> dict[str, Any]:
        cents = np.array(self.surrogate_cents, dtype=np.float64)
        return {
            "scheme": self.scheme,
            "n": len(self.surrogate_cents),
            "exceed": self.exceed,
            "p_value": self.p_value,
            "passed": self.passed,
            "trained_pnl_usd": self.trained_cents / 100,
            "surrogate_mean_usd": float(cents.mean()) / 100,
            "surrogate_p95_usd": float(np.quantile(cents, 0.95)) / 100,
        }


def permutation_test(
    actions: torch.Tensor, make_simulator: MakeSimulator, n_permutations: int, seed: int
) -> SurrogateResult:
    """The gate. actions: int64 [n, B], executed action of each step and account.

    make_simulator(copies) is a fresh simulator of copies x B accounts: B chunks of the same market, copies times.
    An action that is illegal where a permutation puts it is ineffective. Permutation i is the order of Philox
    words (seed, "surrogate", step 2 i, account).
    """
    _check(actions, n_permutations)
    accounts = torch.arange(actions.shape[1], device=actions.device)

    def permuted(i: int) -> torch.Tensor:
        keys = philox.words(seed, "surrogate", 2 * i, accounts, 1)[:, 0]
        return actions[:, torch.argsort(keys, stable=True)]

    return _test("permutation", actions, permuted, make_simulator, n_permutations)


def matched_marginal_test(
    actions: torch.Tensor, make_simulator: MakeSimulator, n_rollouts: int, seed: int
) -> SurrogateResult:
    """Every action drawn independently from the histogram of all of them; Philox step 2 i + 1. Not a gate."""
    _check(actions, n_rollouts)
    pool = actions.flatten().sort().values
    accounts = torch.arange(actions.shape[1], device=actions.device)

    def drawn(i: int) -> torch.Tensor:
        words = philox.words(seed, "surrogate", 2 * i + 1, accounts, actions.shape[0])
        return pool[(words * pool.numel()) >> 32].T

    return _test("matched_marginal", actions, drawn, make_simulator, n_rollouts)


def recorded_actions(equity: pa.Table) -> torch.Tensor:
    """int64 [n, B] executed actions of an equity table, without the drain row."""
    account, step, action = (equity[c].to_numpy().astype(np.int64) for c in ("account", "step", "action"))
    order = np.lexsort((account, step))
    n_accounts = int(account.max()) + 1
    if len(action) % n_accounts:
        raise ContractBroken("equity.parquet: an account misses a step; a walk has one row of each")
    grid = action[order].reshape(-1, n_accounts)
    if (grid[-1] != -1).any() or (grid[:-1] < 0).any():
        raise ContractBroken("equity.parquet: the last row of an account, and no other, must be the drain row")
    return torch.from_numpy(grid[:-1].copy())


def simulators_of(
    env: EnvConfig,
    market: MarketView,
    ranges: Sequence[Range],
    session_end: torch.Tensor,
    accounts: int,
    n_steps: int,
    window: int,
) -> MakeSimulator:
    """make_simulator of one evaluation: its environment, tape, evaluation ranges, B, steps and K."""

    def make(copies: int) -> Simulator:
        total = copies * accounts
        buffers = {spec.name: _allocate(spec, market.device) for spec in specs(total, env)}
        walk = _CopiedWalk(market, ranges, session_end, buffers, copies, n_steps)
        return Simulator(env, market, walk, buffers, total, window)

    return make


def replay(simulator: Simulator, actions: torch.Tensor) -> torch.Tensor:
    """Walk the evaluation range with given actions, int64 [n, A]; int64 [A] net pnl of each account in cents."""
    n, accounts = actions.shape
    signs = torch.zeros(accounts, N_HORIZONS, dtype=torch.int8, device=actions.device)
    simulator.reset(0)
    for t in range(n):
        simulator.step(actions[t], t, signs, phase_end=False)
        simulator.advance(t)
    hold = torch.full_like(actions[0], HOLD)
    return simulator.step(hold, n, signs, phase_end=True, drain=True).phase_equity_cents


class _CopiedWalk(EvalWalk):
    """The B chunks of an evaluation, walked `copies` times side by side."""

    def __init__(
        self,
        market: MarketView,
        ranges: Sequence[Range],
        session_end: torch.Tensor,
        buffers: Mapping[str, torch.Tensor],
        copies: int,
        n_steps: int,
    ):
        row = buffers["acct_row"]
        super().__init__(market, ranges, session_end, {"acct_row": row[: row.shape[0] // copies]}, n_steps)
        self.row = row
        self._first, self._last = self._first.repeat(copies), self._last.repeat(copies)


def _test(
    scheme: Literal["permutation", "matched_marginal"],
    actions: torch.Tensor,
    surrogate: Callable[[int], torch.Tensor],
    make_simulator: MakeSimulator,
    n: int,
) -> SurrogateResult:
    trained = int(replay(make_simulator(1), actions).sum())
    cents: list[int] = []
    together = max(1, _MAX_ACCOUNTS // actions.shape[1])
    for start in range(0, n, together):
        batch = [surrogate(i) for i in range(start, min(n, start + together))]
        pnl = replay(make_simulator(len(batch)), torch.cat(batch, dim=1))
        cents += [int(x) for x in pnl.view(len(batch), -1).sum(1)]
    return SurrogateResult(scheme, trained, tuple(cents))


def _check(actions: torch.Tensor, n: int) -> None:
    if actions.ndim != 2 or actions.dtype != torch.int64 or not actions.numel():
        raise BadInput(f"surrogates: {actions.dtype} {tuple(actions.shape)} actions; int64 [steps, accounts] is needed")
    if n < MIN_PERMUTATIONS:
        raise BadInput(f"surrogates: {n} are too few to reject anything soundly; use {MIN_PERMUTATIONS} or more")


def _allocate(spec: BufferSpec, device: torch.device) -> torch.Tensor:
    return torch.full(spec.shape, spec.fill, dtype=getattr(torch, spec.dtype), device=device)
