"""Data versions from content: equal content, equal version, whoever wrote it and whenever.

The judges are those of `contracts/sameness.py`, so a data version and a determinism verdict never disagree on what
sameness means.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet as pq
import safetensors

from foxhunt_assets import storage
from foxhunt_assets.contracts.sameness import Sameness
from foxhunt_assets.errors import BadInput, ContractBroken


def file_version(folder: Path, rule: Sameness) -> str:
    """sha256 of one artefact as its judge sees it. BadInput for a file that is not judged by content."""
    path = folder / rule.file
    if rule.judge == "bytes":
        return storage.file_sha256(path)
    if rule.judge == "json_lines":
        return json_lines_sha256(path, rule.without)
    if rule.judge == "tensors":
        return tensors_sha256(path)
    if rule.judge == "table":
        return table_sha256(path)
    raise BadInput(f"{path}: judged by {rule.judge}, which gives no data version")


def run_version(folder: Path, rules: Sequence[Sameness], name: str) -> str:
    """Data version of one named artefact of a run folder."""
    found = [rule for rule in rules if rule.file == name]
    if not found:
        raise BadInput(f"{name}: not in the sameness table")
    return file_version(folder, found[0])


def json_sha256(value: Any) -> str:
    return hashlib.sha256(storage.canonical_json(value).encode()).hexdigest()


def json_lines_sha256(path: Path, without: Sequence[str]) -> str:
    """sha256 over the canonical text of every row, without the dotted leaves named."""
    digest = hashlib.sha256()
    with path.open("rb") as lines:
        for line in lines:
            row = json.loads(line)
            for leaf in without:
                _drop(row, leaf.split("."))
            digest.update(storage.canonical_json(row).encode() + b"\n")
    return digest.hexdigest()


def _drop(row: dict[str, Any], path: list[str]) -> None:
    for name in path[:-1]:
        row = row.get(name, {})
    row.pop(path[-1], None)


def tensors_sha256(path: Path) -> str:
    """sha256 over (name, dtype, shape, raw bytes) of every tensor of a safetensors file, in name order."""
    digest = hashlib.sha256()
    for name, tensor in sorted(safetensors.deserialize(path.read_bytes())):
        digest.update(f"{name}\0{tensor['dtype']}\0{list(tensor['shape'])}\0".encode())
        digest.update(bytes(tensor["data"]))
    return digest.hexdigest()


def table_sha256(path: Path) -> str:
    """sha256 over names, types and values of a Parquet or Arrow IPC table, whatever its encoding or chunks."""
    return columns_sha256(read_table(path))


def read_table(path: Path) -> pa.Table:
    """A Parquet (.parquet) or Arrow IPC (.arrow) table."""
    if path.suffix == ".parquet":
        return pq.read_table(path)
    with pa.memory_map(str(path)) as source:
        return pa.ipc.open_file(source).read_all()


def columns_sha256(table: pa.Table) -> str:
    """sha256 over names, types and values. Nothing the project writes is nullable, so a null is ContractBroken."""
    digest = hashlib.sha256(f"{table.num_rows}\0".encode())
    for name, column in zip(table.column_names, table.columns):
        if column.null_count:
            raise ContractBroken(f"column {name}: {column.null_count} nulls in a table that has none")
        digest.update(f"{name}\0{column.type}\0".encode())
        digest.update(_values(column.combine_chunks()))
    return digest.hexdigest()


def _values(array: pa.Array | pa.ChunkedArray) -> bytes:
    if isinstance(array, pa.ChunkedArray):
        array = pa.concat_arrays(array.chunks) if array.num_chunks else pa.array([], array.type)
    if pa.types.is_fixed_size_list(array.type):
        return _values(array.flatten())
    if pa.types.is_string(array.type) or pa.types.is_large_string(array.type) or pa.types.is_dictionary(array.type):
        return storage.canonical_json(array.to_pylist()).encode()
    return np.ascontiguousarray(array.to_numpy(zero_copy_only=False)).tobytes()
