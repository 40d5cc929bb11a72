"""PPO's losses against numbers computed outside the code, its gradients against autograd and differences."""

import math

import pytest
import torch

from kernels.ppo import op, reference

UPDATE = op.PPO(clip_eps=0.2, value_clip=0.2, entropy_coef=0.03, floor=0.02, kl_stop=0.5)
FIRST = torch.tensor(0)
PLAIN = torch.tensor([0.0, 1.0], dtype=torch.float64)  # a window whose advantages are white


def test_the_surrogate_by_hand():
    new, old = torch.tensor([0.3, 0.45, 0.3, 0.1]), torch.tensor([0.2, 0.5, 0.3, 0.4])
    advantage = torch.tensor([1.0, -2.0, 0.5, -1.0])
    log_pi = new.log().requires_grad_()
    log_ratio = log_pi - old.log()
    rows = reference.surrogate(log_ratio.exp(), advantage, 0.8, 1.2)
    assert rows.tolist() == pytest.approx([-1.2, 1.8, -0.5, 0.8], abs=1e-6)
    assert reference.k3(log_ratio.detach()).mean().item() == pytest.approx(0.184047442167, abs=1e-6)
    assert torch.autograd.grad(rows.mean(), log_pi)[0].tolist() == pytest.approx([0, 0.45, -0.125, 0], abs=1e-6)


def test_the_clipped_value_loss_by_hand():
    rows = reference.clipped_value(torch.tensor([1.5, 1.9]), torch.tensor([1.0, 2.0]), torch.tensor([2.0, 1.0]), 0.2)
    assert float(rows.mean()) == pytest.approx(0.3625, abs=1e-6)


def test_entropy_by_hand():
    assert float(reference.entropy(torch.tensor([0.7, 0.2, 0.1]))) == pytest.approx(0.801818552543, abs=1e-7)
    assert float(reference.entropy(torch.tensor([1.0, 0.0]))) == 0


def test_entropy_of_a_masked_policy_has_a_finite_gradient():
    logits = torch.tensor([[0.7, 0.2, 5.0]], requires_grad=True)
    entropy = reference.entropy(reference.masked_softmax(logits, torch.tensor([[True, True, False]])))
    (grad,) = torch.autograd.grad(entropy.sum(), logits)
    p = 1 / (1 + math.exp(-0.5))  # two legal actions: dH/dlogit_0 = -p0 (ln p0 + H)
    h = -p * math.log(p) - (1 - p) * math.log(1 - p)
    assert grad[0].tolist() == pytest.approx([-p * (math.log(p) + h), p * (math.log(p) + h), 0], abs=1e-6)


def by_hand(dtype=torch.float32):
    """Two actions of probabilities 0.7 and 0.3 on four rows, whose ratios are those of the surrogate by hand."""
    p = torch.tensor([0.3, 0.45, 0.3, 0.1], dtype=torch.float64)
    logits = torch.stack([p.log(), (1 - p).log()], 1).to(dtype)
    old = torch.tensor([0.2, 0.5, 0.3, 0.4], dtype=torch.float64).log().to(dtype)
    advantages = torch.tensor([1.0, -2.0, 0.5, -1.0], dtype=dtype)
    values, before = torch.tensor([1.5, 1.9, 0, 0], dtype=dtype), torch.tensor([1.0, 2.0, 0, 0], dtype=dtype)
    returns = torch.tensor([2.0, 1.0, 0, 0], dtype=dtype)
    legal, actions = torch.ones(4, 2, dtype=torch.bool), torch.zeros(4, dtype=torch.int64)
    return logits, values, legal, actions, old, advantages, before, returns, PLAIN


def test_gradients_and_means_by_hand():
    update = op.PPO(0.2, 0.2, 0.0, 0.0, kl_stop=0.5)
    stats, gate, stops = torch.full((16,), 9.0).double(), torch.zeros(1), torch.zeros(1, dtype=torch.int64)
    grad_logits, grad_values, sums = update.gradients(*by_hand())
    # d ln pi(a) / d logit = 1 - p(a), the slopes being those of the surrogate by hand
    assert grad_logits[:, 0].tolist() == pytest.approx([0, 0.45 * 0.55, -0.125 * 0.7, 0], abs=1e-6)
    assert grad_logits.sum(1).tolist() == pytest.approx([0] * 4, abs=1e-7)
    # row 0 moved by 0.5 and the clipped loss is the larger one: no gradient; row 1 moved by 0.1
    assert grad_values.tolist() == pytest.approx([0, 0.9 / 4, 0, 0], abs=1e-6)
    update.keep(sums, 4, FIRST, stats, gate, stops)  # which starts stats and gate anew
    found = dict(zip(op.NAMES, stats.tolist()))
    wanted = {"loss_pi": 0.225, "loss_v": 0.3625 / 2, "kl": 0.184047442167, "clip_frac": 0.5, "minibatches": 1,
              "ratio_max": 1.5, "ratio_mean": (1.5 + 0.9 + 1 + 0.25) / 4, "bias": 0.1, "error_abs": 0.35}  # fmt: skip
    assert {name: found[name] for name in wanted} == pytest.approx(wanted, abs=1e-6)
    assert (float(gate), int(stops)) == (1, 0)


