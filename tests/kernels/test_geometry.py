"""Health of a hidden state against numbers worked by hand and against limits that are known."""

import math

import pytest
import torch

from kernels.geometry import op


def _found(h, before=None, left_out=None):
    h = torch.tensor(h)
    before = torch.zeros_like(h) if before is None else torch.tensor(before)
    left_out = torch.zeros(len(h)).bool() if left_out is None else torch.tensor(left_out)
    return dict(zip(op.NUMBERS, op.geometry(h, before, left_out).tolist()))


def test_the_sums_of_three_rows_by_hand():
    found = _found([[3.0, 4.0], [0.0, 2.0], [-3.0, 0.0]], [[0.0, 0.0], [0.0, 1.0], [9.0, 9.0]], [False, False, True])
    assert found["unit_sum_square"] == pytest.approx((0.6 + 0 - 1) ** 2 + (0.8 + 1 + 0) ** 2)
    xx, yy, xy = 6.0, 20 / 3 - 4, 4.0  # means 0 and 2
    assert found["trace"] == pytest.approx(xx + yy)
    assert found["square"] == pytest.approx(xx**2 + yy**2 + 2 * xy**2)
    assert (found["moved"], found["counted"]) == (6.0, 2.0)


@pytest.mark.parametrize("rows", [1, 9, 40])
def test_rows_alike_have_a_cosine_of_one_and_no_spread(rows):
    found = _found([[0.5, -2.0, 7.0]] * rows)
    assert found["unit_sum_square"] == pytest.approx(rows**2)
    assert found["trace"] == found["square"] == 0.0


def test_equal_spread_over_orthogonal_directions_participates_in_all_of_them():
    h = torch.cat([torch.eye(20), -torch.eye(20)]).tolist()
    found = _found(h)
    assert found["trace"] ** 2 / found["square"] == pytest.approx(20)
    assert found["unit_sum_square"] == pytest.approx(0, abs=1e-25)


def test_a_row_of_zeros_has_no_direction():
    found = _found([[0.0, 0.0], [0.0, 3.0]])
    assert found["unit_sum_square"] == 1.0 and found["moved"] == 3.0


def test_a_small_spread_about_a_large_mean_is_kept():
    h = [[1e7 + i % 2, 1e7] for i in range(50)]
    assert _found(h)["trace"] == pytest.approx(0.25, rel=1e-12)


def test_what_is_not_a_number_shows():
    found = _found([[1.0, math.nan], [1.0, 2.0]])
    assert all(math.isnan(found[name]) for name in op.NUMBERS[:4])
