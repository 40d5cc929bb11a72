"""The mean over a support against worked numbers and a plain sum."""

import math

import pytest
import torch

from kernels.expectation import op


def test_three_atoms_by_hand():
    """Masses 1/6, 1/3, 1/2 on -1, 0.5, 2."""
    logits = torch.log(torch.tensor([[[1.0, 2.0, 3.0]], [[3.0, 2.0, 1.0]]])) + 5
    mean = op.expected(logits, torch.tensor([-1.0, 0.5, 2.0]))
    assert mean.shape == (2, 1) and mean.flatten().tolist() == pytest.approx([1.0, 0.0], abs=1e-6)


@pytest.mark.parametrize("dtype, tolerance", [(torch.float32, 2e-6), (torch.float64, 1e-13)])
def test_equals_a_plain_sum(dtype, tolerance):
    g = torch.Generator().manual_seed(0)
    logits, support = 3 * torch.randn(7, 11, 21, generator=g, dtype=torch.float64), torch.linspace(-2, 2, 21).double()
    mean = op.expected(logits.to(dtype), support.to(dtype))
    for row, got in zip(logits.flatten(0, 1).tolist(), mean.flatten().tolist(), strict=True):
        powers = [math.exp(x) for x in row]
        exact = sum(p * z for p, z in zip(powers, support.tolist())) / sum(powers)
        assert got == pytest.approx(exact, abs=tolerance)


def test_large_logits_do_not_overflow_and_no_gradient_is_promised():
    logits = torch.tensor([[1000.0, 0.0], [-1000.0, -1000.0]], requires_grad=True)
    mean = op.expected(logits, torch.tensor([1.0, 3.0]))
    assert mean.tolist() == [1.0, 2.0] and not mean.requires_grad


def test_a_support_of_another_length_is_named():
    with pytest.raises(ValueError, match=r"^logits: shape \[2, 4\], expected \[2, 3\]"):
        op.expected(torch.zeros(2, 4), torch.zeros(3))
