"""The CUDA source of a step, run on the CPU, against the torch simulator: every word, every step."""

from __future__ import annotations

import dataclasses
from collections import Counter

import numpy as np
import pytest
import torch

from foxhunt_assets.contracts.tables import ABSENT_PX
from foxhunt_assets.simulator import measure
from foxhunt_assets.simulator.config import EnvConfig
from foxhunt_assets.simulator.outcome import StepOutcome
from foxhunt_assets.simulator.simulator import Simulator
from foxhunt_assets.simulator.units import REASONS
from foxhunt_assets.simulator.walk import EvalWalk, TrainWalk, session_end_rows
from tests.kernels import shim
from tests.simulator import tapes

ACCOUNTS, WINDOW = 37, 4  # more than one block of lanes; the last one, and a warp of it, are not full
FIELDS = [f.name for f in dataclasses.fields(StepOutcome)]
COUNTED = (
    "illegal", "ineffective", "rejected", "cancelled_lots", "forced_rest_lots", "units_added", "units_closed_singly",
    "tightened", "loosened",
)  # fmt: skip


def simulator(env, market, evaluate=False, tick_cents=1250, seed=7):
    tape, ranges, ends = market
    view, buffers = tapes.view(tape, tick_cents), tapes.buffers(ACCOUNTS, env)
    session_end = session_end_rows(view.rows, ends)
    if evaluate:
        walk = EvalWalk(view, ranges, session_end, buffers)
    else:
        walk = TrainWalk(view, ranges, session_end, buffers, seed, WINDOW)
    sim = Simulator(env, view, walk, buffers, ACCOUNTS, WINDOW)
    sim.reset(0)
    return sim


def look(sim):
    """Everything that can be seen of a simulator between two calls."""
    state = {name: x.clone() for name, x in sim.buffers.items()}
    return state | {"observe": sim.observe().clone(), "legal_mask": sim.legal_mask().clone()}


def outcome(out):
    """The outcome's words; a trade row counts where it is there."""
    found = {name: getattr(out, name).clone() for name in FIELDS}
    found["trades"] *= found["trade_mask"][:, :, None]
    return found


def play(sim, script):
    """Yield what each call of a script of steps left: (when, words)."""
    yield "reset", look(sim)
    for step, (actions, signs, last, drain) in enumerate(script):
        at = step if step % 2 else torch.tensor(step)
        out = sim.step(actions(sim), at, signs, last, drain)
        yield f"step {step}", outcome(out) | look(sim)
        if not last:
            sim.advance(step)
            yield f"step {step}, advanced", look(sim)


def write(rng, steps, evaluate, legal):
    """A script of random actions; `legal` is the share of accounts that keep to legal ones."""
    script = []
    for step in range(steps):
        weights, free = (
            torch.from_numpy(rng.random((ACCOUNTS, 11))),
            torch.from_numpy(rng.random((ACCOUNTS, 1)) > legal),
        )
        signs = torch.from_numpy(rng.integers(-1, 2, (ACCOUNTS, 3))).to(torch.int8)
        last = step == steps - 1

        def actions(sim, weights=weights, free=free):
            return (weights * (sim.legal_mask() | free)).argmax(1)

        script.append((actions, signs, last, last and evaluate))
    return script


def compare(monkeypatch, env, seed, steps=40, evaluate=False, legal=0.8, tick_cents=1250, lower=0):
    """Hold the source to the twin on one random market, `lower` ticks down; returns how often each thing happened."""
    rng = np.random.default_rng(seed)
    market, happened = tapes.random_tape(rng), Counter()
    for name in ("bid_px", "ask_px", "low_bid_px", "high_ask_px"):
        market[0][name] -= (market[0][name] != ABSENT_PX) * np.int32(lower)
    twin = simulator(env, market, evaluate, tick_cents)
    script = write(rng, twin.walk.n_steps + 1 if evaluate else steps, evaluate, legal)
    expected = list(play(twin, script))
    with shim.installed(monkeypatch, shim.POISONS[0], schedules=1) as launched:
        ours = simulator(env, market, evaluate, tick_cents)
        launched.clear()
        for (when, got), (_, want) in zip(play(ours, script), expected, strict=True):
            assert got.keys() == want.keys()
            for name, x in got.items():
                assert x.dtype == want[name].dtype and torch.equal(_bits(x), _bits(want[name])), (when, name)
    assert launched == ["account_observe", *["account_step", "account_advance"] * len(script)][:-1]
    for _, words in expected:
        if "end_reason" in words:
            happened.update(REASONS[reason] for reason in words["end_reason"].tolist() if reason)
            happened.update({name: int(words[name].sum()) for name in COUNTED})
            happened["trades"] += int(words["trade_mask"].sum())
    return happened


def _bits(x):
    return x.contiguous().view(torch.uint8)


@pytest.mark.parametrize("latency", [1, 2, 3])
@pytest.mark.parametrize("evaluate", [False, True])
def test_equal_to_the_twin(latency, evaluate, monkeypatch):
    happened = Counter()
    for seed in range(4 if evaluate else 2):  # an evaluation has few steps
        env = EnvConfig(
            latency_steps=latency, min_hold_steps=3 * seed, episode_length=9, max_units=4 - seed,
            lots_large=2 + 3 * seed, trail_initial_mult=1.5,
        )  # fmt: skip
        happened += compare(monkeypatch, env, seed, evaluate=evaluate)
    reasons = ("session", "gap", "phase_end", *(() if evaluate else ("length",)))
    assert all(happened[name] for name in (*COUNTED, *reasons)), happened
    assert happened["trades"] > 100


