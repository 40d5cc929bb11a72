"""The book, the tape, and the accounts that trade on them."""

import numpy as np
import torch

from foxhunt_assets.simulator import measure
from foxhunt_assets.simulator.config import EnvConfig
from foxhunt_assets.simulator.market_view import MarketView
from foxhunt_assets.simulator.outcome import StepOutcome
from foxhunt_assets.simulator.simulator import Simulator
from foxhunt_assets.simulator.state import specs
from foxhunt_assets.simulator.walk import TrainWalk, session_end_rows
from kernels.gather import op as gather
from kernels.lob import op as lob
from tests.kernels.cases.registry import case
from tests.simulator import tapes

ACCOUNTS = 37  # a warp holds eight


def new_memory(accounts, levels, device="cpu"):
    """The memory of one side with nothing taken."""
    zeros = torch.zeros(accounts, levels, dtype=torch.int32, device=device)
    return lob.Memory(torch.full_like(zeros, lob.ABSENT), zeros, zeros.clone())


@case("lob_fill", "lob_available", "lob_take")
class orders:
    def inputs(g):
        b = 70
        px = torch.arange(10, dtype=torch.int32).repeat(b, 1) + torch.randint(-5, 5, (b, 1), generator=g)
        return {
            "px": torch.where(torch.arange(10) < torch.randint(0, 11, (b, 1), generator=g), px, lob.ABSENT).int(),
            "sz": torch.randint(1, 9, (b, 10), generator=g, dtype=torch.int32),
            "side": torch.randint(-1, 2, (b,), generator=g),
            "lots": torch.randint(-3, 90, (b,), generator=g),
            "force": torch.rand(b, generator=g) < 0.5,
            "moved": torch.randint(-1, 2, (b, 1), generator=g, dtype=torch.int32),
        }  # fmt: skip

    def call(x):
        sz = torch.where(x["px"] == lob.ABSENT, 0, x["sz"])
        avail, memory = lob.available(new_memory(*sz.shape, sz.device), x["px"], sz)
        got = lob.fill(x["side"], x["lots"], x["px"], avail, x["force"])
        memory = lob.take(memory, got.per_level)
        moved = torch.where(x["px"] == lob.ABSENT, x["px"], x["px"] + x["moved"])
        left, after = lob.available(memory, moved, sz)
        narrow = lob.fill(x["side"].to(torch.int8), x["lots"], x["px"], avail, x["force"])
        return *got, left, *after, *narrow, *lob.mid_half_ticks(x["px"][:, 0], x["px"][:, 1])


@case("gather_windows", "gather_wide_windows")
class tape_rows:
    def inputs(g):
        return {
            "features": torch.randn(100, 8, generator=g), "odd": torch.randn(100, 7, generator=g),
            "labels": torch.randint(-1, 21, (100, 3), generator=g),
            "start": torch.tensor([0, 40, 41, 90]).repeat_interleave(torch.tensor([40, 1, 49, 10])),
            "anchors": torch.cat([torch.tensor([0, 3, 40, 90, 99]), torch.randint(0, 100, (9,), generator=g)]),
        }  # fmt: skip

    def call(x):
        where = (x["start"], x["anchors"])
        return tuple(
            gather.windows(x[name], *where, steps) for name, steps in (("features", 12), ("odd", 12), ("labels", 1))
        )


def _market_inputs(g):
    tape, _, _ = tapes.random_tape(np.random.default_rng(0), rows=60)
    drawn = {
        "actions": torch.randint(0, 11, (5, ACCOUNTS), generator=g),
        "signs": torch.randint(-1, 2, (5, ACCOUNTS, 3), generator=g, dtype=torch.int8),
    }
    return drawn | {k: v for k, v in vars(tapes.view(tape)).items() if isinstance(v, torch.Tensor)}


def _simulator(x):
    env = EnvConfig(min_hold_steps=0, episode_length=3, latency_steps=2, lots_large=3, trail_initial_mult=1.0)
    market = MarketView(**{k: v for k, v in x.items() if k not in ("actions", "signs")}, tick_cents=1250)
    needed = (*specs(ACCOUNTS, env), *measure.specs())
    buffers = {s.name: torch.ones(s.shape, dtype=getattr(torch, s.dtype)).to(market.device) for s in needed}
    ends = session_end_rows(60, [(20, "session"), (35, "gap"), (60, "file")])
    walk = TrainWalk(market, [(0, 20), (20, 30), (42, 60)], ends, buffers, 3, 2)
    sim = Simulator(env, market, walk, buffers, ACCOUNTS, 2)
    sim.reset(0)
    return sim


@case("account_step", "account_advance", "account_observe", "philox_words", captured=False)
class accounts:
    """The twin is the torch simulator: what it is held to in tests/simulator/test_kernel.py, under every schedule."""

    inputs = _market_inputs

    def call(x):
        sim = _simulator(x)
        seen = [sim.observe().clone(), sim.legal_mask().clone()]
        for step in range(5):
            out = sim.step(x["actions"][step], step, x["signs"][step], phase_end=step == 4)
            words = {name: getattr(out, name) for name in StepOutcome.__dataclass_fields__}
            mask = out.trade_mask[:, :, None]
            seen += [(value * mask if name == "trades" else value.clone()) for name, value in words.items()]
            sim.advance(step)
            seen += [sim.observe().clone(), sim.legal_mask().clone()]
        return *seen, *sim.buffers.values()


@case("account_step", "account_advance", "tally_accounts", "tally_finish", "philox_words", captured=False, ulps=64)
class tallies:
    inputs = _market_inputs

    def call(x):
        sim = _simulator(x)
        counters = measure.Counters(sim.env, ACCOUNTS, 1250, sim.buffers)
        counters.reset()
        for step in range(3):
            counters.update(sim, sim.step(x["actions"][step], step, x["signs"][step], phase_end=step == 2))
            sim.advance(step)
        return tuple(sim.buffers[s.name] for s in measure.specs())
