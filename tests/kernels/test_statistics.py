"""Statistics of matrices against worked numbers, exact fractions and properties."""

import math
import statistics as oracle

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kernels.statistics import op

X = torch.tensor([[1.0, -2.0], [3.0, -2.0], [-5.0, -2.0]])


def test_the_statistics_of_a_small_matrix_by_hand():
    found = op.summary({"x": X}, limit=3.0)
    assert found.columns("x", "mean").tolist() == pytest.approx([-1 / 3, -2.0])
    assert found.columns("x", "std").tolist() == pytest.approx([math.sqrt(104 / 9), 0.0])
    assert found.columns("x", "abs_max").tolist() == [5.0, 2.0]
    want = {
        "mean": -7 / 6, "std": math.sqrt(47 / 6 - 49 / 36), "abs_mean": 15 / 6, "abs_max": 5.0, "clipped": 2 / 6,
        "entropy": 0.0, "column_mean_abs": 7 / 6, "column_mean_abs_max": 2.0, "column_std": math.sqrt(104 / 9) / 2,
        "column_std_min": 0.0,
    }  # fmt: skip
    assert {name: float(found.of("x", name)) for name in op.WHOLE} == pytest.approx(want)


def test_entropy_is_the_mean_over_the_rows_and_only_where_it_is_asked_for():
    p = torch.tensor([[0.25, 0.25, 0.25, 0.25], [0.0, 1.0, 0.0, 0.0]])
    found = op.summary({"p": p, "same": p}, limit=1.0, shares={"p"})
    assert float(found.of("p", "entropy")) == pytest.approx(math.log(4) / 2)
    assert float(found.of("same", "entropy")) == 0.0


def test_the_rows_at_are_those_of_the_first_matrix_alone():
    found = op.summary({"x": X, "y": X}, limit=9.0, at=torch.tensor([2, 0, 2, 2]))
    assert found.columns("x", "mean").tolist() == pytest.approx([-3.5, -2.0])
    assert found.columns("y", "mean").tolist() == pytest.approx([-1 / 3, -2.0])


def test_a_small_spread_on_a_large_mean_is_kept_and_a_single_value_has_none():
    x = torch.full((1200, 2), 16_777_216.0)
    x[::2, 0] += 2
    found = op.summary({"x": x}, limit=1.0)
    assert found.columns("x", "std").tolist() == [1.0, 0.0]
    assert float(found.of("x", "column_std_min")) == 0.0


def test_what_is_not_a_number_shows_in_every_statistic_it_enters():
    x = torch.ones(140, 3)
    x[130, 1] = math.nan
    found = op.summary({"x": x, "y": torch.ones(2, 2)}, limit=1.0)
    assert [math.isnan(v) for v in found.columns("x", "abs_max").tolist()] == [False, True, False]
    seen = {name for name in op.WHOLE if math.isnan(found.of("x", name))}
    assert seen == set(op.WHOLE) - {"clipped", "entropy"}
    assert torch.isfinite(found.whole[1]).all()


@given(st.lists(st.lists(st.integers(-1000, 1000), min_size=1, max_size=40), min_size=1, max_size=6))
def test_columns_agree_with_exact_fractions(columns):
    sizes = {f"m{i}": torch.tensor(column).float()[:, None] for i, column in enumerate(columns)}
    found = op.summary(sizes, limit=500.0)
    for name, column in zip(sizes, columns):
        assert float(found.of(name, "mean")) == pytest.approx(oracle.mean(column), abs=1e-12)
        assert float(found.of(name, "std")) == pytest.approx(oracle.pstdev(column), abs=1e-9)
        assert float(found.of(name, "clipped")) == sum(abs(v) >= 500 for v in column) / len(column)