def drawn(n=40):
    g = torch.Generator().manual_seed(3)
    logits = torch.randn(n, 5, generator=g, dtype=torch.float64)
    legal = torch.rand(n, 5, generator=g) < 0.7
    legal[:, 1] = True
    actions = torch.multinomial(legal.double(), 1, generator=g)[:, 0]
    old = torch.log_softmax(logits, 1)[torch.arange(n), actions] + torch.randn(n, generator=g, dtype=torch.float64) / 4
    rest = torch.randn(4, n, generator=g, dtype=torch.float64)
    rest[2] = rest[0] + rest[2] / 8  # old values near the new ones, on either side of the clip
    window = torch.tensor([0.2, 1.4], dtype=torch.float64)
    return (logits, rest[0], legal, actions, old, rest[1], rest[2], rest[3], window)


def loss(logits, values, legal, actions, old, advantages, before, returns, window):
    """The whole loss as one differentiable number."""
    p = reference.masked_softmax(logits, legal)
    ratio = torch.exp(reference.log_pi(p, legal, actions, UPDATE.floor) - old)
    a = (advantages - window[0]) / window[1]
    each = reference.surrogate(ratio, a, 1 - UPDATE.clip_eps, 1 + UPDATE.clip_eps)
    each = each - UPDATE.entropy_coef * reference.entropy(p)
    return (each + reference.clipped_value(values, before, returns, UPDATE.value_clip)).mean()


def test_the_gradients_are_those_of_the_loss():
    logits, values, *rest = drawn()
    leaves = [x.clone().requires_grad_() for x in (logits, values)]
    found = UPDATE.gradients(logits, values, *rest)[:2]
    for ours, autograd in zip(found, torch.autograd.grad(loss(*leaves, *rest), leaves)):
        assert torch.allclose(ours, autograd, rtol=1e-10, atol=1e-14)
        assert (ours != 0).any()
    moved = 1e-6
    for row, action in ((0, 1), (7, 3), (21, 0)):
        up, down = logits.clone(), logits.clone()
        up[row, action] += moved
        down[row, action] -= moved
        difference = (loss(up, values, *rest) - loss(down, values, *rest)) / (2 * moved)
        assert float(found[0][row, action]) == pytest.approx(float(difference), rel=1e-5, abs=1e-10)


def test_an_illegal_action_gets_no_gradient():
    logits, values, legal, *rest = (x.float() if x.is_floating_point() else x for x in drawn())
    grad = UPDATE.gradients(logits, values, legal, *rest[:-1], rest[-1].double())[0]
    assert not grad[~legal].any() and grad[legal].any() and grad.isfinite().all()


def test_a_minibatch_above_the_kl_stop_is_left_out_and_so_are_those_after_it():
    stats, gate, stops = torch.zeros(16, dtype=torch.float64), torch.ones(1), torch.zeros(1, dtype=torch.int64)
    loose, strict = (op.PPO(0.2, 0.2, 0.03, 0.0, kl_stop) for kl_stop in (0.5, 0.1))  # the KL is 0.184
    sums = loose.gradients(*by_hand())[2]
    for number, update, state in ((0, loose, (1, 0, 1)), (1, strict, (0, 1, 1)), (2, loose, (0, 1, 1))):
        update.keep(sums, 4, torch.tensor(number), stats, gate, stops)
        assert (float(gate), int(stops), stats[op.NAMES.index("minibatches")]) == state
    found = dict(zip(op.NAMES, stats.tolist()))
    assert found["kl_first"] == found["kl_last"] == pytest.approx(0.184047442167, abs=1e-6)
    loose.keep(sums, 4, FIRST, stats, gate, stops)  # the next window
    assert (float(gate), int(stops), stats[op.NAMES.index("minibatches")]) == (1, 1, 1)
    assert found["entropy_bonus"] == pytest.approx(0.03 * sum(
        -(p * math.log(p) + (1 - p) * math.log(1 - p)) for p in (0.3, 0.45, 0.3, 0.1)
    ) / 4, abs=1e-7)  # fmt: skip
