"""The CUDA source of a step, run on the CPU, against the torch simulator: every word, every step."""

from __future__ import annotations

import dataclasses
from collections import Counter

import numpy as np
import pytest
import torch

from foxhunt_assets.simulator.config import EnvConfig
from foxhunt_assets.simulator.outcome import StepOutcome
from foxhunt_assets.simulator.simulator import Simulator
from foxhunt_assets.simulator.units import REASONS
from foxhunt_assets.simulator.walk import EvalWalk, TrainWalk, session_end_rows
from tests.kernels import shim
from tests.simulator import tapes

ACCOUNTS, WINDOW = 40, 4  # more than one block, the last one not full
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


def compare(monkeypatch, env, seed, steps=40, evaluate=False, legal=0.8, tick_cents=1250):
    """Hold the source to the twin on one random market; returns how often each thing happened."""
    rng = np.random.default_rng(seed)
    market, happened = tapes.random_tape(rng), Counter()
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
    for seed in range(2):
        env = EnvConfig(
            latency_steps=latency, min_hold_steps=3 * seed, episode_length=9, max_units=4 - seed,
            lots_large=2 + 3 * seed, trail_initial_mult=1.5,
        )  # fmt: skip
        happened += compare(monkeypatch, env, seed, evaluate=evaluate)
    reasons = ("session", "gap", "phase_end", *(() if evaluate else ("length",)))
    assert all(happened[name] for name in (*COUNTED, *reasons)), happened
    assert happened["trades"] > 100
