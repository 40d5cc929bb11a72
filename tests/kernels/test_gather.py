"""Windows by anchor."""

import pytest
import torch

from kernels.gather import op


def test_a_window_ends_at_its_anchor_and_never_leaves_its_segment():
    table = torch.arange(12.0).view(6, 2)
    start = torch.tensor([0, 0, 0, 3, 3, 3])
    rows = op.windows(table, start, torch.tensor([2, 3, 4, 5, 0]), 3)[:, :, 0] / 2
    assert rows.tolist() == [[0, 1, 2], [3, 3, 3], [3, 3, 4], [3, 4, 5], [0, 0, 0]]


@pytest.mark.parametrize("dtype", [torch.float32, torch.int32, torch.int64, torch.float64])
def test_windows_keep_every_bit_of_any_type(dtype):
    table = torch.tensor([[-1, 2], [3, -4]]).to(dtype)
    if dtype.is_floating_point:
        table[0, 0] = float("nan")
    got = op.windows(table, torch.tensor([0, 1]), torch.tensor([1, 0, 1]), 1)[:, 0]
    assert got.dtype == dtype and torch.equal(got.view(torch.uint8), table[[1, 0, 1]].view(torch.uint8))
