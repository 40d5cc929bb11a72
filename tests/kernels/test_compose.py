"""The composed weights of a block against a worked block of one channel and autograd of the plain form."""

import pytest
import torch

from kernels.compose import op

F64 = torch.float64


def _random(hidden, inputs, dtype=F64):
    g = torch.Generator().manual_seed(hidden * 100 + inputs)
    shapes = ((hidden, inputs), (hidden,), (2 * hidden, hidden), (2 * hidden,), (hidden,), (hidden,) * 2, (hidden,))
    return op.Block(*(torch.randn(s, generator=g, dtype=F64).to(dtype) for s in shapes))


def _gradients(block, d):
    into = op.Block(*(torch.full_like(part, torch.nan) for part in block))
    op.compose_backward(block, d, into)
    return into


def test_one_channel_by_hand():
    """W_in = [2, 3], b_in = 5; a takes 7 u + 11, b takes -1 u + 13; w_c = 4, W_out = 6, b_out = -2."""
    values = ([[2.0, 3]], [5.0], [[7.0], [-1]], [11.0, 13], [4.0], [[6.0]], [-2.0])
    block = op.Block(*map(torch.tensor, values))
    composed = op.compose(block)
    assert composed.joint.tolist() == [[2, 3], [14, 21], [-2, -3]] and composed.gates.tolist() == [46, 8]
    assert composed.out.tolist() == [[24]] and composed.shift.tolist() == [3]
    d = op.Composed(
        torch.tensor([[1.0, 0], [0, 1], [2, 0]]), torch.tensor([1.0, 2]), torch.tensor([[5.0]]), torch.tensor([3.0])
    )
    into = _gradients(block, d)
    assert into.w_in.tolist() == [[1 - 2, 7]] and into.b_in.tolist() == [3 + 7 - 2]
    assert into.w_ab.tolist() == [[3 + 5], [4 + 10]] and into.b_ab.tolist() == [1, 2]
    assert into.w_out.tolist() == [[20]] and into.w_c.tolist() == [30] and into.b_out.tolist() == [3]


@pytest.mark.parametrize("dtype, atol", [(torch.float32, 4e-6), (F64, 1e-12)])
@pytest.mark.parametrize("shape", [(1, 1), (5, 3), (20, 33), (40, 3)])
def test_rows_and_gradients_equal_those_of_the_block_step_by_step(shape, dtype, atol):
    hidden, inputs = shape
    block, g = _random(*shape), torch.Generator().manual_seed(1)
    x, s = torch.randn(7, inputs, generator=g, dtype=F64), torch.randn(7, hidden, generator=g, dtype=F64)
    d_total, d_gates = (
        torch.randn(7, hidden, generator=g, dtype=F64),
        torch.randn(7, 2 * hidden, generator=g, dtype=F64),
    )
    leaves = op.Block(*(part.clone().requires_grad_() for part in block))
    u = x @ leaves.w_in.T + leaves.b_in
    gates, total = u @ leaves.w_ab.T + leaves.b_ab, u + (s * leaves.w_c) @ leaves.w_out.T + leaves.b_out
    exact = torch.autograd.grad((gates * d_gates).sum() + (total * d_total).sum(), leaves)
    block = op.Block(*(part.to(dtype) for part in block))
    of = op.compose(block)
    joint = x.to(dtype) @ of.joint.T
    made = joint[:, :hidden] + s.to(dtype) @ of.out.T + of.shift
    d_joint = torch.cat([d_total, d_gates], 1)
    sums = (d_joint.T @ x, d_gates.sum(0), d_total.T @ s, d_total.sum(0))
    found = _gradients(block, op.Composed(*(part.to(dtype) for part in sums)))
    for got, want in zip((made, joint[:, hidden:] + of.gates, *found), (total, gates, *exact), strict=True):
        size = want.detach().abs().max()
        torch.testing.assert_close(got.to(F64) / size, want.detach() / size, rtol=0, atol=atol)


def test_shapes_that_do_not_fit_are_named():
    block = _random(4, 3)
    with pytest.raises(ValueError, match=r"^w_ab: shape \[4, 4\], expected \[8, 4\]"):
        op.compose(block._replace(w_ab=block.w_ab[:4]))
    composed = op.compose(block)
    with pytest.raises(ValueError, match=r"^gates: shape \[7\]"):
        op.compose_backward(block, composed._replace(gates=composed.gates[:7]), block)
    with pytest.raises(ValueError, match=r"^b_out: shape \[3\]"):
        op.compose_backward(block, composed, block._replace(b_out=block.b_out[:3]))
