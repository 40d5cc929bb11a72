"""Policy probabilities of the heads against numbers computed outside the code."""

import math

import pytest
import torch

from foxhunt_assets.trainer import heads


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
