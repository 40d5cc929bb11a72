"""The heads' written-out gradients against autograd."""

import pytest
import torch
from torch.nn import functional as F

from foxhunt_assets.trainer import backward, heads


def parameters(**shapes):
    g = torch.Generator().manual_seed(1)
    return {
        name: torch.randn(shape, generator=g, dtype=torch.float64).requires_grad_() for name, shape in shapes.items()
    }


def written(p):
    return {name: torch.full_like(x, 9.0) for name, x in p.items()}


@pytest.mark.parametrize("name, outputs", [("q", (3, 4)), ("pi", (5,)), ("v", ())])
def test_a_linear_head(name, outputs):
    width = torch.Size(outputs).numel()
    p = parameters(**{f"{name}_out_w": (width, 6), f"{name}_out_b": (width,)})
    h = torch.randn(7, 6, dtype=torch.float64, requires_grad=True)
    slope = torch.randn(7, *outputs, dtype=torch.float64)
    y = F.linear(h, p[f"{name}_out_w"], p[f"{name}_out_b"]).view(slope.shape)
    wanted = torch.autograd.grad(y, [h, *p.values()], slope)
    grads, grad_h = written(p), torch.full((7, 6), 9.0, dtype=torch.float64)
    with torch.no_grad():
        backward.head(name, slope, h, p, grads, grad_h)
    for found, autograd in zip([grad_h, *grads.values()], wanted):
        assert torch.allclose(found, autograd, rtol=1e-12, atol=1e-14)


def test_the_forward_return_head():
    p = parameters(frd_w1=(4, 6), frd_b1=(4,), frd_w2=(10, 4), frd_b2=(10,))
    h = torch.randn(7, 6, dtype=torch.float64, requires_grad=True)
    slope = torch.randn(7, 2, 5, dtype=torch.float64)
    logits = heads.frd_logits(p, heads.frd_hidden(p, h), 2)
    wanted = torch.autograd.grad(logits, [h, *p.values()], slope)
    grads, grad_h = written(p), torch.full((7, 6), 9.0, dtype=torch.float64)
    with torch.no_grad():
        hidden = heads.frd_hidden(p, h)
        assert (hidden == 0).any()
        backward.frd(slope, hidden, h, p, grads, grad_h)
    for found, autograd in zip([grad_h, *grads.values()], wanted):
        assert torch.allclose(found, autograd, rtol=1e-12, atol=1e-14)
