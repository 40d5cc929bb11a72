"""Correlations of inputs with the next move of the mid: worked cases, and numpy's own over one batch."""

import numpy as np
import pytest
import torch

from kernels.lob.op import ABSENT
from kernels.lookahead import op


def _tape(mids):
    bid = torch.tensor(mids, dtype=torch.int32)[:, None].repeat(1, 3)
    return bid, bid + 1


def _newest(columns):
    x = torch.full((len(columns[0]), 2, len(columns)), 1e9)  # the older row is not looked at
    x[:, -1] = torch.tensor(columns).T
    return x


def test_an_input_that_knows_the_move_shows_and_a_constant_one_does_not():
    bid, ask = _tape([10, 13, 11, 11, 16])
    now, after = torch.arange(4), torch.arange(1, 5)
    x = _newest([[3.0, -2.0, 0.0, 5.0], [-6.0, 4.0, 0.0, -10.0], [2.0, 2.0, 2.0, 2.0]])
    moments = torch.zeros(3, op.MOMENTS).double()
    found = op.correlate(x, bid, ask, now, after, 0.01, moments)
    assert found.tolist() == pytest.approx([1.0, -1.0, 0.0])
    assert moments[0].tolist() == [1.5, 3.0, 9.5, 38.0, 19.0]  # the mid moves in half-ticks


def test_one_batch_agrees_with_numpy():
    g = torch.Generator().manual_seed(1)
    bid, ask = _tape(torch.randint(0, 50, (101,), generator=g).tolist())
    x = torch.randn(100, 3, 40, generator=g)
    moments = torch.zeros(40, op.MOMENTS).double()
    found = op.correlate(x, bid, ask, torch.arange(100), torch.arange(1, 101), 0.01, moments)
    moves = np.diff(bid[:, 0].numpy()) * 2.0
    want = [np.corrcoef(x[:, -1, f].double().numpy(), moves)[0, 1] for f in range(40)]
    assert found.tolist() == pytest.approx(want, abs=1e-12)


def test_moments_move_by_the_rate_and_stay_where_nobody_moves():
    bid, ask = _tape([0, 4, 5])
    moments = torch.zeros(1, op.MOMENTS).double()
    one, two = torch.tensor([0]), torch.tensor([1])
    op.correlate(_newest([[1.0]]), bid, ask, one, two, 0.25, moments)
    assert moments[0].tolist() == [1.0, 8.0, 1.0, 64.0, 8.0]
    op.correlate(_newest([[3.0]]), bid, ask, two, two, 0.25, moments)
    assert moments[0].tolist() == [1.0, 8.0, 1.0, 64.0, 8.0]
    op.correlate(_newest([[3.0]]), bid, ask, two, two + 1, 0.25, moments)
    assert moments[0].tolist() == [1.5, 6.5, 3.0, 49.0, 7.5]


def test_a_book_without_a_side_is_no_observation():
    bid, ask = _tape([0, 4, 8])
    ask[2] = ABSENT
    moments = torch.zeros(1, op.MOMENTS).double()
    op.correlate(
        _newest([[1.0, 7.0, 7.0]]), bid, ask, torch.tensor([0, 1, 2]), torch.tensor([1, 2, 3]) % 3, 0.5, moments
    )
    assert moments[0].tolist() == [1.0, 8.0, 1.0, 64.0, 8.0]
