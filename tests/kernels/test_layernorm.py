"""Layer norm of a sum and its hand-written backward against torch's own and its autograd, and a worked row."""

import pytest
import torch

from kernels.layernorm import op

F64 = torch.float64
EPS = 1e-5


def _random(rows, channels):
    """x with two columns that do not count, z, shift, gain, bias and dL/dout."""
    g = torch.Generator().manual_seed(rows * 1000 + channels)
    z, dy = torch.randn(2, rows, channels, generator=g, dtype=F64)
    shift, gain, bias = torch.randn(3, channels, generator=g, dtype=F64)
    return torch.randn(rows, channels + 2, generator=g, dtype=F64), 3 * z + 1, shift, gain, bias, dy


def _back(total, mean, rstd, gain, dy, wide=0):
    """(dt, dgain, dbias, shift), dt in the first columns of a tensor whose others must stay as they were."""
    into = torch.full((*total.shape[:-1], total.shape[-1] + wide), 7.0, dtype=total.dtype)
    sums = op.normalise_backward(total, mean, rstd, gain, dy, into)
    assert (into[..., total.shape[-1] :] == 7).all()
    return into[..., : total.shape[-1]], *sums


def test_one_row_by_hand():
    """1, 2, 3, 6 has mean 3 and variance 3.5."""
    x, z, shift = torch.tensor([[0.0, 1, 2, 2, 99]]), torch.tensor([[1.0, 0, 1, 3]]), torch.tensor([0.0, 1, 0, 1])
    out, total, mean, rstd = op.normalise(x, z, shift, torch.full((4,), 2.0), torch.ones(4), 0.5)
    assert total.tolist() == [[1.0, 2, 3, 6]] and mean.tolist() == [3.0] and rstd.tolist() == [0.5]
    assert out.tolist() == [[-1.0, 0, 1, 4]]
    dt, dgain, dbias, sums = _back(total, mean, rstd, torch.full((4,), 2.0), torch.tensor([[1.0, 0, 0, 0]]), wide=3)
    # v = -1, -0.5, 0, 1.5; e = 2, 0, 0, 0; mean(e) = 0.5; mean(e v) = -0.5
    assert dt.tolist() == [[0.5, -0.375, -0.25, 0.125]] and sums.tolist() == dt[0].tolist()
    assert dgain.tolist() == [-1.0, 0, 0, 0] and dbias.tolist() == [1.0, 0, 0, 0]


@pytest.mark.parametrize("dtype, atol", [(torch.float32, 4e-6), (F64, 1e-12)])
@pytest.mark.parametrize("shape", [(1, 3), (3, 5), (41, 33), (9, 128)])
def test_equals_torch_and_its_autograd(shape, dtype, atol):
    *inputs, dy = _random(*shape)
    leaves = [a.clone().requires_grad_() for a in inputs]
    t = leaves[0][:, : shape[1]] + leaves[1] + leaves[2]
    expected = torch.nn.functional.layer_norm(t, (shape[1],), *leaves[3:], EPS)
    d_z, d_shift, d_gain, d_bias = torch.autograd.grad((expected * dy).sum(), leaves[1:])
    single = [a.to(dtype) for a in inputs]
    out, total, mean, rstd = op.normalise(*single, EPS)
    got = (out, mean, rstd, *_back(total, mean, rstd, single[3], dy.to(dtype), wide=1))
    exact = (expected, t.mean(1), 1 / (t.var(1, unbiased=False) + EPS).sqrt(), d_z, d_gain, d_bias, d_shift)
    sizes = [a.abs().max().clamp_min(1e-3) for a in (*exact[:-1], d_z)]  # a sum of dt nearly cancels
    for one, of, size in zip(got, exact, sizes, strict=True):
        torch.testing.assert_close(one.to(F64) / size, of.detach() / size, rtol=0, atol=atol)


def test_a_row_does_not_depend_on_the_others():
    x, z, shift, gain, bias, dy = (a.float() for a in _random(40, 33))
    whole = op.normalise(x, z, shift, gain, bias, EPS)
    alone = op.normalise(x[7:8], z[7:8], shift, gain, bias, EPS)
    assert all(torch.equal(one, rows[7:8]) for one, rows in zip(alone, whole))
    back, one = _back(*whole[1:], gain, dy)[0], _back(*alone[1:], gain, dy[7:8])[0]
    torch.testing.assert_close(one, back[7:8], rtol=0, atol=1e-6)


def test_shapes_that_do_not_fit_are_named():
    x, z, shift, gain, bias, dy = _random(4, 6)
    with pytest.raises(ValueError, match=r"^z: shape \[4, 5\]"):
        op.normalise(x, z[:, :5], shift, gain, bias, EPS)
    with pytest.raises(ValueError, match=r"^x: 5 columns, expected at least 6"):
        op.normalise(x[:, :5], z, shift, gain, bias, EPS)
    with pytest.raises(ValueError, match=r"^bias: shape \[5\]"):
        op.normalise(x, z, shift, gain, bias[:5], EPS)
    with pytest.raises(ValueError, match=r"^dy: shape \[3, 6\]"):
        op.normalise_backward(z, z[:, 0], z[:, 0], gain, dy[:3], x)
    with pytest.raises(ValueError, match=r"^into: 4 columns, expected at least 6"):
        op.normalise_backward(z, z[:, 0], z[:, 0], gain, dy, x[:, :4])
