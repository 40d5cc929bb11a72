"""Is the result better than chance? The same action sequences on the wrong stretches of market, and what they earn.

The gate permutes whole sequences across accounts, so that turnover, holding times and the mix of actions stay what
they are and only the match of action and market is lost. The matched-marginal test (actions drawn one by one from
the same histogram) is reported beside it and gates nothing: a policy that merely holds longer beats it on a
martingale.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

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
MIN_ROLLOUTS = 30  # of the matched-marginal test, the original's number
_MAX_ACCOUNTS = 2_048  # simulated together: bounds memory, not the result

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
            "surrogate_mean_usd": round(float(cents.mean()) / 100, 2),
            "surrogate_p95_usd": round(float(np.quantile(cents, 0.95)) / 100, 2),
        }


def permutation_test(
    actions: torch.Tensor, make_simulator: MakeSimulator, n_permutations: int, seed: int
) -> SurrogateResult:
    """The gate. actions: int64 [n, B], executed action of each step and account.

    make_simulator(copies) is a fresh simulator of copies x B accounts: B chunks of the same market, copies times.
    An action that is illegal where a permutation puts it is ineffective. Permutation i is the order of Philox
    words (seed, "surrogate", step 2 i, account).

    Accounts do not touch each other, so every sequence is walked once on every chunk, B x B walks in all, and a
    permutation is a sum of B of them. The first permutation is walked whole as well; ContractBroken where an
    account earns anything else.
    """
    _check(actions, n_permutations, MIN_PERMUTATIONS)
    accounts = torch.arange(actions.shape[1], device=actions.device)
    orders = [_order(seed, i, accounts) for i in range(n_permutations)]
    with one_thread():
        pnl = _pnl_by_chunk_and_sequence(actions, make_simulator)
        walked = replay(make_simulator(1), actions[:, orders[0]])
    wrong = torch.nonzero(walked != pnl[accounts, orders[0]])
    if len(wrong):
        i = int(wrong[0])
        raise ContractBroken(
            f"surrogates: account {i} earns {walked[i]} cents among others and {pnl[i, orders[0][i]]} alone; accounts "
            "influence each other, and the gate cannot be computed from single walks"
        )
    cents = tuple(int(pnl[accounts, order].sum()) for order in orders)
    return SurrogateResult("permutation", int(pnl.diagonal().sum()), cents)


def _order(seed: int, i: int, accounts: torch.Tensor) -> torch.Tensor:
    return torch.argsort(philox.words(seed, "surrogate", 2 * i, accounts, 1)[:, 0], stable=True)


def _pnl_by_chunk_and_sequence(actions: torch.Tensor, make_simulator: MakeSimulator) -> torch.Tensor:
    """int64 [B, B] cents: row i, column j is chunk i walked with the actions of account j."""
    accounts = torch.arange(actions.shape[1], device=actions.device)
    pnl = torch.empty(len(accounts), len(accounts), dtype=torch.int64, device=actions.device)
    shifts = [(accounts + k) % len(accounts) for k in range(len(accounts))]
    for together in _batches(shifts, len(accounts)):
        earned = replay(make_simulator(len(together)), torch.cat([actions[:, j] for j in together], dim=1))
        for j, cents in zip(together, earned.view(len(together), -1)):
            pnl[accounts, j] = cents
    return pnl


def matched_marginal_test(
    actions: torch.Tensor, make_simulator: MakeSimulator, n_rollouts: int, seed: int
) -> SurrogateResult:
    """Every action drawn independently from the histogram of all of them; Philox step 2 i + 1. Not a gate."""
    _check(actions, n_rollouts, MIN_ROLLOUTS)
    pool = actions.flatten().sort().values
    accounts = torch.arange(actions.shape[1], device=actions.device)
    cents: list[int] = []
    with one_thread():
        trained = int(replay(make_simulator(1), actions).sum())
        for together in _batches(range(n_rollouts), len(accounts)):
            drawn = [philox.words(seed, "surrogate", 2 * i + 1, accounts, len(actions)) for i in together]
            rollouts = torch.cat([pool[(words * pool.numel()) >> 32].T for words in drawn], dim=1)
            earned = replay(make_simulator(len(together)), rollouts)
            cents += [int(x) for x in earned.view(len(together), -1).sum(1)]
    return SurrogateResult("matched_marginal", trained, tuple(cents))


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


_T = TypeVar("_T")


def _batches(copies: Sequence[_T], accounts: int) -> Iterator[Sequence[_T]]:
    """Copies to simulate together, `accounts` accounts each."""
    size = max(1, _MAX_ACCOUNTS // accounts)
    for start in range(0, len(copies), size):
        yield copies[start : start + size]


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """A step is some 500 operations on small tensors: threads would wait for each other longer than they work."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _check(actions: torch.Tensor, n: int, least: int) -> None:
    if actions.ndim != 2 or actions.dtype != torch.int64 or not actions.numel():
        raise BadInput(f"surrogates: {actions.dtype} {tuple(actions.shape)} actions; int64 [steps, accounts] is needed")
    if n < least:
        raise BadInput(f"surrogates: {n} are too few to reject anything soundly; use {least} or more")


def _allocate(spec: BufferSpec, device: torch.device) -> torch.Tensor:
    return torch.full(spec.shape, spec.fill, dtype=getattr(torch, spec.dtype), device=device)
