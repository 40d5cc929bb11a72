"""The gradient of a linear layer's weights and bias: a worked pair of rows, float64, and what it depends on."""

import pytest
import torch

from kernels.outer import op

F64 = torch.float64


def _gradient(slope, x):
    into = torch.full((slope.shape[1] * (x.shape[1] + 1),), torch.nan, dtype=x.dtype)
    op.weight_gradient(slope, x, into)
    weights = slope.shape[1] * x.shape[1]
    return into[:weights].view(slope.shape[1], -1), into[weights:]


def test_two_rows_by_hand():
    w, b = _gradient(torch.tensor([[1.0, 2], [3, -1]]), torch.tensor([[1.0, 0, 2], [5, 1, 1]]))
    assert w.tolist() == [[16, 3, 5], [-3, -1, 3]] and b.tolist() == [4, 1]


@pytest.mark.parametrize("dtype, atol", [(torch.float32, 4e-6), (F64, 1e-13)])
@pytest.mark.parametrize("rows, outputs, inputs", [(1, 1, 1), (129, 3, 40), (300, 40, 33)])
def test_equals_the_product_in_float64(rows, outputs, inputs, dtype, atol):
    g = torch.Generator().manual_seed(rows)
    slope, x = torch.randn(rows, outputs, generator=g, dtype=F64), torch.randn(rows, inputs, generator=g, dtype=F64)
    for got, exact in zip(_gradient(slope.to(dtype), x.to(dtype)), (slope.T @ x, slope.sum(0))):
        torch.testing.assert_close(got.to(F64) / exact.abs().max(), exact / exact.abs().max(), rtol=0, atol=atol)


def test_an_output_does_not_depend_on_the_others():
    g = torch.Generator().manual_seed(0)
    slope, x = torch.randn(70, 9, generator=g), torch.randn(70, 5, generator=g)
    whole, alone = _gradient(slope, x), _gradient(slope[:, 4:5].contiguous(), x)
    for all_outputs, one in zip(whole, alone):
        torch.testing.assert_close(all_outputs[4:5], one, rtol=0, atol=1e-6)


def test_shapes_that_do_not_fit_are_named():
    x = torch.zeros(4, 3)
    with pytest.raises(ValueError, match=r"^slope: shape \[3, 2\], expected \[4, any\]"):
        op.weight_gradient(torch.zeros(3, 2), x, torch.zeros(8))
    with pytest.raises(ValueError, match=r"^into: shape \[7\], expected \[8\]"):
        op.weight_gradient(torch.zeros(4, 2), x, torch.zeros(7))
    with pytest.raises(ValueError, match=r"^x: no row"):
        op.weight_gradient(torch.zeros(0, 2), x[:0], torch.zeros(8))
