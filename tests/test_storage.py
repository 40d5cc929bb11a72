"""Files that are written a group of pieces at a time."""

from __future__ import annotations

import errno
import hashlib
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from foxhunt_assets import storage

PIECES = [bytes([n % 251]) * (n % 7) for n in range(5_000)]  # more than one call takes, and empty ones among them
WHOLE = b"".join(PIECES)


def written(path: Path, **how: Any) -> storage.NewFile:
    file = storage.NewFile(path, **how)
    for n, piece in enumerate(PIECES):
        assert file.write(piece) == len(piece)
        if n % 1_999 == 0:
            file.flush()
    file.close()
    return file


def at_most_ten_bytes(write: Any) -> Any:
    """writev of a kernel that always stops early."""

    def some(descriptor: int, pieces: list[memoryview]) -> int:
        return write(descriptor, [pieces[0][:10]] if len(pieces[0]) > 9 else pieces[:2])

    return some


def refused(*_: int) -> None:
    raise OSError(errno.EOPNOTSUPP, "no such call here")


@pytest.mark.parametrize("kernel", ["whole", "short writes", "no space in advance"])
def test_a_new_file_holds_the_pieces_and_nothing_of_the_space_taken(tmp_path: Path, monkeypatch: Any, kernel: str):
    if kernel == "short writes":
        monkeypatch.setattr(os, "writev", at_most_ten_bytes(os.writev))
    if kernel == "no space in advance":
        monkeypatch.setattr(os, "posix_fallocate", refused)
    file = written(tmp_path / "x")
    assert (tmp_path / "x").read_bytes() == WHOLE
    assert (tmp_path / "x").stat().st_blocks * 512 <= len(WHOLE) + 2**16
    assert file.hashed() == storage.hashed(tmp_path / "x")
    assert file.hashed().sha256 == hashlib.sha256(WHOLE).hexdigest()


def test_pieces_of_any_type_are_bytes(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(os, "writev", at_most_ten_bytes(os.writev))
    file, numbers = storage.NewFile(tmp_path / "x"), np.arange(12, dtype=np.int64)
    assert [file.write(x) for x in (numbers, numbers[:0], numbers.reshape(3, 4))] == [96, 0, 96]
    file.close()
    assert (tmp_path / "x").read_bytes() == numbers.tobytes() * 2


def test_pieces_are_read_again_until_they_are_written(tmp_path: Path) -> None:
    """What `flush` is for: memory that is used again must be written before."""
    piece, file = bytearray(b"first"), storage.NewFile(tmp_path / "x", hashing=False)
    file.write(piece)
    assert (tmp_path / "x").read_bytes() == b""
    file.flush()
    piece[:] = b"other"
    file.write(piece)
    piece[:] = b"third"
    file.close()
    file.close()
    assert file.closed and (tmp_path / "x").read_bytes() == b"firstthird"
    with pytest.raises(ValueError, match="written without hashing"):
        file.hashed()


def test_a_full_disk_closes_the_file_and_says_so() -> None:
    file = storage.NewFile(Path("/dev/full"))
    file.write(b"some")
    with pytest.raises(OSError, match="No space left"):
        file.close()
    assert file.closed
