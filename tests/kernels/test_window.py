"""Moments of a window by hand."""

import pytest
import torch

from kernels.window import op


def moments(entries=((1, -1), (-1, 0))):
    out = torch.zeros(len(op.NAMES), dtype=torch.float64)
    flags = torch.tensor([[[False, False], [True, False]], [[True, False], [False, False]]])
    op.moments(
        torch.tensor([[1.0, -2.0], [3.0, 2.0]]), torch.tensor([[1.0, 2.0], [3.0, 4.0]]),
        torch.tensor([[1.0, 2.0], [3.0, 2.0]]), torch.tensor([[9.0, 9.0], [5.0, 0.5]]), *flags,
        torch.tensor(entries, dtype=torch.int8), out,
    )  # fmt: skip
    return dict(zip(op.NAMES, out.tolist()))


def test_every_moment():
    assert moments() == pytest.approx({
        "adv_mean": 1, "adv_std": 3.5**0.5, "adv_abs_mean": 2, "returns_mean": 2.5, "bootstrap_v_mean": 0.25,
        "terminated_frac": 0.25, "truncated_frac": 0.25, "explained_variance": 1 - 0.75 / 1.25, "adv_pos_frac": 0.75,
        "adv_trade_minus_hold": 1 - 0.5,
    })  # fmt: skip


@pytest.mark.parametrize("entries", [((1, 0), (0, 0)), ((0, -1), (0, 0)), ((0, 0), (0, 0))])
def test_trades_are_compared_with_holds_only_where_there_are_both(entries):
    assert moments(entries)["adv_trade_minus_hold"] == 0


def test_returns_that_are_all_one_explain_nothing():
    out, same = torch.ones(len(op.NAMES), dtype=torch.float64), torch.full((3, 2), 0.1)
    flags = torch.zeros(3, 2, dtype=torch.bool)
    op.moments(same, same, same + 1, same, flags, flags, torch.zeros(3, 2, dtype=torch.int8), out)
    assert out[op.NAMES.index("explained_variance")] == 0


@pytest.mark.parametrize("t, row, wanted", [
    (1, 0, [10, 2, 3]), (3, 2, [7, 11, 12]), (2, 1, [4, 11, 12]), (0, 0, [1, 2, 3]),
])  # fmt: skip
def test_a_row_arrives_where_its_episode_went_on(t, row, wanted):
    values, before = torch.arange(1.0, 10).view(3, 3), torch.arange(1.0, 10).view(3, 3)
    terminated = torch.tensor([[False, True, False], [True, False, False], [False, False, False]])
    truncated = torch.tensor([[False, False, True], [False, False, False], [True, False, False]])
    op.arrive(torch.tensor([10.0, 11, 12]), torch.tensor([t]), terminated, truncated, values)
    assert values[row].tolist() == wanted
    others = [i for i in range(3) if i != row]
    assert torch.equal(values[others], before[others])
