"""Layer norm of a sum and its hand-written backward against torch's own and its autograd, and a worked row."""

import pytest
import torch

from kernels.layernorm import op

F64 = torch.float64
EPS = 1e-5


def _random(rows, channels):
    g = torch.Generator().manual_seed(rows * 1000 + channels)
    x, z, dy = torch.randn(3, rows, channels, generator=g, dtype=F64)
    gain, bias = torch.randn(2, channels, generator=g, dtype=F64)
    return x, 3 * z + 1, gain, bias, dy


def test_one_row_by_hand():
    """1, 2, 3, 6 has mean 3 and variance 3.5."""
    x, z = torch.tensor([[0.0, 1, 2, 3]]), torch.tensor([[1.0, 1, 1, 3]])
    out, total, mean, rstd = op.normalise(x, z, torch.full((4,), 2.0), torch.ones(4), 0.5)
    assert total.tolist() == [[1.0, 2, 3, 6]] and mean.tolist() == [3.0] and rstd.tolist() == [0.5]
    assert out.tolist() == [[-1.0, 0, 1, 4]]
    dy = torch.tensor([[1.0, 0, 0, 0]])
    dt, dgain, dbias, shift = op.normalise_backward(total, mean, rstd, torch.full((4,), 2.0), dy)
    # v = -1, -0.5, 0, 1.5; e = 2, 0, 0, 0; mean(e) = 0.5; mean(e v) = -0.5
    assert dt.tolist() == [[0.5, -0.375, -0.25, 0.125]] and shift.tolist() == dt[0].tolist()
    assert dgain.tolist() == [-1.0, 0, 0, 0] and dbias.tolist() == [1.0, 0, 0, 0]


@pytest.mark.parametrize("dtype, atol", [(torch.float32, 4e-6), (F64, 1e-12)])
@pytest.mark.parametrize("shape", [(1, 3), (3, 5), (41, 33), (9, 128)])
def test_equals_torch_and_its_autograd(shape, dtype, atol):
    x, z, gain, bias, dy = _random(*shape)
    leaves = [a.clone().requires_grad_() for a in (x, z, gain, bias)]
    t = leaves[0] + leaves[1]
    expected = torch.nn.functional.layer_norm(t, (shape[1],), *leaves[2:], EPS)
    d_x, d_z, d_gain, d_bias = torch.autograd.grad((expected * dy).sum(), leaves)
    assert torch.equal(d_x, d_z)
    single = [a.to(dtype) for a in (x, z, gain, bias)]
    out, total, mean, rstd = op.normalise(*single, EPS)
    got = (out, mean, rstd, *op.normalise_backward(total, mean, rstd, single[2], dy.to(dtype)))
    exact = (expected, t.mean(1), 1 / (t.var(1, unbiased=False) + EPS).sqrt(), d_x, d_gain, d_bias, d_x.sum(0))
    sizes = [a.abs().max().clamp_min(1e-3) for a in (*exact[:-1], d_x)]  # a sum of dt nearly cancels
    for one, of, size in zip(got, exact, sizes, strict=True):
        torch.testing.assert_close(one.to(F64) / size, of.detach() / size, rtol=0, atol=atol)


def test_a_row_does_not_depend_on_the_others():
    x, z, gain, bias, dy = (a.float() for a in _random(40, 33))
    out, total, mean, rstd = op.normalise(x, z, gain, bias, EPS)
    alone = op.normalise(x[7:8], z[7:8], gain, bias, EPS)
    assert all(torch.equal(one, whole[7:8]) for one, whole in zip(alone, (out, total, mean, rstd)))
    back = op.normalise_backward(total, mean, rstd, gain, dy)[0]
    one = op.normalise_backward(*alone[1:], gain, dy[7:8])[0]
    torch.testing.assert_close(one, back[7:8], rtol=0, atol=1e-6)


def test_shapes_that_do_not_fit_are_named():
    x, z, gain, bias, dy = _random(4, 6)
    with pytest.raises(ValueError, match=r"^z: shape \[4, 5\]"):
        op.normalise(x, z[:, :5], gain, bias, EPS)
    with pytest.raises(ValueError, match=r"^bias: shape \[5\]"):
        op.normalise(x, z, gain, bias[:5], EPS)
    with pytest.raises(ValueError, match=r"^dy: shape \[3, 6\]"):
        op.normalise_backward(x, x[:, 0], x[:, 0], gain, dy[:3])
