"""Losses, policy probabilities and the optimiser against numbers computed outside the code."""

import math

import pytest
import torch

from foxhunt_assets.trainer import heads, losses
from foxhunt_assets.trainer.collect import inverse_cdf
from foxhunt_assets.trainer.learn import slope
from foxhunt_assets.trainer.optimizer import AdamW, clip_factor


def test_ppo_by_hand():
    new, old = torch.tensor([0.3, 0.45, 0.3, 0.1]), torch.tensor([0.2, 0.5, 0.3, 0.4])
    advantage = torch.tensor([1.0, -2.0, 0.5, -1.0])
    log_pi = new.log().requires_grad_()
    log_ratio = log_pi - old.log()
    rows = losses.ppo_surrogate(log_ratio.exp(), advantage, 0.2)
    assert rows.tolist() == pytest.approx([-1.2, 1.8, -0.5, 0.8], abs=1e-6)
    assert rows.mean().item() == pytest.approx(0.225, abs=1e-6)
    assert float(losses.k3(log_ratio).mean()) == pytest.approx(0.184047442167, abs=1e-6)
    assert torch.autograd.grad(rows.mean(), log_pi)[0].tolist() == pytest.approx([0, 0.45, -0.125, 0], abs=1e-6)


def test_clipped_value_by_hand():
    rows = losses.clipped_value(torch.tensor([1.5, 1.9]), torch.tensor([1.0, 2.0]), torch.tensor([2.0, 1.0]), 0.2)
    assert float(rows.mean()) == pytest.approx(0.3625, abs=1e-6)


def test_entropy_by_hand():
    assert float(heads.entropy(torch.tensor([0.7, 0.2, 0.1]))) == pytest.approx(0.801818552543, abs=1e-7)
    assert float(heads.entropy(torch.tensor([1.0, 0.0]))) == 0


def test_entropy_of_a_masked_policy_has_a_finite_gradient():
    logits = torch.tensor([[0.7, 0.2, 5.0]], requires_grad=True)
    entropy = heads.entropy(heads.masked_softmax(logits, torch.tensor([[True, True, False]])))
    (grad,) = torch.autograd.grad(entropy.sum(), logits)
    p = 1 / (1 + math.exp(-0.5))  # two legal actions: dH/dlogit_0 = -p0 (ln p0 + H)
    h = -p * math.log(p) - (1 - p) * math.log(1 - p)
    assert grad[0].tolist() == pytest.approx([-p * (math.log(p) + h), p * (math.log(p) + h), 0], abs=1e-6)


def test_behaviour_keeps_a_floor_under_every_legal_action_and_none_under_the_others():
    logits = torch.tensor([[9.0, 0, 0, 0], [0.0, 0, 0, 0]])
    legal = torch.tensor([[True, True, False, True], [False, True, False, False]])
    p = heads.behaviour(logits, legal, 0.02)
    assert torch.allclose(p.sum(1), torch.ones(2))
    assert float(p[0, 2]) == 0 and p[1].tolist() == pytest.approx([0, 1, 0, 0])
    assert float(p[0, 1]) == pytest.approx(0.02 + 0.94 * math.exp(-9) / (1 + 2 * math.exp(-9)), rel=1e-5)


def test_inverse_cdf_skips_illegal_actions_even_at_the_ends():
    p = torch.tensor([[0.0, 0.25, 0.75, 0.0]]).repeat(4, 1)
    assert inverse_cdf(p, torch.tensor([0.0, 0.2499, 0.25, 1 - 2.0**-24])).tolist() == [1, 1, 2, 2]
    short = torch.tensor([[0.5, 0.4999999, 0.0]])  # rounding left a hole at the top
    assert inverse_cdf(short, torch.tensor([1 - 2.0**-24])).tolist() == [1]


def test_double_q_picks_online_and_reads_target():
    # one-hot distributions whose expectation is exact: atoms are 0, 1, 2
    support = torch.tensor([0.0, 1.0, 2.0])

    def sure(atoms):
        return torch.nn.functional.one_hot(torch.tensor([atoms]), 3).float() * 100

    t = losses.BellmanTarget(
        sure([1, 2, 0]), sure([2, 1, 0]), torch.tensor([[True, True, True]]), torch.tensor([0.5]),
        torch.tensor([0.5]), support,
    )  # fmt: skip
    assert float(t.expectation) == pytest.approx(0.5 + 0.5 * 1.0, abs=1e-6)  # not 0.5 + 0.5 x 2
    assert float(t.double_q_gap) == pytest.approx(1.0, abs=1e-6)
    masked = losses.BellmanTarget(
        sure([1, 2, 0]), sure([2, 1, 0]), torch.tensor([[True, False, True]]), torch.tensor([0.5]),
        torch.tensor([0.5]), support,
    )  # fmt: skip
    assert float(masked.expectation) == pytest.approx(1.5, abs=1e-6)  # action 1 is illegal there


def test_masked_cross_entropy_leaves_unlabelled_rows_out():
    logits = torch.tensor([[[1.0, 0.0]], [[5.0, -5.0]]], requires_grad=True)
    ce, valid = losses.masked_cross_entropy(logits, torch.tensor([[1], [-1]]))
    assert valid.tolist() == [[True], [False]]
    assert float(ce[0]) == pytest.approx(math.log(1 + math.e), abs=1e-6) and float(ce[1]) == 0
    assert torch.autograd.grad(ce.sum(), logits)[0][1].abs().sum() == 0


def test_adamw_by_hand():
    weights, m, v, t = torch.tensor([1.0]), torch.zeros(1), torch.zeros(1), torch.zeros(1, dtype=torch.int64)
    rates, gate = torch.tensor([0.01]), torch.tensor(1.0)
    seen = []
    for g in (0.5, -0.2, 0.1):
        AdamW(0.9, 0.999, 1e-8, 0.01).step(weights, torch.tensor([g]), m, v, t, rates, gate)
        seen.append(float(weights))
    assert seen == pytest.approx([0.989900000200, 0.986344951812, 0.982452399588], abs=2e-7)
    assert float(m) == pytest.approx(0.0325, abs=1e-7) and float(v) == pytest.approx(0.00029946025, abs=1e-9)


def test_a_closed_gate_moves_nothing():
    weights, m, v, t = torch.tensor([1.0]), torch.zeros(1), torch.zeros(1), torch.zeros(1, dtype=torch.int64)
    change = AdamW(0.9, 0.999, 1e-8, 0.01).step(
        weights, torch.tensor([0.5]), m, v, t, torch.tensor([0.01]), torch.tensor(0.0)
    )
    assert (float(weights), float(m), float(v), int(t), float(change)) == (1.0, 0.0, 0.0, 0, 0.0)


def test_clip_factor():
    assert float(clip_factor(torch.tensor(2.0), 1.0)) == 0.5
    assert float(clip_factor(torch.tensor(0.0), 1.0)) == 1.0


def test_slope_is_least_squares():
    def from_means(x, y):
        return float(slope(x.mean(), y.mean(), (x * x).mean(), (x * y).mean()))

    x = torch.tensor([1.0, 2.0, 4.0], dtype=torch.float64)
    assert from_means(x, torch.tensor([1.0, 5.0, 6.0], dtype=torch.float64)) == pytest.approx(1.5)  # 7 / (14 / 3)
    assert from_means(torch.full_like(x, 0.1), x) == 0
