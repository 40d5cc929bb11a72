"""What the UI shows of an asset: plain numbers in a budget, identity, column schemas.

Big metadata kills browsers, and a numpy scalar kills the step; both stop here. The 712 leaves stay in diag.parquet,
which the metadata points to.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import dagster as dg
import numpy as np

from foxhunt_assets import storage
from foxhunt_assets.contracts.tables import Column
from foxhunt_assets.errors import ContractBroken
from foxhunt_assets.gates import FOLDER, MANIFEST_SHA
from foxhunt_assets.resources import World, git_identity
from foxhunt_assets.trainer.run_spec import code_hash

MAX_NUMBERS = 40
MAX_BYTES = 64 * 1024


def to_py(value: Any) -> Any:
    """A value Dagster stores and JSON knows: numpy becomes Python, a number that is not finite becomes its name."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return repr(value)
    if isinstance(value, Mapping):
        return {str(k): to_py(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_py(v) for v in value]
    return value


def within_budget(values: Mapping[str, Any]) -> dict[str, Any]:
    """The metadata as plain values; ContractBroken where it holds more than the UI should carry."""
    plain = {k: v if isinstance(v, (dg.MetadataValue, dg.TableSchema)) else to_py(v) for k, v in values.items()}
    size, numbers = weight(plain)
    if numbers > MAX_NUMBERS or size > MAX_BYTES:
        raise ContractBroken(
            f"metadata of {numbers} numbers and {size} bytes; the budget is {MAX_NUMBERS} and {MAX_BYTES}: "
            "write it to a file and give its path"
        )
    return plain


def weight(values: Mapping[str, Any]) -> tuple[int, int]:
    """(bytes, numbers) of a metadata mapping."""
    raw = [getattr(v, "value", v) for v in values.values()]
    numbers = sum(isinstance(v, (int, float)) and not isinstance(v, bool) for v in raw)
    return sum(len(k) + len(str(v)) for k, v in zip(values, raw)), numbers


def folder_metadata(world: World, folder: Path, values: Mapping[str, Any]) -> dict[str, Any]:
    """Metadata of an asset that is a committed folder: where, which bytes, which code and configuration, and values."""
    return within_budget(
        {
            FOLDER: dg.MetadataValue.path(str(folder)),
            MANIFEST_SHA: storage.file_sha256(folder / storage.MANIFEST),
            "code": code_hash(),
            "config": world.config.hash,
            "settings": world.settings.hash,
            "git": git_identity(),
            **values,
        }
    )


def column_schema(columns: Sequence[Column]) -> dict[str, dg.TableSchema]:
    """The UI's column table, from a contract's columns."""
    shown = [dg.TableColumn(c.name, c.type, description=f"{c.meaning} ({c.unit})") for c in columns]
    return {"dagster/column_schema": dg.TableSchema(columns=shown)}
