"""A row of live leaves as one checked line of JSON, at the pace of a captured step: what is the same in every row is
worked out once."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from functools import cache
from operator import itemgetter

import numpy as np

from foxhunt_assets.contracts.diag import Value, live_by_path, live_leaves, nest, row_faults
from foxhunt_assets.errors import ContractBroken

# The producers of leaves in the order of a row.
STAGES = (
    "host", "gather", "encode", "heads", "act", "simulate", "reward", "replay", "rollout", "controllers", "losses",
    "backward", "combine", "encoder_backward", "optimise", "target", "checksums", "diag",
)  # fmt: skip


class DiagLine:
    """The form of a line: the text between the values, their order, their bounds."""

    def __init__(self) -> None:
        leaves = live_leaves()
        marks = nest({leaf.path: f"@{i}" for i, leaf in enumerate(leaves)})  # type: ignore[misc]
        parts = re.split(r'"@(\d+)"', json.dumps(marks, separators=(",", ":")).replace("%", "%%"))
        self._text = "%s".join(parts[::2]) + "\n"
        self._leaves = [leaves[int(number)] for number in parts[1::2]]
        self._pick = itemgetter(*(leaf.path for leaf in self._leaves))
        self._flags = [i for i, leaf in enumerate(self._leaves) if leaf.dtype == "bool"]
        self._low = np.array([-math.inf if leaf.minimum is None else leaf.minimum for leaf in self._leaves])
        self._high = np.array([math.inf if leaf.maximum is None else leaf.maximum for leaf in self._leaves])

    def text(self, row: Mapping[str, Value]) -> str:
        """The line of a row of the live leaves, typed, and no others; ContractBroken names the first fault."""
        try:
            values = self._pick(row)
            numbers = np.array(values, dtype=np.float64)
        except (KeyError, TypeError, ValueError, OverflowError):
            raise _broken(row) from None
        inside = np.isfinite(numbers) & (numbers >= self._low) & (numbers <= self._high)
        if len(row) != len(values) or not inside.all():
            raise _broken(row)
        texts = list(map(repr, values))
        for i in self._flags:
            texts[i] = "true" if values[i] else "false"
        return self._text % tuple(texts)


@cache
def diag_line() -> DiagLine:
    return DiagLine()


def _broken(row: Mapping[str, Value]) -> ContractBroken:
    """Names the fault of the earliest stage: what comes after it may only carry the fault on."""
    known = live_by_path()

    def stage(fault: str) -> int:
        leaf = known.get(fault.split(": ")[0])
        return STAGES.index(leaf.producer) if leaf else -1

    faults = sorted(row_faults(row), key=stage)
    path = faults[0].split(": ")[0]
    made = f"; stage {known[path].producer} made it" if path in known else ""
    return ContractBroken(f"step {row.get('step')}: {faults[0]}{made} ({len(faults)} leaves at fault)")
