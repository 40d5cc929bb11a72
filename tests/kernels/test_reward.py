"""Rewards, PopArt's statistics and the TD error by hand."""

import pytest
import torch

from kernels.reward import op


def fresh(accounts=2, scale=0.5, beta=0.1):
    slots = torch.tensor([scale, beta, 0.0, 1.0, 0.0])
    return slots, torch.zeros(6, dtype=torch.float64), op.Rewards(*torch.zeros(3, accounts).unbind())


def whiten(cents, slots, state, into, learn=True, sigma_min=1e-6):
    fees = torch.full((len(cents),), 100)
    op.whiten(torch.tensor(cents) + fees, fees, 5_000, learn, sigma_min, op.Slots(*slots.unbind()), state, into)


def test_a_reward_is_points_times_lots_scaled_and_over_the_sigma_it_moved():
    slots, state, into = fresh()
    whiten([5_000, -15_000], slots, state, into)
    assert into.raw.tolist() == [1, -3] and into.scaled.tolist() == [0.5, -1.5]
    # the first row with a reward sets the averages: mu -.5, nu 1.25, sigma 1
    assert state.tolist() == pytest.approx([1, -0.5, 1.25, 2, -0.5, 2])
    assert slots[2:].tolist() == pytest.approx([-0.5, 1.0, 1.0])
    whiten([30_000, 30_000], slots, state, into)
    # mu -.5 + .1 (3 + .5), nu 1.25 + .1 (9 - 1.25); Welford over .5, -1.5, 3, 3: mean 1.25, m2 14.25
    assert state.tolist() == pytest.approx([1, -0.15, 2.025, 4, 1.25, 14.25])
    sigma = (2.025 - 0.15**2) ** 0.5
    assert slots[2:].tolist() == pytest.approx([-0.15, sigma, (14.25 / 4) ** 0.5])
    assert into.final.tolist() == pytest.approx([3 / sigma] * 2)


def test_the_averages_of_the_notes():
    slots, state, into = fresh(scale=1.0)
    state.copy_(torch.tensor([1.0, 0, 1, 0, 0, 0]))
    whiten([15_000, 25_000], slots, state, into)  # G = 3 and 5
    assert state[1:3].tolist() == pytest.approx([0.4, 2.6])
    assert float(slots[3]) == pytest.approx(1.5620499351813308)


def test_nothing_starts_before_the_first_reward_and_nothing_moves_in_evaluation():
    slots, state, into = fresh()
    whiten([0, 0], slots, state, into)
    assert state[:3].tolist() == [0, 0, 0] and float(slots[3]) == 1
    whiten([5_000, 0], slots, state, into, learn=False)
    assert state[0] == 0 and slots[2:].tolist() == [0, 1, 0] and into.final.tolist() == [0.5, 0]


def test_sigma_has_a_floor():
    slots, state, into = fresh()
    whiten([5_000, 5_000], slots, state, into, sigma_min=0.25)
    assert float(slots[3]) == 0.25 and into.final.tolist() == [2, 2]


def test_the_error_of_the_step_before():
    nothing = torch.zeros(4)
    previous = op.Previous(
        torch.tensor([1.0, 2.0, 3.0, 4.0]), torch.tensor([0.5, 0.5, 0.5, 9.0]),
        torch.tensor([False, True, False, False]), torch.tensor([False, False, True, False]),
        torch.tensor([True, True, True, False]),
    )  # fmt: skip
    values, rewards = torch.tensor([10.0, 20.0, 30.0, 40.0]), torch.tensor([1.0, 2.0, 3.0, 4.0])
    flags = torch.tensor([[True, False, False, False], [False, False, False, True]])
    found = op.error(values, rewards, *flags, 0.9, True, previous)
    assert found.tolist() == pytest.approx([((0.5 + 9 - 1) + 1.5) / 2])  # the third was truncated, the fourth invalid
    assert [x.tolist() for x in previous[:2]] == [values.tolist(), rewards.tolist()]
    assert [x.tolist() for x in previous[2:]] == [*flags.tolist(), [True] * 4]
    found = op.error(nothing, nothing, *flags, 0.9, False, previous)
    assert found.tolist() == pytest.approx([(9 + 18 + 27) / 3]) and not previous.valid.any()
    assert op.error(nothing, nothing, *flags, 0.9, True, previous).tolist() == [0]
