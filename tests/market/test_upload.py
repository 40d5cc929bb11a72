"""Pieces on their way into tensors: all of them arrive, several at a time, and the first error comes out."""

import threading
from functools import partial

import numpy as np
import pytest
import torch

from foxhunt_assets.market import upload
from foxhunt_assets.market.upload import Upload


def test_every_piece_lands_in_its_place(device="cpu"):
    made = np.random.default_rng(0).integers(-(2**31), 2**31, (5_000, 10)).astype(np.int32)
    target = torch.zeros(made.shape, dtype=torch.int32, device=device)
    with Upload(device, 17 * 40) as send:
        for a in range(0, len(made), 17):
            send(target[a : a + 17], partial(np.concatenate, [made[a : a + 5], made[a + 5 : a + 17]]))
    assert np.array_equal(target.cpu().numpy(), made)


def test_two_pieces_are_under_way_at_once():
    both = threading.Barrier(2, timeout=20)  # broken, and raising, where one piece waits for the other's end
    target = torch.zeros(2, dtype=torch.int64)

    def fill(out):
        both.wait()
        out[:] = 5

    with Upload("cpu", 8) as send:
        send(target[:1], fill)
        send(target[1:], fill)
    assert target.tolist() == [5, 5]


@pytest.mark.parametrize("pieces_after", [0, 1_000])
def test_an_error_of_a_piece_comes_out_and_nothing_is_written_after(pieces_after):
    target, written = torch.zeros(pieces_after + 1, dtype=torch.int64), []

    def fill(out):
        written.append(out)
        out[:] = 1

    def fail(out):
        raise ValueError("piece 0 is bad")

    with pytest.raises(ValueError, match="piece 0 is bad"), Upload("cpu", 8) as send:
        send(target[:1], fail)
        for i in range(1, pieces_after + 1):
            send(target[i : i + 1], fill)
    done = len(written)
    assert done <= 5 * upload.WORKERS and int(target.sum()) == done
    assert not [t for t in threading.enumerate() if t.name.startswith("upload")]


def test_an_error_of_the_caller_drops_what_waits():
    target = torch.zeros(3, dtype=torch.int64)
    with pytest.raises(KeyError), Upload("cpu", 8) as send:
        send(target[:1], partial(np.concatenate, [np.array([4])]))
        raise KeyError("the next file is not there")
    assert not [t for t in threading.enumerate() if t.name.startswith("upload")]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no NVIDIA GPU")
def test_every_piece_lands_in_its_place_on_a_gpu():
    test_every_piece_lands_in_its_place("cuda")
