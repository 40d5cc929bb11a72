"""The frames of a zstd file, found by walking its block headers: nothing is decompressed.

Format: RFC 8878, section 3.1.
"""

from __future__ import annotations

import os
from pathlib import Path

import zstandard

from foxhunt_assets.errors import BadInput

_MAGIC = 0xFD2FB528
_SKIPPABLE = range(0x184D2A50, 0x184D2A60)
_LONGEST_HEADER = 18  # of a frame, bytes


def zstd_frames(path: Path) -> int:
    """Data frames of a zstd file, found by walking the block headers; BadInput where it ends inside one.

    Headers are read one by one: a mapped file would count as memory of the process, all of it.
    """
    with path.open("rb", buffering=0) as f:
        fd, size = f.fileno(), os.fstat(f.fileno()).st_size
        at = frames = 0
        while at < size:
            head = os.pread(fd, _LONGEST_HEADER, at)
            magic = int.from_bytes(head[:4], "little")
            if magic in _SKIPPABLE:
                at += 8 + int.from_bytes(head[4:8], "little")
                continue
            if magic != _MAGIC:
                raise BadInput(f"{path}: byte {at}: no zstd frame where one should start; download it again")
            at = _end_of_frame(path, fd, head, at)
            frames += 1
        if at > size:
            raise _cut(path)
    return frames


def _end_of_frame(path: Path, fd: int, head: bytes, at: int) -> int:
    try:
        at += zstandard.frame_header_size(head)
        checksum = 4 if zstandard.get_frame_parameters(head).has_checksum else 0
    except zstandard.ZstdError:
        raise _cut(path) from None
    last = False
    while not last:
        octets = os.pread(fd, 3, at)
        if len(octets) < 3:
            raise _cut(path)
        block = int.from_bytes(octets, "little")
        last, run_length, size = bool(block & 1), block >> 1 & 3 == 1, block >> 3
        at += 3 + (1 if run_length else size)
    return at + checksum


def _cut(path: Path) -> BadInput:
    return BadInput(f"{path}: ends inside a zstd frame; the file is cut: download it again")
