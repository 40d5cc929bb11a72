"""diag.jsonl read strictly, and its Parquet form. The JSONL is the record; the Parquet is derived at commit.

Only while rows are read can it be proven that each holds exactly the contract's leaves: once columnar, a missing
key and an explicit null look alike. So everything about single rows is proven here, in one pass.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from foxhunt_assets.contracts.diag import (
    Leaf,
    Value,
    contract_sha256,
    faults_against,
    flatten,
    live_leaves,
    value_fault,
)
from foxhunt_assets.errors import BadInput, ContractBroken

CONTRACT_KEY = b"contract_sha256"  # in the metadata of the Parquet form
_TYPES: dict[str, set[type]] = {"int": {int}, "float": {int, float}, "bool": {bool}}
_NUMPY = {"int": np.int64, "float": np.float64, "bool": np.bool_}
ARROW = {"int": pa.int64(), "float": pa.float64(), "bool": pa.bool_()}


def read_diag(path: Path, contract: Sequence[Leaf] | None = None) -> dict[str, np.ndarray]:
    """Columns of a diag.jsonl by leaf path, in contract order: int64, float64 or bool, one element a row.

    contract: the leaves of every row, the live ones when left out. ContractBroken names a line and leaf
    that break it: other leaves, types or bounds, NaN or infinity, a key twice, a blank or torn line, no rows.
    """
    by_path = {leaf.path: leaf for leaf in (live_leaves() if contract is None else contract)}
    rows = [_row(path, number, line, by_path) for number, line in enumerate(_lines(path), start=1)]
    return {
        leaf.path: _column(path, leaf, list(values)) for leaf, values in zip(by_path.values(), zip(*rows), strict=True)
    }


def to_parquet(path: Path, columns: Mapping[str, np.ndarray], contract: Sequence[Leaf] | None = None) -> None:
    """Write columns as flat dotted Parquet columns in contract order, zstd, the contract's hash in the metadata.

    contract: the leaves, the live ones when left out. ContractBroken when columns are not exactly these.
    """
    leaves = live_leaves() if contract is None else contract
    wrong = {leaf.path for leaf in leaves} ^ set(columns)
    if wrong:
        raise ContractBroken(f"{path}: columns are not the contract's leaves: {', '.join(sorted(wrong)[:5])}")
    fields = [pa.field(leaf.path, ARROW[leaf.dtype], nullable=False) for leaf in leaves]
    schema = pa.schema(fields, metadata={CONTRACT_KEY: contract_sha256()})
    arrays = [pa.array(columns[f.name], type=f.type) for f in fields]
    pq.write_table(pa.Table.from_arrays(arrays, schema=schema), path, compression="zstd")


def from_parquet(path: Path) -> dict[str, np.ndarray]:
    """The columns that `to_parquet` wrote. ContractBroken when they were written under another contract."""
    table = pq.read_table(path)
    if (table.schema.metadata or {}).get(CONTRACT_KEY) != contract_sha256().encode():
        raise ContractBroken(f"{path}: written under another contract; derive it again from its JSONL")
    return {name: table.column(name).to_numpy() for name in table.column_names}


def _lines(path: Path) -> list[bytes]:
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        raise BadInput(f"{path}: no such file") from None
    if not raw:
        raise ContractBroken(f"{path}: no rows")
    lines = raw.split(b"\n")
    if lines.pop():
        raise ContractBroken(f"{path}: line {len(lines) + 1}: torn: the file does not end with a newline")
    return lines


def _row(path: Path, number: int, line: bytes, by_path: Mapping[str, Leaf]) -> list[Value]:
    """Values of one line in contract order; the leaves are proven here, the values column by column."""
    flat = _decode(path, number, line)
    if flat.keys() != by_path.keys():
        faults = faults_against(by_path, flat)
        more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
        raise ContractBroken(f"{path}: line {number}: {faults[0]}{more}")
    return [flat[name] for name in by_path]


def _column(path: Path, leaf: Leaf, values: list[Value]) -> np.ndarray:
    """A column, held to its leaf at once; only a column that fails is gone through value by value."""
    if {type(value) for value in values} <= _TYPES[leaf.dtype]:
        with contextlib.suppress(OverflowError):
            column: np.ndarray = np.array(values, dtype=_NUMPY[leaf.dtype])
            low = -np.inf if leaf.minimum is None else leaf.minimum
            high = np.inf if leaf.maximum is None else leaf.maximum
            if np.isfinite(column).all() and low <= column.min() and column.max() <= high:
                return column
    number, fault = next((i, f) for i, v in enumerate(values, start=1) if (f := value_fault(leaf, v)))
    raise ContractBroken(f"{path}: line {number}: {leaf.path}: {fault}")


def _decode(path: Path, number: int, line: bytes) -> dict[str, Value]:
    if not line.strip():
        raise ContractBroken(f"{path}: line {number}: blank")
    try:
        row = json.loads(line, object_pairs_hook=_object, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise ContractBroken(f"{path}: line {number}: {error}") from None
    if not isinstance(row, dict):
        raise ContractBroken(f"{path}: line {number}: not a JSON object")
    return flatten(row)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    out = dict(pairs)
    if len(out) != len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"{next(n for n in names if names.count(n) > 1)}: key twice")
    if not out:
        raise ValueError("an empty object, which would hold no leaf")
    if dotted := next((name for name in out if "." in name), None):
        raise ValueError(f"{dotted}: a dotted key; groups are nested objects")
    return out


def _refuse_constant(text: str) -> Any:
    raise ValueError(f"{text} is not JSON")
