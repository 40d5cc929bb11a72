"""Pieces on their way into tensors: all of them arrive, several at a time, and the first error comes out."""

import threading
import time
from itertools import pairwise

import numpy as np
import pytest
import torch

from foxhunt_assets.market import upload
from foxhunt_assets.market.upload import Upload


def put(made, a, b):
    """A fill that writes rows [a, b) of each array."""

    def fill(out):
        for view, values in zip(out, made):
            raw = np.ascontiguousarray(values[a:b]).tobytes()
            view[: len(raw)] = raw

    return fill


@pytest.mark.parametrize("piece", [0, 3_000, 1 << 20])  # a row, a few dozen, all of them
def test_every_piece_lands_in_its_place(monkeypatch, piece, device="cpu"):
    """A list that keeps its type, unsigned numbers that are widened, bytes that become columns of a matrix."""
    monkeypatch.setattr(upload, "PIECE_BYTES", piece)
    rng, n = np.random.default_rng(0), 1_000
    made = [rng.integers(-(2**31), 2**31, (n, 10)).astype(np.int32), rng.integers(0, 2**32, n).astype(np.uint32)]
    made += [rng.integers(-128, 128, n).astype(np.int8) for _ in range(2)]
    matrix = torch.zeros((n, 2), dtype=torch.int64, device=device)
    lists, wide = torch.zeros((n, 10), dtype=torch.int32, device=device), matrix.new_zeros(n)
    upload_ = Upload([lists, wide, *matrix.unbind(1)], [torch.int32, torch.uint32, torch.int8, torch.int8])
    assert upload_.rows == {0: 1, 3_000: 59, 1 << 20: n}[piece]
    cuts = [*range(0, n, upload_.rows), n]
    upload_.run((a, b, put(made, a, b)) for a, b in pairwise(cuts))
    assert np.array_equal(lists.cpu().numpy(), made[0]) and np.array_equal(wide.cpu().numpy(), made[1])
    assert np.array_equal(matrix.cpu().numpy(), np.stack(made[2:], axis=1))


def test_a_contiguous_host_tensor_is_the_buffer_itself():
    target, seen = torch.zeros((5, 2), dtype=torch.int64), []
    fill = lambda out: seen.append(np.frombuffer(out[0], np.int64).ctypes.data)  # noqa: E731
    Upload([target], [torch.int64]).run([(3, 5, fill)])
    assert seen == [target[3:].data_ptr()]


def test_two_pieces_are_under_way_at_once():
    both = threading.Barrier(2, timeout=20)  # broken, and raising, where one piece waits for the other's end
    target = torch.zeros(2, dtype=torch.int64)

    def fill(out):
        both.wait()
        out[0][0] = 5

    Upload([target], [torch.int64]).run([(0, 1, fill), (1, 2, fill)])
    assert target.tolist() == [5, 5]


def test_an_error_of_a_piece_comes_out_and_no_piece_begins_after_it():
    n = 1_000
    target, written, failed = torch.zeros(n, dtype=torch.int64), [], threading.Event()

    def fill(out):
        failed.wait(20)
        time.sleep(0.001)
        written.append(out)
        out[0][0] = 1

    def fail(out):
        failed.set()
        raise ValueError("piece 0 is bad")

    with pytest.raises(ValueError, match="piece 0 is bad"):
        Upload([target], [torch.int64]).run([(0, 1, fail), *((i, i + 1, fill) for i in range(1, n))])
    done = len(written)
    assert done < n - 1 and int(target.sum()) == done
    time.sleep(0.01)
    assert len(written) == done and not [t for t in threading.enumerate() if t.name.startswith("upload")]


def test_an_error_between_pieces_comes_out_behind_those_under_way():
    target = torch.zeros(3, dtype=torch.int64)

    def pieces():
        yield 0, 1, put([np.array([4])], 0, 1)
        raise KeyError("the next file is not there")

    with pytest.raises(KeyError, match="the next file"):
        Upload([target], [torch.int64]).run(pieces())
    assert target.tolist() == [4, 0, 0]
    assert not [t for t in threading.enumerate() if t.name.startswith("upload")]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no NVIDIA GPU")
@pytest.mark.parametrize("piece", [0, 3_000, 1 << 20])
def test_every_piece_lands_in_its_place_on_a_gpu(monkeypatch, piece):
    test_every_piece_lands_in_its_place(monkeypatch, piece, "cuda")
