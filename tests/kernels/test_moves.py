"""Books, moves of the mid and correlations of inputs with them: worked cases, and numpy's own over one batch."""

import numpy as np
import pytest
import torch

from kernels.lob.op import ABSENT
from kernels.moves import op


def _tape(mids):
    bid = torch.tensor(mids, dtype=torch.int32)[:, None].repeat(1, 3)
    return bid, bid + 1, torch.ones_like(bid), torch.ones_like(bid)


def _newest(columns):
    x = torch.full((len(columns[0]), 2, len(columns)), 1e9)  # the older row is not looked at
    x[:, -1] = torch.tensor(columns).T
    return x


def test_an_input_that_knows_the_move_shows_and_a_constant_one_does_not():
    tape = _tape([10, 13, 11, 11, 16])
    now, after = torch.arange(4), torch.arange(1, 5)
    x = _newest([[3.0, -2.0, 0.0, 5.0], [-6.0, 4.0, 0.0, -10.0], [2.0, 2.0, 2.0, 2.0]])
    moments = torch.zeros(3, op.MOMENTS).double()
    found, _ = op.moves(x, tape, now, after, 0.01, moments)
    assert found.tolist() == pytest.approx([1.0, -1.0, 0.0])
    assert moments[0].tolist() == [1.5, 3.0, 9.5, 38.0, 19.0]  # the mid moves in half-ticks


def test_one_batch_agrees_with_numpy():
    g = torch.Generator().manual_seed(1)
    tape = _tape(torch.randint(0, 50, (101,), generator=g).tolist())
    x = torch.randn(100, 3, 40, generator=g)
    moments = torch.zeros(40, op.MOMENTS).double()
    found, _ = op.moves(x, tape, torch.arange(100), torch.arange(1, 101), 0.01, moments)
    moves = np.diff(tape[0][:, 0].numpy()) * 2.0
    want = [np.corrcoef(x[:, -1, f].double().numpy(), moves)[0, 1] for f in range(40)]
    assert found.tolist() == pytest.approx(want, abs=1e-12)


def test_moments_move_by_the_rate_and_stay_where_nobody_moves():
    tape = _tape([0, 4, 5])
    moments = torch.zeros(1, op.MOMENTS).double()
    one, two = torch.tensor([0]), torch.tensor([1])
    op.moves(_newest([[1.0]]), tape, one, two, 0.25, moments)
    assert moments[0].tolist() == [1.0, 8.0, 1.0, 64.0, 8.0]
    op.moves(_newest([[3.0]]), tape, two, two, 0.25, moments)
    assert moments[0].tolist() == [1.0, 8.0, 1.0, 64.0, 8.0]
    op.moves(_newest([[3.0]]), tape, two, two + 1, 0.25, moments)
    assert moments[0].tolist() == [1.5, 6.5, 3.0, 49.0, 7.5]


def test_a_book_without_a_side_is_no_observation():
    tape = _tape([0, 4, 8])
    tape[1][2] = ABSENT
    moments = torch.zeros(1, op.MOMENTS).double()
    now, after = torch.tensor([0, 1, 2]), torch.tensor([1, 2, 0])
    op.moves(_newest([[1.0, 7.0, 7.0]]), tape, now, after, 0.5, moments)
    assert moments[0].tolist() == [1.0, 8.0, 1.0, 64.0, 8.0]


def _books(tape, now, after):
    x, moments = torch.zeros(len(now), 1, 1), torch.zeros(1, op.MOMENTS).double()
    _, found = op.moves(x, tape, torch.tensor(now), torch.tensor(after), 0.1, moments)
    return dict(zip(op.BOOKS, found.sum(0).tolist()))


def test_books_and_moves_by_hand():
    tape = _tape([10, 10, 13, 11])
    tape[1][3] = ABSENT
    found = _books(tape, [0, 1, 2, 3], [1, 2, 3, 3])
    mids = {"mid": 21 + 21 + 27, "two_sided": 3}
    assert found == {"unchanged": 2, **mids, "moved_abs": 6, "moved_square": 36, "both": 2}  # row 0 has none before it


@pytest.mark.parametrize("side", range(4))
@pytest.mark.parametrize("level", [0, 2])
def test_any_level_of_any_side_makes_another_book(side, level):
    tape = _tape([10] * 3)
    tape[side][1, level] += 1
    assert _books(tape, [1, 2, 2], [1, 2, 2])["unchanged"] == 0
    assert _books(tape, [0], [0])["unchanged"] == 1


def test_numbers_of_many_accounts_are_added_up_by_groups():
    g = torch.Generator().manual_seed(2)
    tape = _tape(torch.randint(0, 3, (60,), generator=g).tolist())
    now = torch.randint(1, 59, (70,), generator=g).tolist()
    bid = tape[0][:, 0].tolist()
    found = _books(tape, now, [row + 1 for row in now])
    moved = [2 * (bid[row + 1] - bid[row]) for row in now]
    assert found["unchanged"] == sum(bid[row] == bid[row - 1] for row in now)
    assert found["mid"] == sum(2 * bid[row] + 1 for row in now)
    assert (found["moved_abs"], found["moved_square"]) == (sum(map(abs, moved)), sum(m * m for m in moved))
