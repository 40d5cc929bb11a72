"""The projection and the loss against worked numbers and a floor-and-ceiling scatter on plain Python floats."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kernels.c51 import op

P, REWARD, SPAN = [0.1, 0.2, 0.4, 0.2, 0.1], 0.3, (-1.0, 1.0)
M = [0.02, 0.14, 0.30, 0.34, 0.20]


def _tensor(x, dtype=torch.float64):
    return torch.tensor([x], dtype=dtype)


def _project(probs, reward, discount, span, dtype=torch.float64):
    reward, discount = (torch.tensor([x], dtype=dtype) for x in (reward, discount))
    return op.project(_tensor(probs, dtype), reward, discount, *span)[0]


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


@pytest.mark.parametrize("dtype, tolerance", [(torch.float64, 1e-12), (torch.float32, 1e-6)])
def test_five_atoms(dtype, tolerance):
    m = _project(P, REWARD, 0.9, SPAN, dtype)
    assert m.tolist() == pytest.approx(M, abs=tolerance)
    ended = _project(P, REWARD, 0.0, SPAN, dtype)
    assert ended.tolist() == pytest.approx([0, 0, 0.4, 0.6, 0], abs=tolerance)


def test_shifted_atoms_are_not_clipped():
    shifted = op.shifted_atoms(_tensor(REWARD), _tensor(0.9), *SPAN, 5)[0]
    assert shifted.tolist() == pytest.approx([-0.6, -0.15, 0.3, 0.75, 1.2], abs=1e-12)


def test_cross_entropy_and_its_gradient():
    logits = _tensor([0.1, -0.2, 0.3, 0.0, 0.2]).requires_grad_()
    loss = op.cross_entropy(logits, _tensor(M))
    loss.sum().backward()
    assert float(loss.detach()) == pytest.approx(1.5998682938547217, abs=1e-12)
    expected = [0.181117032, 0.008991161, -0.054355103, -0.158021784, 0.022268694]
    assert logits.grad[0].tolist() == pytest.approx(expected, abs=1e-9)


def test_cross_entropy_gives_the_target_no_gradient():
    target = _tensor(M).requires_grad_()
    logits = torch.zeros(1, 5, dtype=torch.float64, requires_grad=True)
    op.cross_entropy(logits, target).sum().backward()
    assert target.grad is None and logits.grad is not None


def test_twenty_one_atoms_lose_the_tail_to_clipping():
    z = torch.linspace(-1, 1, 21, dtype=torch.float64)
    p = torch.exp(-0.5 * ((z - 0.25) / 0.2) ** 2)
    p /= p.sum()
    m = _project(p.tolist(), 0.05, 0.995, (-1.0, 1.0))
    assert float((m * z).sum()) == pytest.approx(0.29871927811, abs=1e-11)
    assert float((p * (0.05 + 0.995 * z)).sum()) == pytest.approx(0.29872721173, abs=1e-11)
    assert float(m[13]) == pytest.approx(0.19430589614, abs=1e-11)
    assert float(m[20]) == pytest.approx(0.00063792324, abs=1e-11)


def test_moving_the_span_keeps_the_mean_where_reinterpreting_logits_does_not():
    p = _tensor([0.05, 0.1, 0.2, 0.3, 0.35])
    old, new = (torch.linspace(-v, v, 5, dtype=torch.float64)[None] for v in (1, 2))
    m = op.project_atoms(p, old, -2.0, 2.0)
    assert m[0].tolist() == pytest.approx([0, 0.1, 0.4, 0.5, 0], abs=1e-12)
    assert float((m * new).sum()) == pytest.approx(0.4, abs=1e-12)
    assert float((p * new).sum()) == pytest.approx(0.8, abs=1e-12)


def test_span_as_device_scalars_gives_the_same_bits():
    generator = torch.Generator().manual_seed(0)
    p = torch.rand(7, 21, generator=generator).softmax(1)
    r, d = torch.randn(7, generator=generator), torch.full((7,), 0.97)
    span = torch.tensor(-1.5), torch.tensor(2.5)
    assert torch.equal(op.project(p, r, d, *span), op.project(p, r, d, -1.5, 2.5))


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
    span = (v_min, v_min + width)
    shifted = [reward + discount * (v_min + j * width / (n - 1)) for j in range(n)]
    m = _project(p, reward, discount, span)
    assert m.tolist() == pytest.approx(_scatter(p, shifted, *span), abs=1e-9)
    single = _project(p, reward, discount, span, torch.float32)
    assert float(single.double().sum()) == pytest.approx(1, abs=1e-6)
    assert float(single.min()) >= 0


def test_identity_projection_keeps_every_bit_of_mass_in_its_atom():
    """Positions equal to the atoms, float32, spans where they round to either side of their own number."""
    for v_max in (1.0, 1.1, 3.3, 7.7):
        p = torch.rand(64, 21, generator=torch.Generator().manual_seed(3)).softmax(1)
        m = op.project(p, torch.zeros(64), torch.ones(64), -v_max, v_max)
        torch.testing.assert_close(m, p, rtol=0, atol=1e-6)


def test_the_cross_entropy_gradient_is_that_of_autograd_and_of_differences():
    g = torch.Generator().manual_seed(0)
    logits = torch.randn(6, 21, generator=g, dtype=torch.float64, requires_grad=True)
    target = torch.randn(6, 21, generator=g, dtype=torch.float64).softmax(1)
    weights = torch.rand(6, generator=g, dtype=torch.float64)
    plain = -(target * torch.log_softmax(logits, 1)).sum(1)
    expected = torch.autograd.grad((weights * plain).sum(), logits)[0]
    got = torch.autograd.grad((weights * op.cross_entropy(logits, target)).sum(), logits)[0]
    torch.testing.assert_close(got, expected, rtol=0, atol=1e-15)
    assert torch.autograd.gradcheck(lambda x: op.cross_entropy(x, target), (logits,))
