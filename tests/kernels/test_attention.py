"""Attention pooling and its hand-written backward against worked numbers and autograd of the plain form."""

import math

import pytest
import torch

from kernels.attention import op

F64 = torch.float64


def test_two_steps_by_hand():
    """q . x over the root of 4 channels is ln 3 and 0: weights 3/4 and 1/4."""
    q = torch.tensor([2 * math.log(3.0), 0.0, 0.0, 0.0])
    x = torch.tensor([[[1.0, 4.0, 0.0, -8.0], [0.0, 8.0, 4.0, 0.0]]])
    weights, out = op.pool(q, x, torch.tensor([[5.0, -6.0]]))
    assert weights[0].tolist() == pytest.approx([0.75, 0.25], abs=1e-6)
    assert out[0].tolist() == pytest.approx([0.75, 5.0, 1.0, -6.0, 5.0, -6.0], abs=1e-5)
    d_out = torch.tensor([[0.0, 0.0, 1.0, 0.0, 9.0, 9.0]])  # dw = 0, 4: ds = 0.75 (0 - 1) / 2, 0.25 (4 - 1) / 2
    dq, dx = op.pool_backward(q, x, weights, d_out)
    assert dq.tolist() == pytest.approx([-0.375, 1.5, 1.5, 3.0], abs=1e-5)
    slope = 0.375 * 2 * math.log(3.0)
    assert dx.flatten().tolist() == pytest.approx([-slope, 0, 0.75, 0, slope, 0, 0.25, 0], abs=1e-5)


@pytest.mark.parametrize("dtype, atol", [(torch.float32, 4e-6), (F64, 1e-13)])
@pytest.mark.parametrize("shape", [(1, 1, 1), (3, 2, 5), (4, 32, 40), (2, 64, 3)])
def test_equals_autograd_of_the_plain_form(shape, dtype, atol):
    g = torch.Generator().manual_seed(sum(shape))
    rows, _, channels = shape
    x, q = torch.randn(shape, generator=g, dtype=F64), 3 * torch.randn(channels, generator=g, dtype=F64)
    beside, dy = torch.randn(rows, 6, generator=g, dtype=F64), torch.randn(rows, channels + 6, generator=g, dtype=F64)
    leaves = q.clone().requires_grad_(), x.clone().requires_grad_()
    weights = torch.softmax(torch.einsum("rkh,h->rk", leaves[1], leaves[0]) / math.sqrt(channels), 1)
    out = torch.cat([torch.einsum("rk,rkh->rh", weights, leaves[1]), beside], 1)
    grads = torch.autograd.grad((out * dy).sum(), leaves)
    single = [a.to(dtype) for a in (q, x, beside, dy)]
    got_weights, got_out = op.pool(*single[:3])
    got = (got_weights, got_out, *op.pool_backward(*single[:2], got_weights, single[3]))
    for one, exact in zip(got, (weights, out, *grads), strict=True):
        size = exact.detach().abs().max().clamp_min(1.0)
        torch.testing.assert_close(one.to(F64) / size, exact.detach() / size, rtol=0, atol=atol)


def test_rows_do_not_mix():
    g = torch.Generator().manual_seed(1)
    q, x, beside = torch.randn(9, generator=g), torch.randn(5, 7, 9, generator=g), torch.randn(5, 2, generator=g)
    weights, out = op.pool(q, x, beside)
    dx = op.pool_backward(q, x, weights, out)[1]
    alone = op.pool(q, x[3:4], beside[3:4])
    torch.testing.assert_close(alone, (weights[3:4], out[3:4]), rtol=0, atol=1e-6)
    torch.testing.assert_close(op.pool_backward(q, x[3:4], *alone)[1], dx[3:4], rtol=0, atol=1e-5)


def test_shapes_that_do_not_fit_are_named():
    q, x = torch.zeros(6), torch.zeros(4, 3, 6)
    with pytest.raises(ValueError, match=r"^x: shape \[4, 3, 5\]"):
        op.pool(q, x[..., :5], torch.zeros(4, 2))
    with pytest.raises(ValueError, match=r"^beside: shape \[3, 2\]"):
        op.pool(q, x, torch.zeros(3, 2))
    with pytest.raises(ValueError, match=r"^weights: shape \[4, 2\]"):
        op.pool_backward(q, x, torch.zeros(4, 2), torch.zeros(4, 8))
