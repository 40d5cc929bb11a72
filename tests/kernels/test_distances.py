"""Norms and distances by hand."""

import pytest
import torch

from kernels.distances import op


def test_norm_and_largest_of_one_and_of_a_difference():
    a, b = torch.tensor([[3.0, -4.0], [0.0, 0.0]]), torch.tensor([[0.0, -4.0], [5.0, 1.0]])
    found = op.Distances([(a, None), (a, b)])
    assert found.run().tolist() == [[5, 4], [pytest.approx(35**0.5), 5]]
    a[1, 1] = 1.0  # read where it lies
    assert found.run()[1].tolist() == [pytest.approx(34**0.5), 5]


def test_what_a_copy_would_have_to_follow_is_refused():
    with pytest.raises(ValueError, match=r"pairs\[0\]: not contiguous"):
        op.Distances([(torch.zeros(2, 3).T, None)])
    with pytest.raises(ValueError, match=r"pairs\[0\]\[1\]: shape \[3\], expected \[2\]"):
        op.Distances([(torch.zeros(2), torch.zeros(3))])
