"""What a minibatch's means say of a window."""

import pytest
import torch

from foxhunt_assets.trainer.learn import slope


def test_slope_is_least_squares():
    def from_means(x, y):
        return float(slope(x.mean(), y.mean(), (x * x).mean(), (x * y).mean()))

    x = torch.tensor([1.0, 2.0, 4.0], dtype=torch.float64)
    assert from_means(x, torch.tensor([1.0, 5.0, 6.0], dtype=torch.float64)) == pytest.approx(1.5)  # 7 / (14 / 3)
    assert from_means(torch.full_like(x, 0.1), x) == 0
