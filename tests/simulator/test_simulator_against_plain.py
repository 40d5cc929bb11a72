"""The vectorised simulator against the plain one on random markets and actions: equal to the cent, every row."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from foxhunt_assets.simulator.config import EnvConfig
from foxhunt_assets.simulator.simulator import Simulator
from foxhunt_assets.simulator.units import REASONS, TRADE_FIELDS
from foxhunt_assets.simulator.walk import EvalWalk, TrainWalk, session_end_rows
from tests.simulator import tapes
from tests.simulator.plain import COUNTS, Plain

ACCOUNTS, WINDOW = 6, 4


def _pair(tape, env, tick_cents, ranges, ends, seed, evaluate):
    """The simulator and its oracle on one tape, both on their first rows."""
    market = tapes.view(tape, tick_cents)
    buffers = tapes.buffers(ACCOUNTS, env)
    session_end = session_end_rows(market.rows, ends)
    if evaluate:
        walk = EvalWalk(market, ranges, session_end, buffers)
    else:
        walk = TrainWalk(market, ranges, session_end, buffers, seed, WINDOW)
    sim = Simulator(env, market, walk, buffers, ACCOUNTS, WINDOW)
    sim.reset(0)
    stretch_last = np.full(market.rows, -1)
    for start, end in ranges:
        stretch_last[start:end] = end - 1
    # Where ended accounts restart is the walk's affair (test_walk): the oracle is told.
    plain = Plain(
        env, tape, tick_cents, ACCOUNTS, WINDOW, stretch_last, session_end.numpy(),
        lambda account, step, row: int(buffers["acct_row"][account]),
    )  # fmt: skip
    return sim, walk, plain


def _compare(out, results, plain):
    columns = ("equity_change_cents", "fee_cents", "terminated", "truncated", "episode_equity_cents", "end_reason")
    ours = list(zip(*(getattr(out, name).tolist() for name in columns)))
    assert [(*o[:5], REASONS[o[5]]) for o in ours] == results
    rows = out.trades[out.trade_mask].tolist()
    reason = TRADE_FIELDS.index("reason")
    ours_rows = [(*r[:reason], REASONS[r[reason]], *r[reason + 1 :]) for r in rows]
    # A stop and a forced close have no action of their own in the table; the plain one writes a hold for stops.
    assert [_without_exit_action(r) for r in ours_rows] == [_without_exit_action(r) for r in plain.trades]
    totals = {name: int(getattr(out, name).sum()) for name in COUNTS}
    assert totals == plain.counts
    assert torch.equal(out.levels_max > 0, out.fills > 0)
    assert out.lots.tolist() == [sum(u.side * u.lots for u in a.units) for a in plain.accounts]


def _without_exit_action(row):
    at = TRADE_FIELDS.index("exit_action")
    return row if row[TRADE_FIELDS.index("reason")] == "policy" else row[:at] + row[at + 1 :]


def _compare_state(sim, plain):
    b = sim.buffers
    assert b["acct_loss_streak"].tolist() == [a.streak for a in plain.accounts]
    assert b["acct_phase_realised_cents"].tolist() == [a.phase_realised for a in plain.accounts]
    assert b["acct_cash_cents"].tolist() == [a.cash for a in plain.accounts]
    for name, value in (("unit_trail_distance", "distance"), ("unit_best_px", "best"), ("unit_lots", "lots")):
        for slots, account in zip(b[name].tolist(), plain.accounts):
            held = [float(getattr(u, value)) for u in account.units]
            assert slots == held + [0] * (sim.env.max_units - len(held)), name


def _run(seed, env, tick_cents, evaluate, bias, steps):
    rng = np.random.default_rng(seed)
    tape, ranges, ends = tapes.random_tape(rng)
    sim, walk, plain = _pair(tape, env, tick_cents, ranges, ends, seed, evaluate)
    steps = walk.n_steps if evaluate else steps
    closes = 0
    for step in range(steps):
        mask = sim.legal_mask()
        legal = [sorted(torch.nonzero(row)[:, 0].tolist()) for row in mask]
        assert legal == [sorted(plain.legal(a, step)) for a in plain.accounts]
        # bias: share of draws over all eleven actions, legal or not.
        actions = [rng.integers(11) if rng.random() < bias else rng.choice(legal[i]) for i in range(ACCOUNTS)]
        signs = rng.integers(-1, 2, (ACCOUNTS, 3))
        last = step == steps - 1 and not evaluate
        out = sim.step(torch.tensor(actions), step, torch.tensor(signs, dtype=torch.int8), last)
        results = plain.step(actions, step, signs, last)
        _compare(out, results, plain)
        closes += int(out.trade_mask.sum())
        sim.advance(step)
        plain.advance(step, results)
        _compare_state(sim, plain)
    if evaluate:
        out = sim.step(torch.full((ACCOUNTS,), 6), steps, torch.zeros(ACCOUNTS, 3, dtype=torch.int8), True, drain=True)
        _compare(out, plain.step([6] * ACCOUNTS, steps, np.zeros((ACCOUNTS, 3), int), True, True), plain)
        assert not out.lots.any()
    return closes


@pytest.mark.parametrize("latency", [1, 2, 3])
@pytest.mark.parametrize("evaluate", [False, True])
def test_equal_to_the_plain_simulator(latency, evaluate):
    closes = 0
    for seed in range(2):
        env = EnvConfig(
            latency_steps=latency,
            min_hold_steps=3 * seed,
            episode_length=25,
            max_units=4 - seed,
            lots_large=2 + 3 * seed,
        )
        closes += _run(seed, env, 1250, evaluate, 0.2, 40)
    assert closes > 100


def test_equal_where_half_a_tick_is_half_a_cent():
    assert _run(11, EnvConfig(min_hold_steps=0, lots_large=3), 125, False, 0.1, 60) > 20


def test_equal_where_accounts_are_blown():
    env = EnvConfig(min_hold_steps=0, start_equity_cents=20_000, lots_large=5)
    assert _run(5, env, 1250, False, 0.0, 80) > 20


@given(
    seed=st.integers(0, 10**6),
    latency=st.integers(1, 3),
    min_hold=st.integers(0, 6),
    large=st.integers(1, 7),
    units=st.integers(1, 4),
    mult=st.floats(0.25, 3),
    evaluate=st.booleans(),
)
@settings(max_examples=6, deadline=None)
def test_equal_on_any_configuration(seed, latency, min_hold, large, units, mult, evaluate):
    env = EnvConfig(
        latency_steps=latency, min_hold_steps=min_hold, lots_large=large, max_units=units, trail_initial_mult=mult,
        start_equity_cents=60_000, episode_length=25,
    )  # fmt: skip
    _run(seed, env, 1250, evaluate, 0.3, 30)
