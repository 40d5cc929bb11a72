"""One row of diagnostics a step: every live leaf measured, converted once, checked against the contract, written.

The measure stage packs a row on the device; whoever reads it back finishes it here, a step late on a GPU. A leaf that
is not in the contract, is missing, is not finite or breaks its bound stops the run and is named.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

from foxhunt_assets.contracts.diag import live_leaves
from foxhunt_assets.contracts.diag_line import diag_line
from foxhunt_assets.errors import ContractBroken
from foxhunt_assets.simulator.measure import Counters
from foxhunt_assets.trainer import measure, measure_learning
from foxhunt_assets.trainer.collect import Collector
from foxhunt_assets.trainer.equity import equity_columns
from foxhunt_assets.trainer.numbers import Group, Numbers, Packing, Read, Row
from foxhunt_assets.trainer.program import Flags, Stage
from foxhunt_assets.trainer.world import World

# Leaves that stand for float32 slots are written as the shortest decimal that round-trips float32.
_SLOT_BACKED = (
    "isv_config.", "risk_stack.trail_factors.",
    "risk_stack.atom_calibration.popart_sigma", "popart.mu", "popart.sigma_welford",
)  # fmt: skip


# What only rollout mode has; the contract wants 0 in per_step.
_OF_A_WINDOW = (
    "rollout.minibatches_run", "rollout.kl_first", "rollout.kl_last", "rollout.kl_stops_cum",
)  # fmt: skip


class DiagBuilder:
    """Measures rows of either phase. held: the last training row, whose held leaves an evaluation repeats.

    outgoing: what leaves the device each row, tensors of fixed places: the packed numbers, the rows of closed trades
    [B, M, fields] with their mask, and in evaluation the columns of the equity log.
    """

    def __init__(self, world: World, collector: Collector, counters: Counters, held: Row | None = None) -> None:
        self.w, self.c, self.counters = world, collector, counters
        self.held = held or {}
        self.rules = {leaf.path: leaf.phase_rule for leaf in live_leaves()}
        self._casts = {path: cast for path, cast in _casts().items() if path != "elapsed_s"}
        self._fills: Row | None = None  # known from the first row on
        self.packing = Packing(self._groups(), world.device)
        self.outgoing: tuple[torch.Tensor, ...] = ()

    def stages(self) -> list[Stage]:
        """Measuring is a stage too: its running state is what it alone writes, from what every other stage left."""
        b = self.w.buffers
        diag = tuple(b.names("diag"))
        stats = tuple(name for name in diag if name in ("stats_policy", "stats_replay", "stats_optim", "kl_stops"))
        rest = tuple(name for name in b if name not in diag)
        return [Stage("diag", self._measure, (*stats, *rest), (), tuple(n for n in diag if n not in stats))]

    def _measure(self, flags: Flags) -> None:
        self.packing.measure()
        o = self.c.outcome
        now = (o.trades, o.trade_mask, *([equity_columns(self.w, o, flags)] if self.w.evaluating else []))
        if not self.outgoing:
            assert self.packing.arrays is not None
            self.outgoing = (*self.packing.arrays, *(torch.empty_like(x) for x in now))
        for fixed, x in zip(self.outgoing[2:], now):
            fixed.copy_(x)

    def _groups(self) -> list[Group]:
        """Everything a row measures."""
        return [
            Group(self._runtime, self._finish_runtime), Group(self._count, self._finish_counts),
            *measure.groups(self.w, self.c, self.w.buffers), *measure_learning.groups(self.w, self.c),
        ]  # fmt: skip

    def _runtime(self) -> Numbers:
        return {"step": self.w.clock.step}

    def _finish_runtime(self, read: Read) -> Row:
        step, evaluating = read["step"], self.w.evaluating
        first = self.held["step"] + 1 if evaluating else 0
        return {
            "step": step,
            "run.phase_code": int(evaluating),
            "run.fold_index": int(self.w.tape.spec.fold.rsplit("_", 1)[1]),
            "run.drain_row": int(evaluating and step - first == self.w.eval_walk.n_steps),
            "run.eval_step": step - first if evaluating else 0,
        }

    def _count(self) -> Numbers:
        self.counters.update(self.w.simulator, self.c.outcome)
        return {name: self.w.buffers[f"diag_sim_{name}"] for name in ("ints", "floats", "totals", "pnl_squares")}

    def _finish_counts(self, read: Read) -> Row:
        return self.counters.finish("eval" if self.w.evaluating else "train", **read)

    def row(self, floats: torch.Tensor, ints: torch.Tensor) -> Row:
        """All live leaves of a row but elapsed_s, in contract order, from its packed numbers on the host.

        In evaluation train_only leaves are 0, and held ones nobody measured repeat the last training row.
        """
        measured = self.packing.finish(floats, ints)
        if not self.w.evaluating and self.w.config.learning.per_step:
            measured |= dict.fromkeys(_OF_A_WINDOW, 0)
        if self._fills is None:
            self._fills = self._unmeasured(measured)
        measured |= self._fills
        if len(measured) != len(self._casts):
            extra = ", ".join(sorted(measured.keys() - self._casts.keys())[:5])
            raise ContractBroken(f"diagnostics: measured but not live in the contract: {extra}")
        return {path: cast(measured[path]) for path, cast in self._casts.items()}

    def _unmeasured(self, measured: Row) -> Row:
        """What every row of the phase holds and no group measures."""
        fills: Row = {}
        for path in self._casts:
            rule = self.rules[path]
            if self.w.evaluating and rule == "train_only":
                fills[path] = 0
            elif path not in measured and self.w.evaluating and rule == "held":
                fills[path] = self.held[path]
            elif path not in measured:
                raise ContractBroken(f"diagnostics: live leaf {path} was not measured")
        return fills


def written(values: Row) -> Row:
    """Measured leaves as a row writes them: whole numbers, flags, and the shortest decimals of float32 slots. A leaf
    the contract does not know keeps its value, for whoever names it."""
    casts = _casts()
    return {path: casts[path](value) if path in casts else value for path, value in values.items()}


@cache
def _casts() -> dict[str, Callable[[Any], int | float | bool]]:
    kinds: dict[str, Callable[[Any], int | float | bool]] = {"bool": bool, "int": int, "float": float}
    return {
        leaf.path: _slot if leaf.path.startswith(_SLOT_BACKED) and leaf.dtype == "float" else kinds[leaf.dtype]
        for leaf in live_leaves()
    }


def _slot(value: float) -> float:
    return float(str(np.float32(value)))


class DiagWriter:
    """Appends rows to a JSONL file; what it has written is what it has checked."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = path.open("a", encoding="utf-8")

    def write(self, row: Row, elapsed_s: float) -> None:
        try:
            line = diag_line().text(row | {"elapsed_s": elapsed_s})
        except ContractBroken as broken:
            raise ContractBroken(f"{self.path.name} {broken}") from None
        self._file.write(line)

    def flush(self) -> int:
        """Bytes written so far, on the disk: a checkpoint that counts on them must not outlive them."""
        self._file.flush()
        os.fsync(self._file.fileno())
        return self._file.tell()

    def close(self) -> None:
        self._file.close()
