"""The diagnostics contract: 712 leaves, of which `live` ones stand in every row and `planned` ones in none.

diag_leaves.tsv holds one row a leaf: path, dtype, unit, min, max, group, phase_rule, producer, status,
may_be_constant (why a healthy short run may not move it, empty where it must), definition.
phase_rule: both; train_only (0 in eval); eval_only (0 in train); held (frozen at its last training value in
eval); reset (cumulative, anew at the first eval row); config (one value a run).
"""

from __future__ import annotations

import csv
import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from foxhunt_assets.errors import ContractBroken

N_LEAVES = 712
_TSV = "diag_leaves.tsv"
Value = int | float | bool


@dataclass(frozen=True)
class Leaf:
    """One leaf of the contract; minimum and maximum are None where the definition sets no bound."""

    path: str
    dtype: str
    unit: str
    minimum: float | None
    maximum: float | None
    group: str
    phase_rule: str
    producer: str
    status: str
    may_be_constant: str
    definition: str


@cache
def leaves() -> tuple[Leaf, ...]:
    """All 712 leaves in contract order."""
    text = _tsv_bytes().decode("utf-8")
    rows = list(csv.DictReader(text.splitlines(), delimiter="\t", quoting=csv.QUOTE_NONE))
    found = tuple(
        Leaf(
            r["path"], r["dtype"], r["unit"], _bound(r["min"]), _bound(r["max"]), r["group"], r["phase_rule"],
            r["producer"], r["status"], r["may_be_constant"], r["definition"],
        )
        for r in rows
    )  # fmt: skip
    if len(found) != N_LEAVES or len({leaf.path for leaf in found}) != N_LEAVES:
        raise ContractBroken(f"{_TSV}: {len(found)} rows, {N_LEAVES} distinct paths are the contract")
    return found


@cache
def live_leaves() -> tuple[Leaf, ...]:
    """The leaves every row holds, in contract order."""
    return tuple(leaf for leaf in leaves() if leaf.status == "live")


@cache
def contract_sha256() -> str:
    """sha256 of diag_leaves.tsv: the contract's identity, stored beside everything written under it."""
    return hashlib.sha256(_tsv_bytes()).hexdigest()


def nest(flat: Mapping[str, Value]) -> dict[str, Any]:
    """{"a.b": 1} -> {"a": {"b": 1}}, keeping order."""
    out: dict[str, Any] = {}
    for path, value in flat.items():
        *parents, name = path.split(".")
        node = out
        for parent in parents:
            node = node.setdefault(parent, {})
        node[name] = value
    return out


def flatten(row: Mapping[str, Any], prefix: str = "") -> dict[str, Value]:
    """The inverse of `nest`."""
    out: dict[str, Value] = {}
    for name, value in row.items():
        path = f"{prefix}{name}"
        if isinstance(value, dict):  # not Mapping: asking an abstract class is most of the time
            out.update(flatten(value, path + "."))
        else:
            out[path] = value
    return out


def row_faults(flat: Mapping[str, Value]) -> list[str]:
    """What is wrong with one row: leaf set, types, NaN or infinity, bounds. Empty when nothing is."""
    return faults_against(live_by_path(), flat)


def faults_against(contract: Mapping[str, Leaf], flat: Mapping[str, Value]) -> list[str]:
    """`row_faults` against the leaves given, by path."""
    faults = [f"{path}: not in the contract" for path in flat if path not in contract]
    for path, leaf in contract.items():
        if path not in flat:
            faults.append(f"{path}: missing")
        elif fault := value_fault(leaf, flat[path]):
            faults.append(f"{path}: {fault}")
    return faults


@cache
def live_by_path() -> dict[str, Leaf]:
    """The live leaves by path, in contract order."""
    return {leaf.path: leaf for leaf in live_leaves()}


def value_fault(leaf: Leaf, value: Any) -> str:
    """What is wrong with one value: type, NaN or infinity, bounds, int64 range. Empty when nothing is."""
    if fault := type_fault(leaf.dtype, value):
        return fault
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        return "does not fit 64 bits"
    return bound_fault(float(value), leaf.minimum, leaf.maximum)


_KINDS: dict[str, tuple[type, ...]] = {"int": (int,), "bool": (bool,), "float": (int, float), "string": (str,)}


def type_fault(kind: str, value: Any) -> str:
    """Whether a JSON value is an int, float (an int will do), bool or string; true is not a number."""
    fits = isinstance(value, _KINDS[kind]) and (kind == "bool" or not isinstance(value, bool))
    return "" if fits else f"{value!r} is not {kind}"


def bound_fault(number: float, minimum: float | None, maximum: float | None) -> str:
    """What is wrong with a number that must be finite and inside its bounds; empty when nothing is."""
    if not math.isfinite(number):
        return f"{number!r} is not finite"
    if minimum is not None and number < minimum:
        return f"{number!r} is under {minimum}"
    if maximum is not None and number > maximum:
        return f"{number!r} is over {maximum}"
    return ""


def _tsv_bytes() -> bytes:
    return resources.files(__package__).joinpath(_TSV).read_bytes()


def _bound(text: str) -> float | None:
    return float(text) if text else None
