"""The gated scan and its hand-written backward against worked numbers, a plain loop under autograd, and differences."""

import math

import pytest
import torch

from kernels.scan import op

F64 = torch.float64
TOLERANCE = {torch.float32: {"rtol": 0, "atol": 4e-6}, F64: {"rtol": 1e-12, "atol": 1e-12}}


def _plain(pre, w):
    """The recurrence as autograd sees it, without a preallocated output."""
    p, b = pre.chunk(2, dim=-1)
    a, h, steps = torch.sigmoid(p), torch.zeros_like(b[:, 0]), []
    for k in range(b.shape[1]):
        h = a[:, k] * h + (1 - a[:, k]) * b[:, k]
        steps.append(h)
    states = torch.stack(steps, 1)
    return a, states, states * w


def _random(rows, steps, width, dtype=F64):
    g = torch.Generator().manual_seed(rows * 100 + steps)
    pre = torch.randn(rows, steps, 2 * width, generator=g, dtype=dtype)
    w, dy = torch.randn(width, generator=g, dtype=dtype), torch.randn(rows, steps, width, generator=g, dtype=dtype)
    return pre, w, dy


def test_three_steps_by_hand():
    """Decays 1/2, 3/4, 1/4 from a state of 0: 1, 0.75 + 0.5 = 1.25, 0.3125 + 3 = 3.3125."""
    pre = torch.tensor([[[0.0, 2.0], [math.log(3), 2.0], [-math.log(3), 4.0]]])
    decay, state, y = op.scan(pre, torch.tensor([-2.0]))
    assert decay.flatten().tolist() == pytest.approx([0.5, 0.75, 0.25], abs=1e-7)
    assert state.flatten().tolist() == pytest.approx([1.0, 1.25, 3.3125], abs=1e-6)
    assert torch.equal(y, -2 * state)


def test_the_published_form_of_the_block():
    """One channel with two states: y = C h + D x over h_t = exp(dt A) h + dt B x; all gradients known."""
    dt = torch.tensor([0.1, 0.5, 0.2], dtype=F64, requires_grad=True)
    x = torch.tensor([1.0, -2.0, 3.0], dtype=F64, requires_grad=True)
    rate = torch.tensor([-1.0, -2.0], dtype=F64, requires_grad=True)
    b_in = torch.tensor([[1, 0.5], [0.3, -0.4], [0.8, 0.2]], dtype=F64, requires_grad=True)
    c_out = torch.tensor([[0.6, -0.3], [1, 0.5], [-0.2, 0.9]], dtype=F64)
    decay = torch.exp(dt[:, None] * rate)
    pre = torch.cat([torch.logit(decay), (dt * x)[:, None] * b_in / (1 - decay)], dim=1)[None]
    a, h, _ = op.scan(pre.detach(), torch.ones(2, dtype=F64))
    dy = torch.tensor([1.0, -0.5, 2.0], dtype=F64)
    d_pre, _, _ = op.scan_backward(a, h, torch.ones(2, dtype=F64), (c_out * dy[:, None])[None])
    torch.autograd.backward([pre, 0.5 * x], [d_pre, dy])

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
    pre, w, dy = _random(*shape)
    leaves = pre.clone().requires_grad_(), w.clone().requires_grad_()
    expected = _plain(*leaves)
    d_pre, d_w = torch.autograd.grad((expected[2] * dy).sum(), leaves)
    a, s, y = op.scan(pre.to(dtype), w.to(dtype))
    got = (a, s, y, *op.scan_backward(a, s, w.to(dtype), dy.to(dtype)))
    for one, exact in zip(got, (*expected, d_pre, d_pre.sum((0, 1)), d_w), strict=True):
        tolerance = TOLERANCE[dtype]
        torch.testing.assert_close(one.to(F64) / exact.abs().max(), exact.detach() / exact.abs().max(), **tolerance)


def test_gradient_equals_differences():
    pre, w, dy = _random(2, 6, 3)
    a, s, _ = op.scan(pre, w)
    d_pre, _, d_w = op.scan_backward(a, s, w, dy)

    def total():
        return float((op.scan(pre, w)[2] * dy).sum())

    for x, grad in ((pre, d_pre), (w, d_w)):
        for at in range(0, x.numel(), 5):
            values, step = x.view(-1), 1e-6
            values[at] += step
            up = total()
            values[at] -= 2 * step
            assert (up - total()) / (2 * step) == pytest.approx(float(grad.reshape(-1)[at]), rel=1e-6, abs=1e-8)
            values[at] += step


def test_a_gate_that_is_shut_or_open_for_good_has_no_gradient():
    pre = torch.tensor([[[200.0, 3.0], [-200.0, 5.0]]])
    a, s, y = op.scan(pre, torch.ones(1))
    assert a.flatten().tolist() == [1.0, 0.0] and s.flatten().tolist() == [0.0, 5.0]
    d_pre, _, _ = op.scan_backward(a, s, torch.ones(1), torch.ones_like(y))
    assert d_pre.flatten().tolist() == [0.0, 0.0, 0.0, 1.0]


def test_rows_do_not_mix_and_strided_inputs_give_the_same_bits():
    pre, w, dy = _random(5, 9, 4, torch.float32)
    whole = op.scan(pre, w)
    back = op.scan_backward(*whole[:2], w, dy)
    alone = op.scan(pre[3:4], w)
    assert all(torch.equal(one, all_rows[3:4]) for one, all_rows in zip(alone, whole))
    assert torch.equal(op.scan_backward(*alone[:2], w, dy[3:4])[0], back[0][3:4])
    strided = pre.transpose(0, 1).contiguous().transpose(0, 1)
    assert not strided.is_contiguous() and torch.equal(op.scan(strided, w)[2], whole[2])


@pytest.mark.parametrize("name, call", [
    ("pre", lambda: op.scan(torch.zeros(2, 3, 7), torch.zeros(4))),
    ("pre", lambda: op.scan(torch.zeros(2, 0, 8), torch.zeros(4))),
    ("dy", lambda: op.scan_backward(*torch.zeros(2, 2, 3, 4), torch.zeros(4), torch.zeros(2, 3, 8))),
])  # fmt: skip
def test_a_shape_that_does_not_fit_is_named(name, call):
    with pytest.raises(ValueError, match=rf"^{name}: "):
        call()
