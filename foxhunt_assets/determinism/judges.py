"""One judge a kind of artefact: two paths in, one FileResult out. Which judge a file gets is contracts.sameness's word.

A judge reports everything it finds in a file, never only the first thing. What it cannot read is ERROR or
INCOMPLETE, never equal.
"""

from __future__ import annotations

import json
import mmap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from foxhunt_assets.contracts.sameness import Sameness
from foxhunt_assets.determinism.bits import KINDS, Kind, difference, words
from foxhunt_assets.determinism.lines import compare_lines, tokens
from foxhunt_assets.determinism.tensors import Malformed, Tensor, Truncated, read_tensors
from foxhunt_assets.determinism.verdict import FileResult, Finding

# What a manifest must name, so that "same run" means something.
IDENTITY_KEYS = ("code", "config_hash", "inputs", "seed")
PARQUET_MAGIC = b"PAR1"  # first and last bytes of a whole file
_SHOWN = 5  # differing names in a text; the detail holds all


def judge(name: str, rule: Sameness, a: Path, b: Path) -> FileResult:
    """Compare one artefact of two runs; `name` is what the result calls it."""
    return _JUDGES[rule.judge](name, rule, a, b)


def _bytes(name: str, rule: Sameness, a: Path, b: Path) -> FileResult:
    size_a, size_b = a.stat().st_size, b.stat().st_size
    if not size_a or not size_b:
        return _empty(name, rule, size_a, size_b)
    first = _first_byte(a, b)
    if first is None and size_a == size_b:
        return FileResult(name, rule.judge, size_a, "bytes")
    size = "" if size_a == size_b else f", {size_a:,} against {size_b:,} bytes"
    leaves = _json_leaves(a, b)
    where = f"; {_some(leaves)}" if leaves else ""
    at = min(size_a, size_b) if first is None else first
    finding = Finding("DIVERGED", f"first at byte {at}{size}{where}")
    return FileResult(name, rule.judge, min(size_a, size_b), "bytes", (finding,), detail={"leaves": leaves})


def _first_byte(a: Path, b: Path) -> int | None:
    """First position at which two non-empty files differ, over their common length."""
    with a.open("rb") as file_a, b.open("rb") as file_b:
        map_a = mmap.mmap(file_a.fileno(), 0, access=mmap.ACCESS_READ)
        map_b = mmap.mmap(file_b.fileno(), 0, access=mmap.ACCESS_READ)
        block = 1 << 20
        for start in range(0, min(len(map_a), len(map_b)), block):
            part_a, part_b = map_a[start : start + block], map_b[start : start + block]
            for i in np.flatnonzero(_uint8(part_a, part_b) != _uint8(part_b, part_a)) if part_a != part_b else ():
                return start + int(i)
    return None


def _uint8(part: bytes, other: bytes) -> np.ndarray:
    return np.frombuffer(part, dtype=np.uint8)[: len(other)]


def _json_leaves(a: Path, b: Path) -> list[str]:
    """Names of the leaves that differ, where both files are JSON."""
    try:
        texts = [p.read_text(encoding="utf-8") for p in (a, b)]
        for text in texts:
            json.loads(text)
    except (json.JSONDecodeError, UnicodeDecodeError):
        return []
    leaves_a, leaves_b = (dict(tokens(text)) for text in texts)
    return [p.lstrip(".") for p in {**leaves_a, **leaves_b} if leaves_a.get(p) != leaves_b.get(p)]


def _json_lines(name: str, rule: Sameness, a: Path, b: Path) -> FileResult:
    size_a, size_b = a.stat().st_size, b.stat().st_size
    if not size_a or not size_b:
        return _empty(name, rule, size_a, size_b)
    lines = compare_lines(a, b, rule.without)
    findings = [Finding("INCOMPLETE", text) for text in lines.faults[:_SHOWN]]
    if len(lines.faults) > _SHOWN:
        findings.append(Finding("INCOMPLETE", f"{len(lines.faults) - _SHOWN} more bad lines"))
    if lines.rows_differing:
        findings.append(
            Finding(
                "DIVERGED",
                f"{lines.rows_differing} of {lines.rows} rows and {len(lines.by_leaf)} leaves differ, first at step "
                f"{lines.first_step}: {_some(lines.first_leaves)} ({' / '.join(lines.first_values)})",
            )
        )
    if any(lines.only):
        findings.append(Finding("DIVERGED", f"rows that the other lacks: {lines.only[0]} in A, {lines.only[1]} in B"))
    detail = {
        "leaves": lines.leaves,
        "steps": list(lines.steps or ()),
        "first_step": lines.first_step,
        "first_leaves": lines.first_leaves,
        "rows_by_leaf": lines.by_leaf,
        "faults": lines.faults,
    }
    span = f"steps {lines.steps[0]} to {lines.steps[1]}" if lines.steps else "no step"
    unit = f"rows of {lines.leaves} leaves, {span}"
    return FileResult(name, rule.judge, lines.rows, unit, tuple(findings), detail=detail)


