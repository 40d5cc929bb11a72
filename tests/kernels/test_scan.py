"""The gated scan and its hand-written backward against worked numbers, a plain loop under autograd, and differences."""

import math

import pytest
import torch

from kernels.scan import op

F64 = torch.float64
TOLERANCE = {torch.float32: {"rtol": 0, "atol": 4e-6}, F64: {"rtol": 1e-12, "atol": 1e-12}}


def _plain(pre, bias):
    """The recurrence as autograd sees it, without a preallocated output."""
    p, b = (pre[..., 1:] + bias).chunk(2, dim=-1)
    a, h, steps = torch.sigmoid(p), torch.zeros_like(b[:, 0]), []
    for k in range(b.shape[1]):
        h = a[:, k] * h + (1 - a[:, k]) * b[:, k]
        steps.append(h)
    return a, torch.stack(steps, 1)


def _random(rows, steps, width, dtype=F64):
    """pre with one column in front that does not count, bias, dL/dstate."""
    g = torch.Generator().manual_seed(rows * 100 + steps)
    pre = torch.randn(rows, steps, 2 * width + 1, generator=g, dtype=dtype)
    bias, ds = (
        torch.randn(2 * width, generator=g, dtype=dtype),
        torch.randn(rows, steps, width, generator=g, dtype=dtype),
    )
    return pre, bias, ds


def _back(a, s, ds, wide=0):
    """(dpre, its sums), dpre in the last columns of a tensor whose others must stay as they were."""
    into = torch.full((*a.shape[:2], wide + 2 * a.shape[2]), 7.0, dtype=a.dtype)
    sums = op.scan_backward(a, s, ds, into)
    assert (into[..., :wide] == 7).all()
    return into[..., wide:], sums


def test_three_steps_by_hand():
    """Decays 1/2, 3/4, 1/4 from a state of 0: 1, 0.75 + 0.5 = 1.25, 0.3125 + 3 = 3.3125."""
    pre = torch.tensor([[[9.0, 1.0, 3.0], [9.0, math.log(3) + 1, 3.0], [9.0, 1 - math.log(3), 5.0]]])
    decay, state = op.scan(pre, torch.tensor([-1.0, -1.0]))
    assert decay.flatten().tolist() == pytest.approx([0.5, 0.75, 0.25], abs=1e-7)
    assert state.flatten().tolist() == pytest.approx([1.0, 1.25, 3.3125], abs=1e-6)


def test_the_published_form_of_the_block():
    """One channel with two states: y = C h + D x over h_t = exp(dt A) h + dt B x; all gradients known."""
    dt = torch.tensor([0.1, 0.5, 0.2], dtype=F64, requires_grad=True)
    x = torch.tensor([1.0, -2.0, 3.0], dtype=F64, requires_grad=True)
    rate = torch.tensor([-1.0, -2.0], dtype=F64, requires_grad=True)
    b_in = torch.tensor([[1, 0.5], [0.3, -0.4], [0.8, 0.2]], dtype=F64, requires_grad=True)
    c_out = torch.tensor([[0.6, -0.3], [1, 0.5], [-0.2, 0.9]], dtype=F64)
    decay = torch.exp(dt[:, None] * rate)
    pre = torch.cat([torch.logit(decay), (dt * x)[:, None] * b_in / (1 - decay)], dim=1)[None]
    a, h = op.scan(pre.detach(), torch.zeros(4, dtype=F64))
    dy = torch.tensor([1.0, -0.5, 2.0], dtype=F64)
    torch.autograd.backward([pre, 0.5 * x], [_back(a, h, (c_out * dy[:, None])[None])[0], dy])

    def close(got, expected):
        torch.testing.assert_close(got, torch.tensor(expected, dtype=F64), rtol=0, atol=1e-9)

    close((c_out * h[0]).sum(1) + 0.5 * x.detach(), [0.545, -1.030149948, 1.803604219])
    close(h[0, 2], [0.284039304, 0.400457867])
    close(x.grad, [0.512405289, -0.565439062, 1.008])
    close(dt.grad, [0.124052886, 1.276755725, -0.968032598])
    close(rate.grad, [-0.009418117, 0.109762449])
    close(b_in.grad, [[0.009810055, 0.005190467], [0.827492301, -0.956576083], [-0.24, 1.08]])


