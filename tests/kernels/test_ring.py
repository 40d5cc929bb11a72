"""Rows of many columns: where they land, that no bit changes, and what is refused."""

import pytest
import torch

from kernels.ring import op


def ring_of(capacity=5):
    return op.Ring([torch.zeros(capacity, 2), torch.full((capacity,), 9, dtype=torch.int8)])


def test_a_row_an_account_goes_to_the_slots_after_the_count_and_wraps():
    ring, count = ring_of(), torch.tensor([8])  # slot 8 modulo 5
    ring.put([torch.tensor([[1.0, 2], [3, 4], [5, 6]]), torch.tensor([1, 2, 3], dtype=torch.int8)], count, 3)
    assert ring.columns[0].tolist() == [[5, 6], [0, 0], [0, 0], [1, 2], [3, 4]]
    assert ring.columns[1].tolist() == [3, 9, 9, 1, 2]


def test_a_row_of_a_window_is_its_accounts_from_t_times_accounts_on():
    ring, t = ring_of(6), torch.tensor([2])
    ring.put([torch.tensor([[1.0, 2], [3, 4]]), None], t, 2, scale=2)
    assert ring.columns[0][:, 0].tolist() == [0, 0, 0, 0, 1, 3]
    assert ring.columns[1].tolist() == [9, 9, 9, 9, 0, 0]  # None is zeros


def test_one_row_is_written_to_every_slot():
    ring = ring_of()
    ring.put([torch.tensor([[7.0, 8]]), torch.tensor([4], dtype=torch.int8)], torch.tensor([0]), 5)
    assert ring.columns[0].tolist() == [[7, 8]] * 5 and ring.columns[1].tolist() == [4] * 5


def test_rows_come_out_by_number_and_as_they_went_in():
    ring, start = ring_of(), torch.tensor([4])
    rows = [torch.tensor([[1.0, -0.0], [float("nan"), 4]]), torch.tensor([1, 2], dtype=torch.int8)]
    ring.put(rows, start, 2)
    for got, put in zip(ring.take_run(start, 2), rows):
        assert torch.equal(got.view(torch.uint8), put.view(torch.uint8))
    assert ring.take(torch.tensor([0, 4, 0, 1]))[1].tolist() == [2, 1, 2, 9]
    newest = ring.take_run(torch.tensor([6]), 2, offset=-2)  # the two before the count
    assert newest[1].tolist() == [1, 2]


def test_into_is_what_comes_back_filled():
    ring = ring_of()
    into = [torch.full((2, 2), 5.0), torch.zeros(2, dtype=torch.int8)]
    got = ring.take(torch.tensor([0, 1]), into)
    assert got[0] is into[0] and into[0].tolist() == [[0, 0], [0, 0]] and into[1].tolist() == [9, 9]


def test_a_tally_counts_duplicates():
    counts = torch.tensor([0, 5, 0], dtype=torch.int32)
    op.tally(torch.tensor([1, 2, 1, 1]), counts)
    assert counts.tolist() == [0, 8, 1]


@pytest.mark.parametrize("sources, rows, message", [
    ([torch.zeros(2, 3), None], 2, r"sources\[0\]: shape \[2, 3\], expected \[2, 2\]"),
    ([torch.zeros(2, 2), torch.zeros(2)], 2, r"sources\[1\]: type torch.float32, expected torch.int8"),
    ([None, None], 6, "rows: 6, expected 1 to the capacity 5"),
])  # fmt: skip
def test_what_does_not_fit_a_column_is_refused(sources, rows, message):
    with pytest.raises(ValueError, match=message):
        ring_of().put(sources, torch.tensor([0]), rows)


def test_columns_of_two_capacities_are_refused():
    with pytest.raises(ValueError, match=r"columns\[1\]: expected 3 contiguous rows"):
        op.Ring([torch.zeros(3), torch.zeros(4)])
