"""Policy sampling against worked numbers and against the trainer's own functions."""

import math

import pytest
import torch

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


def test_the_twin_is_the_floored_softmax_and_its_inverse_cdf():
    g = torch.Generator().manual_seed(3)
    logits, legal = torch.randn(500, 11, generator=g) * 3, torch.rand(500, 11, generator=g) < 0.5
    legal[:, 2] = True
    draws = torch.randint(0, 2**32, (500,), generator=g)
    pi, action, log_pi = reference.sample(logits, legal, draws, 0.02)
    softmax = torch.softmax(logits.masked_fill(~legal, float("-inf")), dim=1)
    expected = (1 - 0.02 * legal.sum(1, keepdim=True)) * softmax + 0.02 * legal
    assert torch.allclose(pi, expected, rtol=1e-6, atol=0) and not pi[~legal].any()
    u, below = (draws >> 8).double() / 2**24, pi.double().cumsum(1)
    drawn = (below > u[:, None]).to(torch.int64).argmax(1)
    sure = (below - u[:, None]).abs().min(1).values > 1e-6  # where float32 sums cannot fall on the other side
    assert sure.sum() > 490 and torch.equal(action[sure], drawn[sure])
    assert torch.equal(log_pi, torch.log(pi.gather(1, action[:, None])[:, 0].clamp_min(1e-38)))


def test_the_draw_skips_illegal_actions_even_at_the_ends():
    p = torch.tensor([[0.0, 0.25, 0.75, 0.0]]).repeat(4, 1)
    assert reference.inverse_cdf(p, torch.tensor([0.0, 0.2499, 0.25, 1 - 2.0**-24])).tolist() == [1, 1, 2, 2]
    short = torch.tensor([[0.5, 0.4999999, 0.0]])  # rounding left a hole at the top
    assert reference.inverse_cdf(short, torch.tensor([1 - 2.0**-24])).tolist() == [1]