def _tensors(name: str, rule: Sameness, a: Path, b: Path) -> FileResult:
    try:
        file_a, file_b = read_tensors(a), read_tensors(b)
    except Truncated as error:
        return FileResult(name, rule.judge, findings=(Finding("INCOMPLETE", f"truncated: {error}"),))
    except (Malformed, KeyError, TypeError) as error:
        return FileResult(name, rule.judge, findings=(Finding("ERROR", f"not a safetensors file: {error}"),))
    both = [n for n in file_a.tensors if n in file_b.tensors]
    findings: list[Finding] = []
    detail: dict[str, Any] = {}
    for side, mine, other in (("A", file_a, file_b), ("B", file_b, file_a)):
        if lone := [n for n in mine.tensors if n not in other.tensors]:
            findings.append(Finding("DIVERGED", f"only in {side}: {_some(lone)}"))
    if file_a.metadata != file_b.metadata:
        findings.append(Finding("DIVERGED", "the header's metadata differs"))
    if not file_a.tensors or not file_b.tensors:
        findings.append(Finding("INCOMPLETE", "holds no tensor"))
    for n in both:
        finding, numbers = _tensor(n, file_a.tensors[n], file_b.tensors[n])
        findings += [finding] if finding else []
        detail |= {n: numbers} if numbers else {}
    order = () if both == [n for n in file_b.tensors if n in file_a.tensors] else ("ORDER: the same tensors otherwise",)
    return FileResult(name, rule.judge, len(both), "tensors", tuple(findings), order, detail)


def _tensor(name: str, a: Tensor, b: Tensor) -> tuple[Finding | None, dict[str, Any]]:
    """Compare dtype, shape and bits; of two shapes the common prefix is compared all the same."""
    if a.dtype != b.dtype:
        return Finding("DIVERGED", f"{name}: {a.dtype} against {b.dtype}"), {"dtype": [a.dtype, b.dtype]}
    kind = KINDS[a.dtype]
    shared = min(len(a.raw), len(b.raw))
    found = difference(words(a.raw[:shared], kind), words(b.raw[:shared], kind), kind)
    numbers = found.to_json() if found else {}
    if a.shape != b.shape:
        prefix = f"{found.count} of the first {found.total} differ" if found else "their common prefix is equal"
        text = f"{name}: shape {list(a.shape)} against {list(b.shape)}; {prefix}"
        return Finding("NOT_COMPARABLE", text), {**numbers, "shape": [list(a.shape), list(b.shape)]}
    if not found:
        return None, {}
    index = tuple(int(i) for i in np.unravel_index(found.first, a.shape)) if a.shape else ()
    return Finding("DIVERGED", f"{name}: {found.text(index)}"), {**numbers, "index": list(index)}


def _table(name: str, rule: Sameness, a: Path, b: Path) -> FileResult:
    try:
        file_a, file_b = pq.ParquetFile(a, memory_map=True), pq.ParquetFile(b, memory_map=True)
    except pa.ArrowInvalid as error:
        size_a, size_b = a.stat().st_size, b.stat().st_size
        if not size_a or not size_b:
            return _empty(name, rule, size_a, size_b)
        torn = any(path.read_bytes()[-len(PARQUET_MAGIC) :] != PARQUET_MAGIC for path in (a, b))
        found = Finding("INCOMPLETE", "torn: no Parquet footer") if torn else Finding("ERROR", _line(error))
        return FileResult(name, rule.judge, findings=(found,))
    rows_a, rows_b = file_a.metadata.num_rows, file_b.metadata.num_rows
    types_a, types_b = ({f.name: f.type for f in file.schema_arrow} for file in (file_a, file_b))
    findings = []
    if list(types_a.items()) != list(types_b.items()):
        findings.append(Finding("DIVERGED", f"columns {_columns(types_a)} against {_columns(types_b)}"))
    if rows_a != rows_b:
        findings.append(Finding("DIVERGED", f"{rows_a} rows against {rows_b}"))
    shared = min(rows_a, rows_b)
    detail: dict[str, Any] = {}
    for column in [c for c in types_a if types_b.get(c) == types_a[c]]:
        at = _column_differs(file_a, file_b, column, shared)
        if len(at):
            values = [file.read([column])[0][int(at[0])].as_py() for file in (file_a, file_b)]
            text = f"{column}: {len(at)} of {shared} rows differ, first row {at[0]} ({values[0]!r} / {values[1]!r})"
            findings.append(Finding("DIVERGED", text))
            detail[column] = {"count": len(at), "first_row": int(at[0])}
    remarks = () if shared else ("no rows to compare; the columns are",)
    unit = f"rows of {len(types_a)} columns"
    return FileResult(name, rule.judge, shared, unit, tuple(findings), remarks, detail)