@pytest.mark.parametrize("dtype", [torch.float32, F64])
@pytest.mark.parametrize("shape", [(1, 1, 1), (3, 2, 5), (11, 20, 7)])
def test_equals_the_plain_loop_and_its_autograd(shape, dtype):
    pre, bias, ds = _random(*shape)
    leaves = pre.clone().requires_grad_(), bias.clone().requires_grad_()
    expected = _plain(*leaves)
    d_pre, d_bias = torch.autograd.grad((expected[1] * ds).sum(), leaves)
    a, s = op.scan(pre.to(dtype), bias.to(dtype))
    got = (a, s, *_back(a, s, ds.to(dtype), wide=3))
    for one, exact in zip(got, (*expected, d_pre[..., 1:], d_bias), strict=True):
        tolerance = TOLERANCE[dtype]
        torch.testing.assert_close(one.to(F64) / exact.abs().max(), exact.detach() / exact.abs().max(), **tolerance)


def test_gradient_equals_differences():
    pre, bias, ds = _random(2, 6, 3)
    d_pre, d_bias = _back(*op.scan(pre, bias), ds, wide=1)
    d_pre = torch.cat([torch.zeros(2, 6, 1, dtype=F64), d_pre], -1)

    def total():
        return float((op.scan(pre, bias)[1] * ds).sum())

    for x, grad in ((pre, d_pre), (bias, d_bias)):
        for at in range(0, x.numel(), 5):
            values, step = x.view(-1), 1e-6
            values[at] += step
            up = total()
            values[at] -= 2 * step
            assert (up - total()) / (2 * step) == pytest.approx(float(grad.reshape(-1)[at]), rel=1e-6, abs=1e-8)
            values[at] += step


def test_a_gate_that_is_shut_or_open_for_good_has_no_gradient():
    pre = torch.tensor([[[200.0, 3.0], [-200.0, 5.0]]])
    a, s = op.scan(pre, torch.zeros(2))
    assert a.flatten().tolist() == [1.0, 0.0] and s.flatten().tolist() == [0.0, 5.0]
    assert _back(a, s, torch.ones_like(s))[0].flatten().tolist() == [0.0, 0.0, 0.0, 1.0]


def test_rows_do_not_mix_and_strided_inputs_give_the_same_bits():
    pre, bias, ds = _random(5, 9, 4, torch.float32)
    whole = op.scan(pre, bias)
    alone = op.scan(pre[3:4], bias)
    assert all(torch.equal(one, all_rows[3:4]) for one, all_rows in zip(alone, whole))
    assert torch.equal(_back(*alone, ds[3:4])[0], _back(*whole, ds)[0][3:4])
    strided = pre.transpose(0, 1).contiguous().transpose(0, 1)
    assert not strided.is_contiguous() and torch.equal(op.scan(strided, bias)[1], whole[1])


@pytest.mark.parametrize("name, call", [
    ("bias", lambda: op.scan(torch.zeros(2, 3, 7), torch.zeros(7))),
    ("pre", lambda: op.scan(torch.zeros(2, 3, 7), torch.zeros(8))),
    ("pre", lambda: op.scan(torch.zeros(2, 0, 8), torch.zeros(8))),
    ("ds", lambda: op.scan_backward(*torch.zeros(2, 2, 3, 4), torch.zeros(2, 3, 8), torch.zeros(2, 3, 8))),
    ("into", lambda: op.scan_backward(*torch.zeros(3, 2, 3, 4), torch.zeros(2, 3, 7))),
])  # fmt: skip
def test_a_shape_that_does_not_fit_is_named(name, call):
    with pytest.raises(ValueError, match=rf"^{name}: "):
        call()
