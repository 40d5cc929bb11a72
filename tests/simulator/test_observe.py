"""The account state, value by value."""

from __future__ import annotations

import dataclasses

import pytest

from foxhunt_assets.simulator.observe import ACCOUNT_FEATURES
from tests.simulator.test_simulator import ENV, FLAT_LONG, HOLD, LONG, LONG_LARGE, SHORT, Run, book

NAMES = [f.name for f in ACCOUNT_FEATURES]


def _state(run):
    (values,) = run.sim.observe().tolist()
    return {f.name: v * f.scale(run.sim.env) for f, v in zip(ACCOUNT_FEATURES, values)}


def test_the_twelve_names_in_their_order():
    assert NAMES == [
        "signed_lots", "units", "age", "open_pnl", "trail_distance_left", "session_pnl", "drawdown_lock",
        "loss_streak", "cooldown", "min_hold_left", "unit_cap", "time_to_flat",
    ]  # fmt: skip


def test_a_flat_account_at_the_start():
    state = _state(Run([book(100, 101)] * 3, dataclasses.replace(ENV, min_hold_steps=10)))
    wanted = dict.fromkeys(NAMES, 0.0) | {"unit_cap": 4, "time_to_flat": 32}
    assert state == pytest.approx(wanted)


def test_an_open_account():
    env = dataclasses.replace(ENV, min_hold_steps=10, episode_length=20)
    run = Run([book(100, 101), book(100, 101), book(104, 105), book(103, 104)], env)
    run.do(LONG_LARGE, LONG, HOLD)
    # 2 lots at 101 and 1 at 105, mid 103.5; best bid 104 since either entry: stops at 96.
    assert _state(run) == pytest.approx(
        {
            "signed_lots": 3, "units": 2, "age": 2, "open_pnl": 103.5 - (202 + 105) / 3, "trail_distance_left": 7.5,
            "session_pnl": 3.5 * 1250 - 3 * 225, "drawdown_lock": 0, "loss_streak": 0, "cooldown": 0,
            "min_hold_left": 8, "unit_cap": 4, "time_to_flat": 17,
        },
        rel=1e-5,
    )  # fmt: skip


def test_a_short_account_has_negative_lots_and_a_stop_above():
    run = Run([book(100, 101), book(100, 101), book(98, 99)])
    run.do(SHORT, HOLD)
    state = _state(run)
    assert state["signed_lots"] == pytest.approx(-1)
    assert state["open_pnl"] == pytest.approx(1.5) and state["trail_distance_left"] == pytest.approx(99 + 8 - 98.5)


def _streak(rises_at, episode_length=1024):
    run = Run(
        [book(100, 101)] * rises_at + [book(110, 111)] * 8, dataclasses.replace(ENV, episode_length=episode_length)
    )
    run.do(LONG, FLAT_LONG, LONG, FLAT_LONG)
    return _state(run)["loss_streak"]


def test_losses_in_a_row_count_until_a_win_or_a_new_episode():
    assert _streak(rises_at=6) == pytest.approx(2)  # two losing rounds
    assert _streak(rises_at=4) == 0  # the second round's exit gains nine ticks
    assert _streak(rises_at=2) == pytest.approx(1)  # a win, then a loss
    assert _streak(rises_at=6, episode_length=4) == 0