def _column_differs(a: pq.ParquetFile, b: pq.ParquetFile, column: str, rows: int) -> np.ndarray:
    """Row numbers, of the first `rows`, whose values differ in bits."""
    array_a, array_b = (file.read([column])[0].slice(0, rows).combine_chunks() for file in (a, b))
    nulls_a, nulls_b = (x.is_null().to_numpy(zero_copy_only=False) for x in (array_a, array_b))
    if pa.types.is_primitive(array_a.type) and array_a.type.bit_width >= 8:
        raw_a, raw_b = (_fixed_words(x) for x in (array_a, array_b))
        differs = (raw_a != raw_b) & ~nulls_a
    else:
        differs = np.array([x != y for x, y in zip(array_a.to_pylist(), array_b.to_pylist())], dtype=bool)
    return np.flatnonzero(differs | (nulls_a != nulls_b))


def _fixed_words(array: pa.Array) -> np.ndarray:
    """Values of a fixed-width column as unsigned words of the same width."""
    kind = Kind(array.type.bit_width // 8)
    raw = np.frombuffer(array.buffers()[1] or b"", dtype=np.uint8)
    return words(raw[array.offset * kind.size : (array.offset + len(array)) * kind.size], kind)


def _identity(name: str, rule: Sameness, a: Path, b: Path) -> FileResult:
    """Everything a manifest says but its list of files must be equal, and the keys that make an identity be there."""
    try:
        side_a, side_b = (json.loads(p.read_text(encoding="utf-8")) for p in (a, b))
        keys = [k for k in {**side_a, **side_b} if k != "files"]
    except (ValueError, TypeError) as error:
        return FileResult(name, rule.judge, findings=(Finding("ERROR", f"not a manifest: {_line(error)}"),))
    findings = [
        Finding("INCOMPLETE", f"{side} does not name its {key}")
        for side, manifest in (("A", side_a), ("B", side_b))
        for key in IDENTITY_KEYS
        if key not in manifest
    ]
    findings += [
        Finding("NOT_COMPARABLE", f"{key} differs: {_short(side_a.get(key))} against {_short(side_b.get(key))}")
        for key in keys
        if _text(side_a.get(key)) != _text(side_b.get(key))
    ]
    return FileResult(name, rule.judge, len(keys), "keys", tuple(findings))


def _ignored(name: str, rule: Sameness, a: Path, b: Path) -> FileResult:
    return FileResult(name, rule.judge)


_JUDGES: dict[str, Callable[[str, Sameness, Path, Path], FileResult]] = {
    "bytes": _bytes, "json_lines": _json_lines, "tensors": _tensors, "table": _table, "identity": _identity,
    "ignored": _ignored,
}  # fmt: skip


def _empty(name: str, rule: Sameness, size_a: int, size_b: int) -> FileResult:
    which = "both are" if not size_a and not size_b else "A is" if not size_a else "B is"
    return FileResult(name, rule.judge, findings=(Finding("INCOMPLETE", f"{which} empty; nothing was compared"),))


def _some(names: list[str]) -> str:
    return ", ".join(names[:_SHOWN]) + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")


def _columns(types: dict[str, pa.DataType]) -> str:
    return ", ".join(f"{name} {kind}" for name, kind in types.items())


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def _short(value: Any) -> str:
    text = _text(value)
    return text if len(text) <= 80 else text[:77] + "..."


def _line(error: Exception) -> str:
    return " ".join(str(error).split())
