"""The sum over rows: its order is stated, and a number of the rows alone."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kernels.reduce import op


def test_eight_lanes_are_added_pairwise_in_float32():
    """Lane l adds rows l, l + 8, ...; a running sum would keep 0 of the small terms here."""
    column = np.array([2.0**24, 1, 1, 1, -(2.0**24), 1, 1, 1, 0, 0, 0, 0, 0, 1], dtype=np.float32)
    lanes = [np.float32(0)] * 8
    for i, x in enumerate(column):
        lanes[i % 8] += x
    halves = [lanes[i] + lanes[i + 4] for i in range(4)]
    expected = (halves[0] + halves[2]) + (halves[1] + halves[3])
    assert expected == 7.0
    assert op.sum_rows(torch.from_numpy(column)[:, None]).item() == expected


@given(st.integers(1, 600), st.integers(1, 3))
def test_integers_are_added_exactly_whatever_the_shape(rows, columns):
    x = torch.randint(-1000, 1000, (rows, columns), generator=torch.Generator().manual_seed(rows))
    assert torch.equal(op.sum_rows(x.float()).long(), x.sum(0))


def test_a_column_does_not_depend_on_its_neighbours():
    x = torch.randn(700, 40, generator=torch.Generator().manual_seed(0))
    assert torch.equal(op.sum_rows(x)[5:9], op.sum_rows(x[:, 5:9].contiguous()))


def test_no_row_is_refused():
    with pytest.raises(ValueError, match=r"^x: no row"):
        op.sum_rows(torch.zeros(0, 3))
