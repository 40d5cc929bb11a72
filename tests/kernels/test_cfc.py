"""The CfC gates and their hand-written backward against worked numbers and autograd of the plain form."""

import pytest
import torch

from kernels.cfc import op

F64 = torch.float64


def test_one_unit_by_hand():
    """f1, f2, a, b of 0.5, -0.3, 0.8, -0.2 at dt 1.5: the gate is sigmoid(1), h and its derivatives follow."""
    x, z = torch.tensor([[0.25, -0.5, 1.0, 0.0]], dtype=F64), torch.tensor([[0.25, 0.2, -0.2, -0.2]], dtype=F64)
    dt = torch.tensor([1.5], dtype=F64)
    h, gate = op.cell(x, z, dt)
    assert float(gate) == pytest.approx(0.731058578630, abs=1e-12)
    assert float(h) == pytest.approx(-0.088684139283, abs=1e-12)
    d, total = op.cell_backward(x, z, dt, gate, torch.ones(1, 1, dtype=F64))
    # (1 - g)(1 - tanh^2 f1), g (1 - tanh^2 f2), and (tanh f2 - tanh f1) g (1 - g) times dt and 1
    expected = [0.211508371137, 0.669018726565, -0.222199925377, -0.148133283585]
    assert d[0].tolist() == pytest.approx(expected, abs=1e-11) and torch.equal(total, d[0])


@pytest.mark.parametrize("dtype, atol", [(torch.float32, 2e-6), (F64, 1e-13)])
@pytest.mark.parametrize("shape", [(1, 1), (3, 5), (21, 40)])
def test_equals_autograd_of_the_plain_form(shape, dtype, atol):
    rows, units = shape
    g = torch.Generator().manual_seed(rows)
    x, z = torch.randn(2, rows, 4 * units, generator=g, dtype=F64)
    dt, dh = torch.rand(rows, generator=g, dtype=F64) * 3, torch.randn(rows, units, generator=g, dtype=F64)
    leaf = x.clone().requires_grad_()
    f1, f2, a, b = (leaf + z).split(units, dim=1)
    gate = 1 / (1 + torch.exp(-(a * dt[:, None] + b)))
    h = torch.tanh(f1) * (1 - gate) + torch.tanh(f2) * gate
    (grad,) = torch.autograd.grad((h * dh).sum(), leaf)
    single = [t.to(dtype) for t in (x, z, dt)]
    got_h, got_gate = op.cell(*single)
    got = (got_h, got_gate, *op.cell_backward(*single, got_gate, dh.to(dtype)))
    for one, exact in zip(got, (h, gate, grad, grad.sum(0)), strict=True):
        size = exact.detach().abs().max().clamp_min(1.0)
        torch.testing.assert_close(one.to(F64) / size, exact.detach() / size, rtol=0, atol=atol)


def test_saturated_gates_stay_finite():
    x = torch.tensor([[50.0, -50.0, 200.0, 0.0], [50.0, -50.0, -200.0, 0.0]])
    h, gate = op.cell(x, torch.zeros_like(x), torch.ones(2))
    assert gate.flatten().tolist() == [1.0, 0.0] and h.flatten().tolist() == [-1.0, 1.0]
    d, _ = op.cell_backward(x, torch.zeros_like(x), torch.ones(2), gate, torch.ones(2, 1))
    assert torch.equal(d, torch.zeros_like(d))


def test_shapes_that_do_not_fit_are_named():
    x = torch.zeros(4, 8)
    with pytest.raises(ValueError, match=r"^z: shape \[3, 8\]"):
        op.cell(x, x[:3], torch.ones(4))
    with pytest.raises(ValueError, match=r"^x: 7 columns"):
        op.cell(x[:, :7], x[:, :7], torch.ones(4))
    with pytest.raises(ValueError, match=r"^dh: shape \[4, 3\]"):
        op.cell_backward(x, x, torch.ones(4), x[:, :2], x[:, :3])
