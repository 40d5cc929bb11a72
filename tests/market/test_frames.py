"""Frames of zstd files."""

from __future__ import annotations

from pathlib import Path

import databento_dbn
import numpy as np
import pytest

from foxhunt_assets.errors import BadInput
from foxhunt_assets.market.frames import zstd_frames
from tests.market import made_dbn as made
from tests.market.made_dbn import mbp

T0 = made.ns("2024-03-01T15:00:00")


def test_frames_are_counted_without_decompressing(tmp_path: Path) -> None:
    parts = [made.metadata(databento_dbn.Schema.MBP_10), mbp(T0).tobytes(), np.repeat(mbp(T0), 2_000).tobytes()]
    path = made.write(tmp_path / "a.dbn.zst", parts)
    assert zstd_frames(path) == 3
    whole = path.read_bytes()
    path.write_bytes(b"\x50\x2a\x4d\x18\x03\x00\x00\x00abc" + whole)
    assert zstd_frames(path) == 3, "a skippable frame holds no data"
    for length in (len(whole) - 1, len(whole) - 5, 3):
        path.write_bytes(whole[:length])
        with pytest.raises(BadInput, match=r"cut|no zstd frame"):
            zstd_frames(path)


def test_walking_a_large_file_does_not_bring_it_into_memory(tmp_path: Path) -> None:
    noise = np.random.default_rng(0).bytes(2**25)
    path = made.write(tmp_path / "a.dbn.zst", [noise])
    del noise
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak so far
    held = memory("VmRSS")
    assert zstd_frames(path) == 1 and path.stat().st_size > 2**25
    assert memory("VmHWM") - held < 4_096


def memory(field: str) -> int:
    """KiB of this process."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field))
