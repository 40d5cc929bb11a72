"""The scan and its hand-written backward against worked numbers, plain loops, autograd and finite differences."""

import pytest
import torch

from kernels.scan import op


def _plain(a, b):
    """The recurrence as autograd sees it, without a preallocated output."""
    h, steps = torch.zeros_like(b[:, 0]), []
    for k in range(b.shape[1]):
        h = a[:, k] * h + b[:, k]
        steps.append(h)
    return torch.stack(steps, 1)


def _random(rows, steps, width, dtype=torch.float64):
    generator = torch.Generator().manual_seed(rows * 100 + steps)
    a = torch.rand(rows, steps, width, generator=generator, dtype=dtype)
    return a, torch.randn(rows, steps, width, generator=generator, dtype=dtype)


def test_three_steps_by_hand():
    a = torch.tensor([[[9.0], [0.5], [-2.0]]])  # a_0 meets h_{-1} = 0
    b = torch.tensor([[[1.0], [2.0], [3.0]]])
    assert op.selective_scan(a, b).flatten().tolist() == [1.0, 2.5, -2.0]


def test_the_published_form_of_the_block():
    """One channel with two states: y = C h + D x over h_t = exp(dt A) h + dt B x; all gradients known."""
    dt = torch.tensor([0.1, 0.5, 0.2], dtype=torch.float64, requires_grad=True)
    x = torch.tensor([1.0, -2.0, 3.0], dtype=torch.float64, requires_grad=True)
    decay = torch.tensor([-1.0, -2.0], dtype=torch.float64, requires_grad=True)
    b_in = torch.tensor([[1, 0.5], [0.3, -0.4], [0.8, 0.2]], dtype=torch.float64, requires_grad=True)
    c_out = torch.tensor([[0.6, -0.3], [1, 0.5], [-0.2, 0.9]], dtype=torch.float64)
    h = op.selective_scan(torch.exp(dt[:, None] * decay)[None], ((dt * x)[:, None] * b_in)[None])[0]
    y = (c_out * h).sum(1) + 0.5 * x
    y.backward(torch.tensor([1.0, -0.5, 2.0], dtype=torch.float64))

    def close(got, expected):
        torch.testing.assert_close(got, torch.tensor(expected, dtype=torch.float64), rtol=0, atol=1e-9)

    close(y.detach(), [0.545, -1.030149948, 1.803604219])
    close(h[2].detach(), [0.284039304, 0.400457867])
    close(x.grad, [0.512405289, -0.565439062, 1.008])
    close(dt.grad, [0.124052886, 1.276755725, -0.968032598])
    close(decay.grad, [-0.009418117, 0.109762449])
    close(b_in.grad, [[0.009810055, 0.005190467], [0.827492301, -0.956576083], [-0.24, 1.08]])


@pytest.mark.parametrize("shape", [(1, 1, 1), (3, 2, 5), (4, 32, 7)])
def test_equals_autograd_of_the_plain_loop(shape):
    a, b = (x.requires_grad_() for x in _random(*shape))
    weight = torch.randn(shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    expected = torch.autograd.grad((_plain(a, b) * weight).sum(), (a, b))
    got = torch.autograd.grad((op.selective_scan(a, b) * weight).sum(), (a, b))
    torch.testing.assert_close(op.selective_scan(a, b), _plain(a, b), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(got, expected, rtol=1e-12, atol=1e-12)


def test_finite_differences():
    assert torch.autograd.gradcheck(op.selective_scan, [x.requires_grad_() for x in _random(2, 6, 3)])


def test_float32_backward_is_that_of_float64_up_to_rounding():
    a, b = _random(8, 32, 16)
    grads = []
    for dtype in (torch.float32, torch.float64):
        pair = [x.to(dtype).requires_grad_() for x in (a, b)]
        grads.append(torch.autograd.grad(op.selective_scan(*pair).sum(), pair))
    for single, double in zip(*grads):
        torch.testing.assert_close(single.double(), double, rtol=2e-6, atol=2e-6)


def test_rows_do_not_mix_and_strided_inputs_give_the_same_bits():
    a, b = _random(5, 9, 4, torch.float32)
    whole = op.selective_scan(a, b)
    assert torch.equal(op.selective_scan(a[3:4], b[3:4]), whole[3:4])
    strided = a.transpose(0, 1).contiguous().transpose(0, 1)
    assert not strided.is_contiguous() and torch.equal(op.selective_scan(strided, b), whole)


def test_a_second_derivative_is_refused_not_wrong():
    a, b = (x.requires_grad_() for x in _random(1, 3, 1))
    (da,) = torch.autograd.grad((op.selective_scan(a, b) ** 2).sum(), a, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        da.sum().backward()
