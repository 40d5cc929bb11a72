"""The heads' written-out gradients against autograd."""

import pytest
import torch
from torch.nn import functional as F

from foxhunt_assets.trainer import backward, heads

F64 = torch.float64


def parameters(**shapes):
    g = torch.Generator().manual_seed(1)
    return {name: torch.randn(shape, generator=g, dtype=F64).requires_grad_() for name, shape in shapes.items()}


def hidden_rows():
    return torch.randn(7, 6, dtype=F64, generator=torch.Generator().manual_seed(2), requires_grad=True)


def assert_equal(found, wanted):
    wanted = [wanted[0].flatten(), *(torch.cat([w.flatten(), b]) for w, b in zip(wanted[1::2], wanted[2::2]))]
    for one, autograd in zip(found, wanted, strict=True):
        assert torch.allclose(one.flatten(), autograd, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("outputs", [(3, 4), (5,), ()])
def test_a_linear_head(outputs):
    width = torch.Size(outputs).numel()
    p, h = parameters(w=(width, 6), b=(width,)), hidden_rows()
    slope = torch.randn(7, *outputs, dtype=F64)
    wanted = torch.autograd.grad(F.linear(h, p["w"], p["b"]).view(slope.shape), [h, *p.values()], slope)
    grad_h, grad = torch.full((7, 6), 9.0, dtype=F64), torch.full((width * 7,), 9.0, dtype=F64)
    backward.linear(slope, h.detach(), p["w"].detach(), grad_h, grad)
    assert_equal((grad_h, grad), wanted)


def test_the_forward_return_head():
    p, h = parameters(frd_w1=(4, 6), frd_b1=(4,), frd_w2=(10, 4), frd_b2=(10,)), hidden_rows()
    slope = torch.randn(7, 2, 5, dtype=F64)
    hidden = heads.frd_hidden(p, h)
    wanted = torch.autograd.grad(heads.frd_logits(p, hidden, 2), [h, *p.values()], slope)
    assert (hidden == 0).any()
    grad_h, first, second = (torch.full(shape, 9.0, dtype=F64) for shape in ((7, 6), (28,), (50,)))
    w1, w2 = p["frd_w1"].detach(), p["frd_w2"].detach()
    backward.frd(slope, hidden.detach(), h.detach(), w1, w2, grad_h, first, second)
    assert_equal((grad_h, first, second), wanted)
