"""Norms by hand."""

import pytest
import torch

from kernels.norms import op

OPEN, CLOSED = torch.ones(1), torch.zeros(1)


def test_norms_of_parts_and_of_their_sum():
    parts = [torch.tensor([[3.0, 4.0], [0.0, 0.0]]), torch.tensor([[0.0, 1.0], [0.0, 12.0]])]
    total, out = torch.full((2, 2), 9.0), torch.zeros(3, dtype=torch.float64)
    op.norms(parts, total, OPEN, out)
    assert total.tolist() == [[3, 5], [0, 12]]
    assert out.tolist() == pytest.approx([5, 145**0.5, 178**0.5], rel=1e-12)


def test_a_closed_gate_keeps_the_norms_of_before():
    total, out = torch.zeros(2), torch.tensor([7.0, 8.0], dtype=torch.float64)
    op.norms([torch.tensor([3.0, 4.0])], total, CLOSED, out)
    assert (out.tolist(), total.tolist()) == ([7, 8], [3, 4])


@pytest.mark.parametrize("parts, total, out, message", [
    ([torch.zeros(2)] * 9, None, 9, "parts: 9, expected 1 to 8"),
    ([torch.zeros(2), torch.zeros(3)], None, 2, r"parts\[1\]: shape \[3\]"),
    ([torch.zeros(2)], torch.zeros(2), 1, r"out: shape \[1\], expected \[2\]"),
])  # fmt: skip
def test_what_does_not_fit_is_refused(parts, total, out, message):
    with pytest.raises(ValueError, match=message):
        op.norms(parts, total, OPEN, torch.zeros(out, dtype=torch.float64))
