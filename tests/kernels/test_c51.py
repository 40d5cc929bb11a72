"""Double Q-learning on distributions: worked numbers, a scatter on plain floats, autograd, statistics by hand."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kernels.c51 import op, reference

UPDATE = op.DoubleQ(gamma=0.5, eps=1e-3, alpha=0.6)


def span(v_min, v_max, dtype=torch.float32, scale=1.0, now=9):
    return op.Scale(*(torch.tensor(x, dtype=dtype) for x in (v_min, v_max, scale)), torch.tensor(now))


def sure(atoms, n=3):
    """Logits [1, A, n] of distributions that lie on one atom."""
    return torch.nn.functional.one_hot(torch.tensor([atoms]), n).float() * 100


def learn(update, logits, online_next, target_next, scale, stats=None, **columns):
    """One call with what is not given the same for all rows."""
    rows, actions = logits.shape[:2]
    zeros, flags = torch.zeros(rows, dtype=torch.int64), torch.zeros(rows, dtype=torch.bool)
    given = {
        "action": zeros, "legal_next": torch.ones(rows, actions, dtype=torch.bool),
        "reward": torch.zeros(rows, dtype=logits.dtype), "closed": flags, "terminated": flags, "step": zeros,
        "indices": torch.arange(rows), "weights": torch.ones(rows, dtype=logits.dtype),
        "leaves": torch.ones(rows, dtype=logits.dtype), "uniforms": torch.ones(rows, dtype=logits.dtype),
    } | columns  # fmt: skip
    t, d = (kind(*(given[name] for name in kind._fields)) for kind in (op.Transitions, op.Drawn))
    stats = torch.zeros(len(op.NAMES), dtype=torch.float64) if stats is None else stats
    found = update.gradients(logits, online_next, target_next, t, d, scale, stats)
    return *found, dict(zip(op.NAMES, stats.tolist()))


def project(probs, reward, discount, span_, dtype=torch.float64):
    """(target mass [N] as the gradient of a uniform row shows it, statistics) of next masses probs."""
    ahead = torch.tensor([[probs]], dtype=dtype).log()
    update, flat = op.DoubleQ(discount, 1e-3, 0.6), torch.zeros_like(ahead)
    grad, _, stats = learn(update, flat, flat, ahead, span(*span_, dtype), reward=torch.tensor([reward], dtype=dtype))
    return 1 / len(probs) - grad[0, 0], stats


P, SPAN = [0.1, 0.2, 0.4, 0.2, 0.1], (-1.0, 1.0)
KINDS = pytest.mark.parametrize("dtype, tolerance", [(torch.float64, 1e-12), (torch.float32, 1e-6)])


@KINDS
def test_five_atoms(dtype, tolerance):
    m, stats = project(P, 0.3, 0.9, SPAN, dtype)  # to -0.6, -0.15, 0.3, 0.75, 1.2
    assert m.tolist() == pytest.approx([0.02, 0.14, 0.30, 0.34, 0.20], abs=tolerance)
    assert (stats["sat_hi"], stats["sat_lo"]) == pytest.approx((0.2, 0), abs=tolerance)
    assert (stats["target_abs_max"], stats["overshoot"]) == pytest.approx((1.2, 0.2), abs=tolerance)
    ended, _ = project(P, 0.3, 0.0, SPAN, dtype)
    assert ended.tolist() == pytest.approx([0, 0, 0.4, 0.6, 0], abs=tolerance)


@KINDS
def test_cross_entropy_and_its_gradient(dtype, tolerance):
    logits = torch.tensor([[[0.1, -0.2, 0.3, 0.0, 0.2]]], dtype=dtype)
    ahead = torch.tensor([[P]], dtype=dtype).log()
    reward = torch.tensor([0.3], dtype=dtype)
    grad, _, stats = learn(op.DoubleQ(0.9, 1e-3, 0.6), logits, ahead, ahead, span(*SPAN, dtype), reward=reward)
    assert stats["loss_q"] == pytest.approx(1.5998682938547217, abs=tolerance)
    expected = [0.181117032, 0.008991161, -0.054355103, -0.158021784, 0.022268694]
    assert grad[0, 0].tolist() == pytest.approx(expected, abs=max(tolerance, 1e-9))


def test_twenty_one_atoms_lose_the_tail_to_clipping():
    z = torch.linspace(-1, 1, 21, dtype=torch.float64)
    p = torch.exp(-0.5 * ((z - 0.25) / 0.2) ** 2)
    p /= p.sum()
    m, stats = project(p.tolist(), 0.05, 0.995, SPAN)
    assert stats["target_mean"] == pytest.approx(0.29871927811, abs=1e-11)
    assert float((p * (0.05 + 0.995 * z)).sum()) == pytest.approx(0.29872721173, abs=1e-11)
    assert float(m[13]) == pytest.approx(0.19430589614, abs=1e-11)
    assert float(m[20]) == pytest.approx(0.00063792324, abs=1e-11)


def _scatter(probs, positions, v_min, v_max):
    """Algorithm 1 of Bellemare et al., with the mass of an integral position kept."""
    n = len(probs)
    m = [0.0] * n
    for p, z in zip(probs, positions):
        b = min(max((z - v_min) * (n - 1) / (v_max - v_min), 0.0), n - 1.0)
        low = math.floor(b)
        m[low] += p * (1 - (b - low))
        m[min(low + 1, n - 1)] += p * (b - low)
    return m


@given(
    st.integers(2, 21),
    st.floats(-5, 5),
    st.floats(0.0, 1.0),
    st.floats(-4, 0, width=32),
    st.floats(0.125, 8, width=32),
    st.integers(0, 2**31),
)
def test_equals_the_scatter_form_and_keeps_the_mass(n, reward, discount, v_min, width, seed):
    generator = torch.Generator().manual_seed(seed)
    p = torch.randn(n, generator=generator, dtype=torch.float64).softmax(0).tolist()
    span_ = (v_min, v_min + width)
    shifted = [reward + discount * (v_min + j * width / (n - 1)) for j in range(n)]
    m, _ = project(p, reward, discount, span_)
    assert m.tolist() == pytest.approx(_scatter(p, shifted, *span_), abs=1e-9)
    single, stats = project(p, reward, discount, span_, torch.float32)
    assert stats["mass_err_max"] <= 1e-6
    assert float(single.min()) >= -1e-6  # of a difference of two float32
    atoms = torch.tensor([shifted], dtype=torch.float32)
    assert reference.project(torch.tensor([p]), atoms, *torch.tensor(span_)).min() >= 0


def test_atoms_that_do_not_move_keep_their_mass():
    """Float32, on spans where the atoms round to either side of their own number."""
    for v_max in (1.0, 1.1, 3.3, 7.7):
        p = torch.rand(21, generator=torch.Generator().manual_seed(3)).softmax(0)
        m, _ = project(p.tolist(), 0.0, 1.0, (-v_max, v_max), torch.float32)
        torch.testing.assert_close(m, p, rtol=0, atol=1e-6)


def test_the_online_network_picks_and_the_target_network_values():
    # atoms are 0, 1, 2: the online argmax is action 1, which the target network puts at 1
    given = sure([0, 0, 0]), sure([1, 2, 0]), sure([2, 1, 0]), span(0.0, 2.0)
    stats = learn(UPDATE, *given, reward=torch.tensor([0.5]))[2]
    assert stats["target_mean"] == pytest.approx(0.5 + 0.5 * 1.0, abs=1e-6)  # not 0.5 + 0.5 x 2
    assert stats["double_q_gap"] == pytest.approx(1.0, abs=1e-6)
    masked = torch.tensor([[True, False, True]])
    stats = learn(UPDATE, *given, reward=torch.tensor([0.5]), legal_next=masked)[2]
    assert stats["target_mean"] == pytest.approx(1.5, abs=1e-6)  # action 1 is illegal there


@pytest.mark.parametrize("end", ["closed", "terminated"])
def test_a_target_ends_with_the_trade_or_the_account(end):
    given = sure([0]), sure([2]), sure([2]), span(0.0, 2.0, scale=0.25)
    stats = learn(UPDATE, *given, reward=torch.tensor([2.0]), **{end: torch.tensor([True])})[2]
    assert stats["target_mean"] == pytest.approx(2 * 0.25, abs=1e-6)
    assert stats[f"{end}_frac"] == 1


def test_loss_priority_and_gradient_of_one_row_by_hand():
    # uniform over three atoms against mass on the middle one: loss ln 3, gradient 1/3 - target
    logits = torch.zeros(1, 2, 3)
    grad, priorities, stats = learn(
        UPDATE, logits, sure([2, 0]), sure([2, 0]), span(0.0, 2.0), weights=torch.tensor([0.5]),
        action=torch.tensor([1]),
    )  # fmt: skip
    assert grad[0, 1].tolist() == pytest.approx([0.5 / 3, 0.5 * (1 / 3 - 1), 0.5 / 3], abs=1e-6)
    assert not grad[0, 0].any()
    ln3 = 1.0986122886681098
    assert float(priorities) == pytest.approx((ln3 + 1e-3) ** 0.6, rel=1e-6)
    assert stats["loss_q"] == pytest.approx(0.5 * ln3, rel=1e-6)
    assert stats["td_abs_mean"] == pytest.approx(0, abs=1e-6)  # both expectations are 1


def test_a_loss_that_is_no_number_leaves_a_priority_that_is_one():
    logits = torch.tensor([[[float("nan"), 0.0, 0.0]], [[0.0, 0.0, 0.0]]])
    _, priorities, stats = learn(UPDATE, logits, logits * 0 + 1, sure([2]).repeat(2, 1, 1), span(0.0, 2.0))
    assert priorities[0] == pytest.approx(1e-3) and priorities[1] > 0.5
    assert stats["loss_q"] != stats["loss_q"]  # and shows


def test_the_gradient_is_that_of_the_loss():
    g = torch.Generator().manual_seed(5)
    logits, online, target = torch.randn(3, 12, 4, 7, generator=g, dtype=torch.float64)
    reward, weights = torch.randn(12, generator=g).double(), torch.rand(12, generator=g).double()
    action, legal = torch.randint(0, 4, (12,), generator=g), torch.rand(12, 4, generator=g) < 0.7
    legal[:, 3] = True
    closed = torch.rand(12, generator=g) < 0.3
    scale = span(-1.0, 1.5, torch.float64, 0.7)
    grad, _, _ = learn(
        UPDATE, logits, online, target, scale, action=action, legal_next=legal, reward=reward, closed=closed,
        weights=weights,
    )  # fmt: skip
    leaf = logits.clone().requires_grad_()
    discounts = torch.where(closed, 0.0, 0.5).double()
    aim = reference.target(online, target, legal, reward * 0.7, discounts, scale.v_min, scale.v_max)

    def loss_of(x):
        return -(weights * (aim.mass * torch.log_softmax(x[torch.arange(12), action], 1)).sum(1)).mean()

    assert torch.allclose(grad, torch.autograd.grad(loss_of(leaf), leaf)[0], rtol=1e-10, atol=1e-14)
    moved = torch.zeros_like(logits)
    moved[5, action[5], 2] = 1e-6
    up, down = (loss_of(logits + sign * moved) for sign in (1, -1))
    assert float(grad[5, action[5], 2]) == pytest.approx(float(up - down) / 2e-6, rel=1e-5)


def test_statistics_of_a_batch_by_hand():
    logits = sure([1]).repeat(4, 1, 1)
    stats = learn(
        UPDATE, logits, logits, logits, span(0.0, 2.0, now=10), reward=torch.tensor([-3.0, 0.0, 1.0, 4.0]),
        step=torch.tensor([1, 4, 4, 10]), indices=torch.tensor([2, 2, 5, 7]), weights=torch.tensor([1.0, 0.5, 0.5, 1]),
        leaves=torch.tensor([1.0, 2, 3, 6]), uniforms=torch.tensor([0.0, 0.5, 0.5, 1.0]),
        closed=torch.tensor([True, False, False, False]),
    )[2]  # fmt: skip
    # atoms 0, 1, 2 move to -3, (0, .5, 1), (1, 1.5, 2), (4, 4.5, 5); sure of the middle one
    wanted = {
        "target_mean": (0 + 0.5 + 1.5 + 2) / 4, "td_signed_mean": 0.0, "td_abs_mean": (1 + 0.5 + 0.5 + 1) / 4,
        "td_abs_max": 1, "sat_hi": 3 / 12, "sat_lo": 3 / 12, "overshoot": (9 + 2 + 2.5 + 3) / 6, "target_abs_max": 5,
        "ess_frac": 9 / (4 * 2.5), "priority_mean": 3, "weight_mean": 0.75, "weight_min": 0.5, "age_mean": 5.25,
        "age_max": 9, "unique_frac": 0.75, "closed_frac": 0.25, "positive_frac": 0.5, "draw_mean": 0.5,
        "target_std": (((1 + 0.25 + 0.25 + 1)) / 4) ** 0.5,
    }  # fmt: skip
    assert {name: stats[name] for name in wanted} == pytest.approx(wanted, abs=1e-5)
