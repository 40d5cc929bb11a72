"""Policy sampling against worked numbers and against the trainer's own functions."""

import math

import pytest
import torch

from foxhunt_assets.trainer import collect, heads
from kernels.philox import op as philox
from kernels.policy import op, reference

LN2 = math.log(2.0)


def _sample(logits, legal, draws, floor):
    return op.sample(torch.tensor(logits), torch.tensor(legal), torch.tensor(draws), floor)


def test_a_floor_is_kept_under_every_legal_action_and_none_under_the_others():
    pi, action, log_pi = _sample([[0.0, LN2, 5.0]], [[True, True, False]], [0], 0.1)
    assert pi[0].tolist() == pytest.approx([0.8 / 3 + 0.1, 0.8 * 2 / 3 + 0.1, 0.0])
    assert action.tolist() == [0] and float(log_pi) == pytest.approx(math.log(0.8 / 3 + 0.1))


def test_the_draw_picks_the_first_action_it_lies_under():
    quarter = [int(u * 2**32) for u in (0.0, 0.2499, 0.25, 0.74, 0.7501)]
    _, action, _ = _sample([[0.0, LN2, 0.0]] * 5, [[True] * 3] * 5, quarter, 0.0)
    assert action.tolist() == [0, 0, 1, 1, 2]


def test_the_largest_draw_never_falls_on_an_illegal_action():
    _, action, _ = _sample([[0.3, 0.1, 0.2, 9.0]], [[True, True, True, False]], [2**32 - 1], 0.0)
    assert action.tolist() == [2]


def test_the_twin_is_the_behaviour_policy_of_the_trainer():
    g = torch.Generator().manual_seed(3)
    logits, legal = torch.randn(500, 11, generator=g) * 3, torch.rand(500, 11, generator=g) < 0.5
    legal[:, 2] = True
    draws = torch.randint(0, 2**32, (500,), generator=g)
    pi, action, log_pi = reference.sample(logits, legal, draws, 0.02)
    expected = heads.behaviour(logits, legal, 0.02)
    drawn = collect.inverse_cdf(expected, philox.uniform(draws))
    assert torch.equal(pi, expected) and torch.equal(action, drawn)
    assert torch.equal(log_pi, torch.log(expected.gather(1, drawn[:, None])[:, 0].clamp_min(1e-38)))
