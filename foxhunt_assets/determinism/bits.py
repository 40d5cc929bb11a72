"""Two arrays of raw words, bit by bit: what differs, how far, and of what kind.

Equality is of bytes whatever the type, so NaN equals the same NaN and -0.0 does not equal 0.0. Values matter only
for saying how large a difference is. The whole array is scanned, a block at a time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

_BLOCK = 1 << 20  # elements looked at together: bounds memory, not the scan


@dataclass(frozen=True)
class Kind:
    """An element type. values: numpy type, or "bf16", or "" where a distance means nothing. infinity: its bits."""

    size: int
    values: str = ""
    infinity: int = 0


KINDS: dict[str, Kind] = {
    "F64": Kind(8, "<f8", 0x7FF0000000000000),
    "F32": Kind(4, "<f4", 0x7F800000),
    "F16": Kind(2, "<f2", 0x7C00),
    "BF16": Kind(2, "bf16", 0x7F80),
    "I64": Kind(8, "<i8"),
    "I32": Kind(4, "<i4"),
    "I16": Kind(2, "<i2"),
    "I8": Kind(1, "<i1"),
    "U64": Kind(8, "<u8"),
    "U32": Kind(4, "<u4"),
    "U16": Kind(2, "<u2"),
    "U8": Kind(1, "<u1"),
    "BOOL": Kind(1),
    "F8_E4M3": Kind(1),
    "F8_E5M2": Kind(1),
}


@dataclass
class Difference:
    """count of total elements differ; first and last: flat positions. max_abs: over pairs of numbers, exact for
    integers, None without a pair. max_ulp: steps on the number line of the type, across zero, None for other types.
    n_nan: pairs of a NaN and a number. tags: NAN_PAYLOAD (two NaN of other bits), SIGNED_ZERO (0.0 and -0.0), NAN.
    """

    total: int
    count: int = 0
    first: int = -1
    last: int = -1
    max_abs: float | int | None = None
    max_ulp: int | None = None
    n_nan: int = 0
    tags: tuple[str, ...] = ()
    hex_a: str = ""
    hex_b: str = ""

    def text(self, index: tuple[int, ...]) -> str:
        """One line; index: the first position in the array's own shape."""
        size = "" if self.max_abs is None else f", max abs {self.max_abs!r}"
        ulp = "" if self.max_ulp is None else f", max {self.max_ulp} ULP"
        nan = f", {self.n_nan} NaN against a number" if self.n_nan else ""
        tags = f" [{' '.join(self.tags)}]" if self.tags else ""
        return (
            f"{self.count:,} of {self.total:,} differ, first at {list(index)} ({self.hex_a} / {self.hex_b})"
            f"{size}{ulp}{nan}{tags}"
        )

    def to_json(self) -> dict[str, Any]:
        body = {k: v for k, v in vars(self).items() if k != "tags"}
        if isinstance(self.max_abs, float) and not np.isfinite(self.max_abs):
            body["max_abs"] = repr(self.max_abs)  # JSON has no infinity
        return {**body, "tags": list(self.tags)}


def words(raw: np.ndarray, kind: Kind) -> np.ndarray:
    """View of a uint8 array as little-endian unsigned words of the kind's size."""
    return raw.view(f"<u{kind.size}")


def difference(a: np.ndarray, b: np.ndarray, kind: Kind) -> Difference | None:
    """Compare two equally long arrays of unsigned words; None when every bit is equal."""
    out = Difference(len(a))
    for start in range(0, len(a), _BLOCK):
        block_a, block_b = a[start : start + _BLOCK], b[start : start + _BLOCK]
        at = np.flatnonzero(block_a != block_b)
        if len(at):
            _note(out, at + start, block_a[at], block_b[at], kind)
    return out if out.count else None


def _note(out: Difference, at: np.ndarray, a: np.ndarray, b: np.ndarray, kind: Kind) -> None:
    if not out.count:
        out.first = int(at[0])
        out.hex_a, out.hex_b = a[0].tobytes().hex(), b[0].tobytes().hex()
    out.count += len(at)
    out.last = int(at[-1])
    if kind.infinity:
        _note_floats(out, a, b, kind)
    elif kind.values:
        signed_a, signed_b = a.view(kind.values), b.view(kind.values)
        apart = np.where(signed_a > signed_b, a - b, b - a)  # unsigned words wrap: exact for every integer type
        out.max_abs = max(int(apart.max()), out.max_abs or 0)


def _note_floats(out: Difference, a: np.ndarray, b: np.ndarray, kind: Kind) -> None:
    sign = a.dtype.type(1 << (8 * kind.size - 1))
    size_a, size_b = a & ~sign, b & ~sign
    nan_a, nan_b = size_a > kind.infinity, size_b > kind.infinity
    out.n_nan += int((nan_a ^ nan_b).sum())
    zeros = (size_a == 0) & (size_b == 0)
    seen = {"NAN": (nan_a ^ nan_b).any(), "NAN_PAYLOAD": (nan_a & nan_b).any(), "SIGNED_ZERO": zeros.any()}
    out.tags = tuple(tag for tag in seen if seen[tag] or tag in out.tags)
    numbers = ~nan_a & ~nan_b
    if not numbers.any():
        return
    wide_a, wide_b = size_a[numbers].astype(np.uint64), size_b[numbers].astype(np.uint64)
    same_sign = ((a ^ b)[numbers] & sign) == 0
    ulp = np.where(same_sign, np.maximum(wide_a, wide_b) - np.minimum(wide_a, wide_b), wide_a + wide_b)
    out.max_ulp = max(int(ulp.max()), out.max_ulp or 0)
    with np.errstate(over="ignore"):
        apart = np.abs(_values(a[numbers], kind) - _values(b[numbers], kind))
    out.max_abs = max(float(apart.max()), out.max_abs or 0.0)


def _values(raw: np.ndarray, kind: Kind) -> np.ndarray:
    if kind.values == "bf16":
        return (raw.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    return raw.view(kind.values).astype(np.float64)
