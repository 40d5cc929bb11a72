"""The heads of an acting batch against the trainer's functions one by one, and against a worked row."""

import math

import pytest
import torch

from foxhunt_assets.trainer import heads
from foxhunt_assets.trainer.params import Layout, param_table
from kernels.heads import op
from tests.trainer.fold_by_hand import tiny_config


def _buffers(rows, actions, atoms, horizons, bins, dtype):
    shapes = ((rows, actions, atoms), (rows, actions), (rows, actions), (rows,), (rows, horizons, bins))
    return op.Outputs(*(torch.zeros(x, dtype=dtype) for x in shapes), torch.zeros(rows, horizons, dtype=torch.int8))


def test_one_row_by_hand():
    """Two units 1, 2; two actions of two atoms; a hidden layer whose second unit is shut; returns below and above 0."""
    w = op.Weights(
        torch.tensor([[math.log(3), 0], [0, 0], [0, 0.5], [1, 0]]), torch.zeros(4), torch.tensor([[1.0, 1], [0, -1]]),
        torch.tensor([0.5, 0]), torch.tensor([[2.0, -1]]), torch.tensor([0.25]), torch.tensor([[1.0, 1], [-1, -1]]),
        torch.zeros(2), torch.tensor([[0.0, 9], [-1, 9], [0.0, 9], [1, 9], [0, 0], [0, 0]]), torch.zeros(6),
    )  # fmt: skip
    into = _buffers(1, 2, 2, 3, 2, torch.float32)
    op.acting(torch.tensor([[1.0, 2.0]]), w, torch.tensor([0.0, 4.0]), torch.tensor([-1.0, 1.0]).double(), into)
    assert into.q_logits.flatten().tolist() == pytest.approx([math.log(3), 0, 1, 1], abs=1e-6)
    assert into.q_values[0].tolist() == pytest.approx([1.0, 2.0], abs=1e-6)
    assert into.pi_logits[0].tolist() == [3.5, -2.0] and into.v.tolist() == [0.25]
    assert into.frd_logits.flatten().tolist() == [0.0, -3.0, 0.0, 3.0, 0.0, 0.0]
    assert into.signs.tolist() == [[-1, 1, 0]]


@pytest.mark.parametrize("dtype, tolerance", [(torch.float32, 2e-6), (torch.float64, 1e-13)])
def test_equals_the_heads_one_by_one(dtype, tolerance):
    layout = Layout(param_table(tiny_config(), 45, 11, 12))
    g = torch.Generator().manual_seed(0)
    p = {name: view.to(dtype) for name, view in layout.views(torch.randn(layout.size, generator=g) / 2).items()}
    h, support = torch.randn(9, 8, generator=g).to(dtype), torch.linspace(-2, 2, 21).to(dtype)
    atoms = torch.linspace(-3, 3, 21).double()
    into = _buffers(9, 11, 21, 3, 21, dtype)
    heads.acting(p, h, support, atoms, into)
    q, frd = heads.q_logits(p, h, 11), heads.frd_logits(p, heads.frd_hidden(p, h), 3)
    q_values = (torch.softmax(q, -1) * support).sum(-1)
    means = (torch.softmax(frd.double(), -1) * atoms).sum(-1)
    assert (means.abs() > 1e-5).all()
    expected = (q, q_values, heads.pi_logits(p, h), heads.value(p, h), frd)
    for got, one in zip(into, expected):
        torch.testing.assert_close(got / one.abs().max(), one / one.abs().max(), rtol=0, atol=tolerance)
    assert torch.equal(into.signs, means.sign().to(torch.int8)) and 0 < int((into.signs > 0).sum()) < into.signs.numel()


def test_what_is_not_a_number_stays_so_in_its_row():
    layout = Layout(param_table(tiny_config(), 45, 11, 12))
    p = layout.views(torch.full((layout.size,), 0.1))
    h = torch.ones(5, 8)
    h[2, 3] = math.nan
    into = _buffers(5, 11, 21, 3, 21, torch.float32)
    heads.acting(p, h, torch.linspace(-2, 2, 21), torch.linspace(-3, 3, 21).double(), into)
    for x in into[:5]:
        assert torch.isnan(x[2]).all() and torch.isfinite(x[[0, 1, 3, 4]]).all()


def test_a_buffer_or_matrix_that_does_not_fit_is_named():
    layout = Layout(param_table(tiny_config(), 45, 11, 12))
    p, h, atoms = layout.views(torch.zeros(layout.size)), torch.zeros(4, 8), torch.zeros(21).double()
    with pytest.raises(ValueError, match=r"^q_w: shape \[231, 8\], expected \[220, 8\]"):
        heads.acting(p, h, torch.zeros(20), atoms, _buffers(4, 11, 20, 3, 21, torch.float32))
    with pytest.raises(ValueError, match=r"^pi_logits: shape \[4, 10\]"):
        into = _buffers(4, 11, 21, 3, 21, torch.float32)._replace(pi_logits=torch.zeros(4, 10))
        heads.acting(p, h, torch.zeros(21), atoms, into)
