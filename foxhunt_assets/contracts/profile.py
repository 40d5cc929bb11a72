"""The leaf profile of a diagnostics table: one row a leaf, so that a report stays small however many cells are bad.

Counting faults per leaf costs a thirtieth of judging 712 columns cell by cell with pandera; pandera then judges
this frame. A test holds the two verdicts equal on a corpus of mutations.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from foxhunt_assets.contracts.diag import Leaf, live_leaves
from foxhunt_assets.contracts.sidecar import ARROW

COUNTS = ("nulls", "nonfinite", "below_min", "above_max")
PROFILE_COLUMNS = ("path", "expected", "present", "dtype_ok", "rows", *COUNTS)


def leaf_profile(table: pa.Table, contract: Sequence[Leaf] | None = None) -> dict[str, list]:
    """Columns PROFILE_COLUMNS, one row for each path of the contract and of the table together.

    contract: the leaves, the live ones when left out. expected: 1 when the contract has the path. present: columns
    of that name in the table. dtype_ok: 1 when it has the contract's type. rows: of the table. The rest are counts
    of cells; a column of another type, or one that is not expected, is not looked into.
    """
    by_path = {leaf.path: leaf for leaf in (live_leaves() if contract is None else contract)}
    paths = list(dict.fromkeys([*by_path, *table.column_names]))
    rows = [_leaf_row(table, path, by_path.get(path)) for path in paths]
    return {name: [row[i] for row in rows] for i, name in enumerate(PROFILE_COLUMNS)}


def profile_faults(profile: dict[str, list], limit: int = 20) -> list[str]:
    """What is wrong, one line a leaf, at most `limit` lines and one that counts the rest."""
    faults = []
    for i, path in enumerate(profile["path"]):
        row = {name: profile[name][i] for name in PROFILE_COLUMNS}
        wrong = [f"{row[name]} {name}" for name in COUNTS if row[name]]
        if not row["expected"]:
            wrong = ["not in the contract"]
        elif row["present"] != 1:
            wrong = ["missing" if not row["present"] else f"{row['present']} columns of this name"]
        elif not row["dtype_ok"]:
            wrong = ["another type than the contract's"]
        elif not row["rows"]:
            wrong = ["no rows"]
        if wrong:
            faults.append(f"{path}: {', '.join(wrong)}")
    return faults[:limit] + ([f"and {len(faults) - limit} more leaves"] if len(faults) > limit else [])


def _leaf_row(table: pa.Table, path: str, leaf: Leaf | None) -> tuple:
    indices = table.schema.get_all_field_indices(path)
    present = len(indices)
    dtype_ok = int(leaf is not None and present == 1 and table.schema.field(indices[0]).type == ARROW[leaf.dtype])
    counts = (0, 0, 0, 0)
    if leaf is not None and dtype_ok:
        counts = _cell_counts(table.column(indices[0]), leaf)
    return (path, int(leaf is not None), present, dtype_ok, table.num_rows, *counts)


def _cell_counts(column: pa.ChunkedArray, leaf: Leaf) -> tuple[int, int, int, int]:
    values = column.drop_null().to_numpy()
    finite = np.isfinite(values)
    below = 0 if leaf.minimum is None else int(np.sum(values[finite] < leaf.minimum))
    above = 0 if leaf.maximum is None else int(np.sum(values[finite] > leaf.maximum))
    return column.null_count, int(np.sum(~finite)), below, above
