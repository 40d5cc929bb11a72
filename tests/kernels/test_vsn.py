"""The feature gate and its hand-written backward against a worked row, autograd, and extreme logits."""

import math

import pytest
import torch

from kernels.vsn import op

F64 = torch.float64


def test_one_row_by_hand():
    """Weights 1/6, 1/3, 1/2; with t = 3, 0, 6 their mean is 3.5."""
    logits = torch.log(torch.tensor([[1.0, 2.0, 3.0]]))
    mask, out = op.select(logits, torch.tensor([[1.0, -2.0, 2.0]]))
    assert mask[0].tolist() == pytest.approx([1 / 6, 1 / 3, 1 / 2], abs=1e-7)
    assert out[0].tolist() == pytest.approx([0.5, -2.0, 3.0], abs=1e-6)
    d_logits, total = op.select_backward(mask, torch.tensor([[1.0, -2.0, 2.0]]), torch.tensor([[1.0, 0.0, 1.0]]))
    assert d_logits[0].tolist() == pytest.approx([-0.5 / 6, -3.5 / 3, 2.5 / 2], abs=1e-6)
    assert total.tolist() == d_logits[0].tolist()


@pytest.mark.parametrize("dtype, atol", [(torch.float32, 4e-6), (F64, 1e-13)])
@pytest.mark.parametrize("shape", [(1, 1), (3, 5), (41, 56)])
def test_equals_autograd_of_the_plain_form(shape, dtype, atol):
    g = torch.Generator().manual_seed(shape[0])
    logits, x, dy = (4 * a for a in torch.randn(3, *shape, generator=g, dtype=F64))
    leaf = logits.clone().requires_grad_()
    mask = torch.softmax(leaf, 1)
    (grad,) = torch.autograd.grad((mask * x * shape[1] * dy).sum(), leaf)
    got_mask, out = op.select(logits.to(dtype), x.to(dtype))
    got = (got_mask, out, *op.select_backward(got_mask, x.to(dtype), dy.to(dtype)))
    for one, exact in zip(got, (mask, mask * x * shape[1], grad, grad.sum(0)), strict=True):
        size = exact.detach().abs().max().clamp_min(1.0)
        torch.testing.assert_close(one.to(F64) / size, exact.detach() / size, rtol=0, atol=atol)


def test_large_logits_do_not_overflow():
    mask, out = op.select(torch.tensor([[1000.0, 0.0, -1000.0], [-1000.0, -1000.0, -1000.0]]), torch.ones(2, 3))
    assert mask[0].tolist() == [1.0, 0.0, 0.0] and mask[1].tolist() == pytest.approx([1 / 3] * 3)
    assert torch.isfinite(out).all()


def test_a_row_that_is_not_a_number_stays_one_and_alone():
    logits = torch.zeros(2, 40)
    logits[1, 35] = math.nan
    mask, _ = op.select(logits, torch.ones(2, 40))
    assert torch.isfinite(mask[0]).all() and torch.isnan(mask[1]).all()


def test_shapes_that_do_not_fit_are_named():
    x = torch.zeros(4, 6)
    with pytest.raises(ValueError, match=r"^logits: shape \[4, 5\]"):
        op.select(x[:, :5], x)
    with pytest.raises(ValueError, match=r"^dy: shape \[3, 6\]"):
        op.select_backward(x, x, x[:3])
