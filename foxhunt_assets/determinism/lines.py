"""JSON lines compared as text, token by token: 1.0 is not 1.00, -0.0 is not 0.0, and only named paths are left out."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import Any

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[^\s{}\[\],:"]+|[{}\[\],:]')
_SPACE = re.compile(r"[ \t\r]*")


class BadLine(ValueError):
    """A line that is not one whole JSON object with distinct keys and finite numbers."""


@dataclass
class Lines:
    """What comparing two files gave.

    rows: compared in both. leaves: of the first row, those left out not counted. steps: first and last step compared.
    first_step, first_leaves: the first row that differs and every leaf of it that does, in document order.
    by_leaf: rows in which each leaf differs. only: rows that only one file holds, (A, B). faults: bad lines.
    """

    rows: int = 0
    leaves: int = 0
    steps: tuple[int, int] | None = None
    first_step: int | None = None
    first_leaves: list[str] = field(default_factory=list)
    first_values: tuple[str, str] = ("", "")
    by_leaf: dict[str, int] = field(default_factory=dict)
    rows_differing: int = 0
    only: tuple[int, int] = (0, 0)
    faults: list[str] = field(default_factory=list)


def compare_lines(a: Path, b: Path, without: Sequence[str]) -> Lines:
    """Compare two JSON-lines files; `without`: top-level names left out, whose values must be numbers on both sides."""
    out = Lines()
    extra = [0, 0]
    with a.open("rb") as file_a, b.open("rb") as file_b:
        for i, pair in enumerate(zip_longest(file_a, file_b)):
            if None in pair:
                extra[pair.index(None) ^ 1] += 1
                continue
            try:
                top_a = _top(pair[0], f"A line {i + 1}", without)
                top_b = _top(pair[1], f"B line {i + 1}", without)
            except BadLine as error:
                out.faults.append(str(error))
                continue
            _row(out, i, top_a, top_b, without)
    out.only = (extra[0], extra[1])
    return out


def tokens(text: str) -> list[tuple[str, str]]:
    """(path, raw text) of every scalar and empty container of a valid JSON text, in document order."""
    stream = iter(_TOKEN.findall(text))
    return list(_walk(next(stream), stream, ""))


@dataclass(frozen=True)
class _Top:
    """One object: raw text by top-level key, and its step."""

    spans: dict[str, str]
    step: int | None


def _row(out: Lines, i: int, a: _Top, b: _Top, without: Sequence[str]) -> None:
    step = i if a.step is None else a.step
    if out.steps and step != out.steps[1] + 1:
        out.faults.append(f"A line {i + 1}: step {step} follows step {out.steps[1]}")
    out.steps = (out.steps[0] if out.steps else step, step)
    out.rows += 1
    kept_a = {k: v for k, v in a.spans.items() if k not in without}
    kept_b = {k: v for k, v in b.spans.items() if k not in without}
    if out.rows == 1:
        out.leaves = sum(len(tokens(v)) for v in kept_a.values())
    missing = [k for k in without if (k in a.spans) != (k in b.spans)]
    if list(kept_a.items()) == list(kept_b.items()) and not missing:
        return
    differing = _differing(kept_a, kept_b) + [(k, a.spans.get(k, "absent"), b.spans.get(k, "absent")) for k in missing]
    if not differing:
        return
    if not out.rows_differing:
        out.first_step, out.first_leaves = step, [leaf for leaf, _, _ in differing]
        out.first_values = differing[0][1:]
    out.rows_differing += 1
    for leaf, _, _ in differing:
        out.by_leaf[leaf] = out.by_leaf.get(leaf, 0) + 1


def _differing(a: dict[str, str], b: dict[str, str]) -> list[tuple[str, str, str]]:
    """(leaf, raw in A, raw in B) of all that differ; structure and the order of keys count when nothing else does."""
    if [(k, _TOKEN.findall(v)) for k, v in a.items()] == [(k, _TOKEN.findall(v)) for k, v in b.items()]:
        return []
    leaves_a, leaves_b = ({k + path: t for k, v in side.items() for path, t in tokens(v)} for side in (a, b))
    paths = [*leaves_a, *(p for p in leaves_b if p not in leaves_a)]
    out = [(p, leaves_a.get(p, "absent"), leaves_b.get(p, "absent")) for p in paths]
    return [row for row in out if row[1] != row[2]] or [("(order or nesting of keys)", "", "")]


def _walk(token: str, stream: Iterator[str], path: str) -> Iterator[tuple[str, str]]:
    if token == "{":
        empty = True
        while (key := next(stream)) != "}":
            if key == ",":
                key = next(stream)
            empty = False
            next(stream)  # the colon
            yield from _walk(next(stream), stream, f"{path}.{key[1:-1]}")
        if empty:
            yield path, "{}"
    elif token == "[":
        count = 0
        while (item := next(stream)) != "]":
            if item == ",":
                item = next(stream)
            yield from _walk(item, stream, f"{path}[{count}]")
            count += 1
        if not count:
            yield path, "[]"
    else:
        yield path, token


def _top(line: bytes, where: str, without: Sequence[str]) -> _Top:
    """The object of one line, cut at its top-level values by the JSON decoder itself."""
    if not line.endswith(b"\n"):
        raise BadLine(f"{where}: torn, no line end")
    try:
        text = line.decode("utf-8").rstrip("\n")
        spans, values = _spans(text)
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise BadLine(f"{where}: not JSON: {error}") from None
    except BadLine as error:
        raise BadLine(f"{where}: {error}") from None
    for name in without:
        if name in values and (isinstance(values[name], bool) or not isinstance(values[name], (int, float))):
            raise BadLine(f"{where}: {name} is left out of the comparison and is not a number")
    step = values.get("step")
    return _Top(spans, step if isinstance(step, int) else None)


def _spans(text: str) -> tuple[dict[str, str], dict[str, Any]]:
    """Raw text and value by top-level key as it is spelt."""
    spans: dict[str, str] = {}
    values: dict[str, Any] = {}
    keys: set[str] = set()
    at = _after(text, 0, "{")
    while not text.startswith("}", at):
        if spans:
            at = _after(text, at, ",")
        key, end = _DECODER.raw_decode(text, at)
        if not isinstance(key, str):
            raise BadLine(f"column {at + 1}: a key must be a string")
        if key in keys:
            raise BadLine(f"duplicate key {key}")
        keys.add(key)
        spelt, start = text[at + 1 : end - 1], _after(text, end, ":")
        values[spelt], end = _DECODER.raw_decode(text, start)
        spans[spelt] = text[start:end]
        at = _space(text, end)
    if _space(text, at + 1) != len(text):
        raise BadLine(f"column {at + 2}: text after the object")
    return spans, values


def _after(text: str, at: int, mark: str) -> int:
    at = _space(text, at)
    if not text.startswith(mark, at):
        raise BadLine(f"column {at + 1}: {mark!r} expected; torn or not one JSON object")
    return _space(text, at + 1)


def _space(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return found.end() if found else at


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    out = dict(pairs)
    if len(out) != len(pairs):
        names = [k for k, _ in pairs]
        raise BadLine(f"duplicate key {next(k for k in names if names.count(k) > 1)}")
    return out


def _no_constant(name: str) -> Any:
    raise BadLine(f"{name} is not JSON")


_DECODER = json.JSONDecoder(object_pairs_hook=_distinct, parse_constant=_no_constant)