def test_equal_where_half_a_tick_is_half_a_cent(monkeypatch):
    env = EnvConfig(min_hold_steps=0, lots_large=3)
    assert compare(monkeypatch, env, 11, steps=30, legal=0.9, tick_cents=125)["trades"] > 20


def test_equal_where_prices_are_negative(monkeypatch):
    """Spreads trade below zero: halves of cents and shares of an entry are rounded down there too."""
    env = EnvConfig(min_hold_steps=0, lots_large=5, lots_small=3)
    assert compare(monkeypatch, env, 12, steps=30, legal=0.9, tick_cents=125, lower=20_100)["trades"] > 20


def test_equal_where_accounts_are_blown(monkeypatch):
    env = EnvConfig(min_hold_steps=0, start_equity_cents=20_000, lots_large=5)
    assert compare(monkeypatch, env, 5, legal=1.0)["blown"] > 5


@pytest.mark.parametrize("seed", range(4))
def test_equal_on_any_configuration(seed, monkeypatch):
    rng = np.random.default_rng(100 + seed)
    env = EnvConfig(
        latency_steps=int(rng.integers(1, 4)), min_hold_steps=int(rng.integers(0, 7)), max_units=seed + 1,
        lots_large=int(rng.integers(1, 8)), lots_small=int(rng.integers(1, 4)), start_equity_cents=60_000,
        trail_initial_mult=float(rng.uniform(0.25, 3)), trail_tighten=float(rng.uniform(0.1, 1)),
        trail_loosen=float(rng.uniform(1, 3)), trail_max_ticks=int(rng.integers(4, 40)), episode_length=25,
    )  # fmt: skip
    assert compare(monkeypatch, env, seed, steps=25, evaluate=seed % 2 == 1)["trades"] > 20


def test_what_a_kernel_saw_is_looked_up_anew_where_others_wrote_the_state(monkeypatch):
    """A checkpoint read into the buffers must not meet the observation of the state before it."""
    env = EnvConfig(min_hold_steps=0, episode_length=30)
    market = tapes.random_tape(np.random.default_rng(0))
    signs = torch.zeros(ACCOUNTS, 3, dtype=torch.int8)
    with shim.installed(monkeypatch, shim.POISONS[0], schedules=1) as launched:
        sim = simulator(env, market)
        saved, seen, legal = look(sim), sim.observe().clone(), sim.legal_mask().clone()
        sim.step(torch.full((ACCOUNTS,), 6), 0, signs, False)
        sim.advance(0)
        assert not torch.equal(sim.observe(), seen) and not torch.equal(sim.legal_mask(), legal)
        for name, x in sim.buffers.items():
            x.copy_(saved[name])
        launched.clear()
        assert torch.equal(sim.observe(), seen) and torch.equal(sim.legal_mask(), legal)
        assert launched == ["account_observe"]


def test_a_step_number_that_the_step_itself_writes_is_refused(monkeypatch):
    with shim.installed(monkeypatch, shim.POISONS[0], schedules=1):
        sim = simulator(EnvConfig(), tapes.random_tape(np.random.default_rng(0)))
        step, signs = sim.buffers["acct_step"][0], torch.zeros(ACCOUNTS, 3, dtype=torch.int8)
        with pytest.raises(ValueError, match=r"^step: it is acct_step itself"):
            sim.step(torch.full((ACCOUNTS,), 2), step, signs, False)


def measured(env, market, script, evaluate, tick_cents):
    """Yield what the counters hold after each step of a script."""
    sim = simulator(env, market, evaluate, tick_cents)
    buffers = {s.name: torch.full(s.shape, s.fill, dtype=getattr(torch, s.dtype)) for s in measure.specs()}
    counters = measure.Counters(env, ACCOUNTS, tick_cents, buffers)
    counters.reset()
    for step, (actions, signs, last, drain) in enumerate(script):
        out = sim.step(actions(sim), step, signs, last, drain)
        counters.update(sim, out)
        yield {name: x.clone() for name, x in buffers.items()}
        sim.advance(step)


@pytest.mark.parametrize("units, evaluate, tick_cents", [(4, False, 1250), (3, True, 125), (1, False, 1250)])
def test_the_tally_is_that_of_the_twin(units, evaluate, tick_cents, monkeypatch):
    rng = np.random.default_rng(units)
    env = EnvConfig(min_hold_steps=1, episode_length=9, max_units=units, lots_large=3, trail_initial_mult=1.0)
    market = tapes.random_tape(rng)
    steps = simulator(env, market, evaluate).walk.n_steps + 1 if evaluate else 25
    script = write(rng, steps, evaluate, 0.9)
    expected = list(measured(env, market, script, evaluate, tick_cents))
    with shim.installed(monkeypatch, shim.POISONS[0], schedules=1) as launched:
        for got, want in zip(measured(env, market, script, evaluate, tick_cents), expected, strict=True):
            for name, x in got.items():
                if name == "diag_sim_floats":
                    torch.testing.assert_close(x, want[name], rtol=1e-12, atol=1e-12)  # sums in another order
                else:
                    assert torch.equal(x, want[name]), name
    assert launched.count("tally_accounts") == launched.count("tally_finish") == steps
    totals = dict(zip(measure.TOTALS, expected[-1]["diag_sim_totals"].tolist()))
    assert totals["trades"] > 20 and totals["trail_pnl"] and totals["forced_pnl"]
