"""One row of diagnostics a step: every live leaf measured, converted once, checked against the contract, written.

Leaves arrive as 0-dim tensors; they leave the device in one packed float64 and one packed int64 tensor. A leaf that
is not in the contract, is missing, is not finite or breaks its bound stops the run and is named.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from foxhunt_assets.contracts.diag import live_by_path, live_leaves, nest, row_faults
from foxhunt_assets.errors import ContractBroken
from foxhunt_assets.simulator.measure import Counters
from foxhunt_assets.trainer import measure, measure_learning
from foxhunt_assets.trainer.collect import Collector
from foxhunt_assets.trainer.measure import Values
from foxhunt_assets.trainer.program import Scalars, Stage
from foxhunt_assets.trainer.world import World

Row = dict[str, int | float | bool]

# Leaves that stand for float32 slots are written as the shortest decimal that round-trips float32.
_SLOT_BACKED = (
    "isv_config.", "risk_stack.trail_factors.",
    "risk_stack.atom_calibration.popart_sigma", "popart.mu", "popart.sigma_welford",
)  # fmt: skip


class DiagBuilder:
    """Measures a row of either phase. held: the last training row, whose held leaves an evaluation repeats."""

    def __init__(self, world: World, collector: Collector, counters: Counters, held: Row | None = None) -> None:
        self.w, self.c, self.counters = world, collector, counters
        self.fold_index = int(world.tape.spec.fold.rsplit("_", 1)[1])
        self.held = held or {}
        self.row: Row = {}  # the last one measured
        self.rules = {leaf.path: leaf.phase_rule for leaf in live_leaves()}
        self.order = [leaf.path for leaf in live_leaves()]

    def stages(self) -> list[Stage]:
        """Measuring is a stage too: its running state is what it alone writes, from what every other stage left."""
        b = self.w.buffers
        diag = tuple(b.names("diag"))
        stats = tuple(name for name in diag if name in ("stats_policy", "stats_replay", "stats_optim", "kl_stops"))
        rest = tuple(name for name in b if name not in diag)
        return [Stage("diag", self._measure, (*stats, *rest), (), tuple(n for n in diag if n not in stats))]

    def _measure(self, s: Scalars) -> None:
        self.row = self._row(s)

    def _row(self, s: Scalars) -> Row:
        """All live leaves of this step but elapsed_s, in contract order."""
        w, c, b = self.w, self.c, self.w.buffers
        self.counters.update(w.simulator, c.outcome)
        values: Values = {
            **measure.runtime(s, self.fold_index), **measure.data(w, c), **measure.inputs(w, c, b),
            **measure.encoding(c, b), **measure.values(w, c, b), **measure.policy(w, c, b),
            **measure.forward_returns(w, c, b), **measure.rewards(w, c, b),
            **self.counters.leaves("eval" if w.evaluating else "train"),
            **measure_learning.checksums(w, c, b), **measure_learning.configuration(b),
            **measure_learning.statistics(b),
        }  # fmt: skip
        if not w.evaluating:
            values |= {
                **measure_learning.losses(b), **measure_learning.optimiser(w, b),
                **measure_learning.memory(w, s, b), **measure_learning.weights(w, b),
            }  # fmt: skip
        values |= measure_learning.events(w, c, s, b)
        measure.end_row(b)
        return self._complete(written(values))

    def _complete(self, measured: Row) -> Row:
        """Contract order; in evaluation train_only leaves are 0, unmeasured held ones repeat the last training row."""
        row: Row = {}
        for path in self.order:
            if path == "elapsed_s":
                continue
            rule = self.rules[path]
            if self.w.evaluating and rule == "train_only":
                row[path] = 0
            elif path in measured:
                row[path] = measured[path]
            elif self.w.evaluating and rule == "held":
                row[path] = self.held[path]
            else:
                raise ContractBroken(f"diagnostics: live leaf {path} was not measured")
        if extra := sorted(measured.keys() - self.rules.keys()):
            raise ContractBroken(f"diagnostics: measured but not live in the contract: {', '.join(extra[:5])}")
        return row


def written(values: Values) -> Row:
    """Measured leaves as a row writes them: whole numbers, flags, and the shortest decimals of float32 slots. A leaf
    the contract does not know keeps its value, for whoever names it."""
    known = live_by_path()
    return {
        path: _typed(known[path].dtype, path, value) if path in known else value
        for path, value in to_python(values).items()
    }


def to_python(values: Values) -> Row:
    """Numbers of a row with one copy a kind off the device: integers stay integers of 64 bits."""
    floats = {k: v for k, v in values.items() if isinstance(v, torch.Tensor) and v.is_floating_point()}
    whole = {k: v for k, v in values.items() if isinstance(v, torch.Tensor) and not v.is_floating_point()}
    out: Row = {k: v for k, v in values.items() if not isinstance(v, torch.Tensor)}
    for group, dtype in ((floats, torch.float64), (whole, torch.int64)):
        if group:
            packed = torch.stack([v.detach().to(dtype).reshape(()) for v in group.values()])
            out.update(zip(group, packed.tolist()))
    return out


def _typed(dtype: str, path: str, value: Any) -> int | float | bool:
    if dtype == "bool":
        return bool(value)
    if dtype == "int":
        return int(value)
    return float(str(np.float32(value))) if path.startswith(_SLOT_BACKED) else float(value)


class DiagWriter:
    """Appends rows to a JSONL file; what it has written is what it has checked."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = path.open("a", encoding="utf-8")

    def write(self, row: Mapping[str, Any], elapsed_s: float) -> None:
        whole = {path: (elapsed_s if path == "elapsed_s" else row[path]) for path in _order()}
        if faults := row_faults(whole):
            raise ContractBroken(
                f"{self.path.name} step {row.get('step')}: {faults[0]} ({len(faults)} leaves at fault)"
            )
        self._file.write(json.dumps(nest(whole), allow_nan=False, separators=(",", ":")) + "\n")

    def flush(self) -> int:
        """Bytes written so far, on the disk: a checkpoint that counts on them must not outlive them."""
        self._file.flush()
        os.fsync(self._file.fileno())
        return self._file.tell()

    def close(self) -> None:
        self._file.close()


def _order() -> list[str]:
    return [leaf.path for leaf in live_leaves()]
