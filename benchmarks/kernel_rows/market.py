"""Windows of the tape, orders against the book, and whole steps of the accounts."""

from __future__ import annotations

from unittest.mock import patch

import numpy as np
import torch

from benchmarks.kernel_rows.row import Row, written
from foxhunt_assets.simulator import measure
from foxhunt_assets.simulator.config import EnvConfig
from foxhunt_assets.simulator.market_view import MarketView
from foxhunt_assets.simulator.outcome import StepOutcome
from foxhunt_assets.simulator.simulator import Simulator
from foxhunt_assets.simulator.state import specs
from foxhunt_assets.simulator.walk import TrainWalk, session_end_rows
from kernels import build
from kernels.gather import kernel as gather_kernel
from kernels.gather import reference as gather
from kernels.lob import kernel as lob_kernel
from kernels.lob import reference as lob

TAPE = 20_000  # rows the accounts walk on: most of it stays in the L2 cache, as a training's books do


def window_rows(r: int, steps: int = 32, features: int = 56, tape: int = 1 << 20) -> list[Row]:
    args = (torch.randn(tape, features), torch.zeros(tape, dtype=torch.int64), torch.randint(steps, tape, (r,)))
    out = torch.empty(r, steps, features)
    kernel, twin = (written(of.windows, 3) for of in (gather_kernel, gather))
    return [Row(f"gather windows {r} x {steps} x {features}", kernel, twin, (*args, out), 8 * out.numel())]


def order_rows(b: int) -> list[Row]:
    px = (torch.arange(10) + torch.randint(0, 99, (b, 1))).int()
    sz = torch.randint(1, 60, (b, 10), dtype=torch.int32)
    side, lots = torch.randint(-1, 2, (b,)), torch.randint(0, 300, (b,))
    memory = lob.Memory(px, sz // 2, sz)
    return [
        Row(f"LOB fill {b} x 10", lob_kernel.fill, lob.fill, (side, lots, px, sz, torch.rand(b) < 0.1, lob.ABSENT),
            b * (10 * 16 + 49)),
        Row(f"LOB available {b} x 10", lambda *x: _flat(lob_kernel.available(*x)), lambda *x: _flat(lob.available(*x)),
            (memory, px, sz), b * 10 * 9 * 4),
    ]  # fmt: skip


def _flat(found: tuple[torch.Tensor, lob.Memory]) -> tuple[torch.Tensor, ...]:
    return (found[0], *found[1])


def account_rows(accounts: int, tape: int = TAPE) -> list[Row]:
    """A step of the accounts with the seat of the ended ones, and what it measures of itself; twin: the torch
    simulator. Bytes are of the state, read and written, and of the outcome: books and trades come on top."""
    actions = torch.randint(0, 11, (accounts,))
    signs = torch.randint(-1, 2, (accounts, 3), dtype=torch.int8)
    market = _market(tape)
    steps, tallies = ([_Stepper(market, accounts, kernel) for kernel in (True, False)] for _ in range(2))
    state = sum(x.numel() * x.element_size() for x in steps[0].sim.buffers.values())
    return [
        Row(f"step of {accounts} accounts", steps[0].step, steps[1].step, (actions, signs), 2 * state + 400 * accounts,
            compiled=False),
        Row(f"tally of {accounts} accounts", tallies[0].tally, tallies[1].tally, (), 600 * accounts, 1e-9,
            compiled=False),
    ]  # fmt: skip


class _Stepper:
    """A simulator and its counters, by the kernels or by their twin."""

    def __init__(self, market: MarketView, accounts: int, kernel: bool) -> None:
        self._chosen = build.on_gpu if kernel else lambda _: False
        env = EnvConfig()
        needed = (*specs(accounts, env), *measure.specs())
        buffers = {s.name: torch.ones(s.shape, dtype=getattr(torch, s.dtype)) for s in needed}
        with patch.object(build, "on_gpu", self._chosen), torch.device("cpu"):  # what walks plan on the host
            walk = TrainWalk(market, _halves(market.rows), _ends(market.rows), buffers, 3, 32)
            self.sim = Simulator(env, market, walk, buffers, accounts, 32)
            self.sim.reset(0)
            self.counters = measure.Counters(env, accounts, market.tick_cents, buffers)
            self.counters.reset()
        self.step(torch.zeros(accounts, dtype=torch.int64) + 2, torch.zeros(accounts, 3, dtype=torch.int8))

    def step(self, actions: torch.Tensor, signs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Every word of the outcome; a trade row counts where it is there."""
        with patch.object(build, "on_gpu", self._chosen):
            out = self.outcome = self.sim.step(actions, 1, signs, False)
            self.sim.advance(1)
        words = [getattr(out, name) for name in StepOutcome.__dataclass_fields__ if name != "trades"]
        return (*words, self.sim.buffers["acct_cash_cents"])

    def tally(self) -> tuple[torch.Tensor, ...]:
        with patch.object(build, "on_gpu", self._chosen):
            self.counters.update(self.sim, self.outcome)
        return tuple(self.sim.buffers[s.name] for s in measure.specs())


def _halves(rows: int) -> list[tuple[int, int]]:
    return [(0, rows // 2), (rows // 2, rows)]


def _ends(rows: int) -> torch.Tensor:
    return session_end_rows(rows, [(end, "session") for _, end in _halves(rows)])


def _market(rows: int) -> MarketView:
    """A random walk under a dense book, in two sessions."""
    rng = np.random.default_rng(0)
    bid = torch.from_numpy(20_000 + rng.integers(-1, 2, rows).cumsum()).int().to(torch.get_default_device())
    level = torch.arange(10, dtype=torch.int32)
    sizes = [torch.randint(3, 60, (rows, 10), dtype=torch.int32) for _ in range(2)]
    ts = 250_000_000 * torch.arange(rows)
    return MarketView(
        bid_px=bid[:, None] - level, ask_px=bid[:, None] + 1 + level, bid_sz=sizes[0], ask_sz=sizes[1], low_bid_px=bid,
        high_ask_px=bid + 1, ts=ts, ts_event=ts - 1_000_000, segment=(torch.arange(rows) >= rows // 2).int(),
        fee_cents=torch.full((rows,), 225), tick_cents=1_250,
    )  # fmt: skip
