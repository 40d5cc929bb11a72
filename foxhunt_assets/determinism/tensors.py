"""safetensors files as trees of (name, dtype, shape, raw bytes), read through a memory map and trusted in nothing.

Format: u64 little-endian header length, a JSON header {name: {dtype, shape, data_offsets}, __metadata__}, then the
data, little-endian, in order and without holes.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from foxhunt_assets.determinism.bits import KINDS

_MAX_HEADER = 100_000_000  # the format's own limit


class Truncated(ValueError):
    """The file ends before its header says it does."""


class Malformed(ValueError):
    """The file contradicts itself."""


@dataclass(frozen=True)
class Tensor:
    """raw: uint8 view into the file, prod(shape) x itemsize long."""

    dtype: str
    shape: tuple[int, ...]
    raw: np.ndarray


@dataclass(frozen=True)
class TensorFile:
    """tensors: by name, in header order. metadata: the header's __metadata__."""

    tensors: dict[str, Tensor]
    metadata: dict[str, str]


def read_tensors(path: Path) -> TensorFile:
    """Map a file. Truncated or Malformed name what is wrong with it."""
    size = path.stat().st_size
    if size < 8:
        raise Truncated(f"{size} bytes, shorter than a header length")
    data = np.memmap(path, dtype=np.uint8, mode="r")
    length = int(data[:8].view("<u8")[0])
    if length > _MAX_HEADER:
        raise Malformed(f"header of {length} bytes")
    if 8 + length > size:
        raise Truncated(f"header of {length} bytes in a file of {size}")
    try:
        header = json.loads(data[8 : 8 + length].tobytes(), object_pairs_hook=_distinct)
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise Malformed(f"header is not JSON: {error}") from None
    metadata = header.pop("__metadata__", {})
    return TensorFile(_tensors(header, data[8 + length :]), metadata)


def _tensors(header: dict[str, Any], body: np.ndarray) -> dict[str, Tensor]:
    out: dict[str, Tensor] = {}
    ends = {0}
    for name, entry in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
        begin, end = entry["data_offsets"]
        dtype, shape = entry["dtype"], tuple(entry["shape"])
        if dtype not in KINDS:
            raise Malformed(f"{name}: unknown dtype {dtype}")
        if end - begin != math.prod(shape) * KINDS[dtype].size:
            raise Malformed(f"{name}: {end - begin} bytes for {dtype} {list(shape)}")
        if begin not in ends:
            raise Malformed(f"{name}: begins at byte {begin}, where no tensor ends")
        if end > len(body):
            raise Truncated(f"{name}: ends at byte {end} of {len(body)}")
        ends.add(end)
        out[name] = Tensor(dtype, shape, body[begin:end])
    if len(body) != max(ends):
        raise Malformed(f"{len(body) - max(ends)} bytes after the last tensor")
    return {name: out[name] for name in header}


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    out = dict(pairs)
    if len(out) != len(pairs):
        raise Malformed("header has a key twice")
    return out
