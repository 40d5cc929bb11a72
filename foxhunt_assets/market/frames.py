"""The frames of a zstd file, found by walking its block headers: nothing is decompressed.

Format: RFC 8878, section 3.1.
"""

from __future__ import annotations

import mmap
from pathlib import Path

import zstandard

from foxhunt_assets.errors import BadInput

_MAGIC = 0xFD2FB528
_SKIPPABLE = range(0x184D2A50, 0x184D2A60)


def zstd_frames(path: Path) -> int:
    """Data frames of a zstd file, found by walking the block headers; BadInput where it ends inside one."""
    with path.open("rb") as f, mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ) as data:
        at = frames = 0
        while at < len(data):
            magic = int.from_bytes(data[at : at + 4], "little")
            if magic in _SKIPPABLE:
                at += 8 + int.from_bytes(data[at + 4 : at + 8], "little")
                continue
            if magic != _MAGIC:
                raise BadInput(f"{path}: byte {at}: no zstd frame where one should start; download it again")
            at = _end_of_frame(path, data, at)
            frames += 1
        if at > len(data):
            raise _cut(path)
    return frames


def _end_of_frame(path: Path, data: mmap.mmap, at: int) -> int:
    head = data[at : at + 18]  # the longest frame header
    try:
        at += zstandard.frame_header_size(head)
        checksum = 4 if zstandard.get_frame_parameters(head).has_checksum else 0
    except zstandard.ZstdError:
        raise _cut(path) from None
    last = False
    while not last:
        if at + 3 > len(data):
            raise _cut(path)
        block = int.from_bytes(data[at : at + 3], "little")
        last, run_length, size = bool(block & 1), block >> 1 & 3 == 1, block >> 3
        at += 3 + (1 if run_length else size)
    return at + checksum


def _cut(path: Path) -> BadInput:
    return BadInput(f"{path}: ends inside a zstd frame; the file is cut: download it again")
