"""One row of diagnostics a step: every live leaf measured, converted once, checked against the contract, written.

The measure stage packs a row on the device; whoever reads it back finishes it here, a step late on a GPU. A leaf that
is not in the contract, is missing, is not finite or breaks its bound stops the run and is named.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from functools import cache, lru_cache
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
import torch

from foxhunt_assets.contracts.diag import live_leaves
from foxhunt_assets.contracts.diag_line import diag_line
from foxhunt_assets.errors import ContractBroken
from foxhunt_assets.simulator import measure as simulator_measure
from foxhunt_assets.simulator.measure import Counters
from foxhunt_assets.simulator.state import specs as account_specs
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


# No group begins before this stage is done. Up to it a row is a chain of short launches, which full multiprocessors
# hold up (a trial: 20 us of 350); behind it the simulator's few blocks leave the device idle.
_FIRST = "act"

# What only rollout mode has; the contract wants 0 in per_step.
_OF_A_WINDOW = (
    "rollout.minibatches_run", "rollout.kl_first", "rollout.kl_last", "rollout.kl_stops_cum",
)  # fmt: skip


class DiagBuilder:
    """Measures rows of either phase. held: the last training row, whose held leaves an evaluation repeats.

    outgoing: what leaves the device each row, one tensor of fixed place once the first was measured: the packed
    numbers, the rows of closed trades [B, M, fields] with their mask, and in evaluation the columns of the equity log.
    """

    def __init__(self, world: World, collector: Collector, counters: Counters, held: Row | None = None) -> None:
        self.w, self.c, self.counters = world, collector, counters
        self.held = held or {}
        self.rules = {leaf.path: leaf.phase_rule for leaf in live_leaves()}
        self._typed = Typed(path for path in _casts() if path != "elapsed_s")
        self._fills: Row | None = None  # known from the first row on
        self.packing = Packing(self._groups())

    @property
    def outgoing(self) -> torch.Tensor:
        assert self.packing.words is not None, "nothing was measured yet"
        return self.packing.words

    def stages(self) -> list[Stage]:
        """Every group is a stage, begun as soon as there is what it measures; its running state it alone changes."""
        groups = [
            Stage(g.name, self._measure(i), g.reads, (), g.inouts, beside=True, behind=_FIRST)
            for i, g in enumerate(self.packing.groups)
        ]
        read = tuple(sorted({name for g in self.packing.groups for name in (*g.reads, *g.inouts)}))
        tables = Stage("tables", self._keep_tables, ("clock", "outcome"), beside=True)
        return [*groups, tables, Stage("packed", lambda _: self.packing.lay_out(), read)]

    def _measure(self, number: int) -> Callable[[Flags], None]:
        return lambda _: self.packing.measure(number)

    def _keep_tables(self, flags: Flags) -> None:
        o = self.c.outcome
        tables = {"trades": o.trades, "mask": o.trade_mask}
        if self.w.evaluating:
            tables["equity"] = equity_columns(self.w, o, flags)
        self.packing.keep(tables)

    def _groups(self) -> list[Group]:
        """Everything a row measures."""
        account = tuple(s.name for s in account_specs(self.w.config.model.accounts, self.w.config.env))
        counted = tuple(s.name for s in simulator_measure.specs())
        return [
            Group("runtime", self._runtime, self._finish_runtime, ("clock",)),
            Group("counters", self._count, self._finish_counts, ("outcome", *account), counted),
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

    def row(self, words: torch.Tensor) -> Row:
        """All live leaves of a row but elapsed_s, in contract order, from what was sent, on the host.

        In evaluation train_only leaves are 0, and held ones nobody measured repeat the last training row.
        """
        measured = self.packing.finish(words)
        if not self.w.evaluating and self.w.config.learning.per_step:
            measured |= dict.fromkeys(_OF_A_WINDOW, 0)
        if self._fills is None:
            self._fills = self._unmeasured(measured)
        measured |= self._fills
        if len(measured) != len(self._typed.paths):
            extra = ", ".join(sorted(measured.keys() - set(self._typed.paths))[:5])
            raise ContractBroken(f"diagnostics: measured but not live in the contract: {extra}")
        return self._typed.row(measured)

    def _unmeasured(self, measured: Row) -> Row:
        """What every row of the phase holds and no group measures."""
        fills: Row = {}
        for path in self._typed.paths:
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


class Typed:
    """Rows of these leaves: what is no float is made what it is one by one, the rest in one go."""

    def __init__(self, paths: Iterable[str]) -> None:
        self.paths = tuple(paths)
        self._pick = itemgetter(*self.paths)
        casts = [_casts()[path] for path in self.paths]
        self._others = [(i, cast) for i, cast in enumerate(casts) if cast is not float]

    def row(self, values: Row) -> Row:
        picked = self._pick(values)
        typed: list[int | float | bool] = list(map(float, picked))
        for i, cast in self._others:
            typed[i] = cast(picked[i])
        return dict(zip(self.paths, typed))


@cache
def _casts() -> dict[str, Callable[[Any], int | float | bool]]:
    kinds: dict[str, Callable[[Any], int | float | bool]] = {"bool": bool, "int": int, "float": float}
    return {
        leaf.path: _slot if leaf.path.startswith(_SLOT_BACKED) and leaf.dtype == "float" else kinds[leaf.dtype]
        for leaf in live_leaves()
    }


def _slot(value: float) -> float:
    return _shortest(value) if value else float(value)  # 0 and -0 would share an entry


@lru_cache(256)  # most slots never change
def _shortest(value: float) -> float:
    return float(str(np.float32(value)))


# Bytes kept back from the file: some twenty rows.
_BUFFER = 1 << 18


class DiagWriter:
    """Appends rows to a JSONL file; what it has written is what it has checked."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = path.open("ab", _BUFFER)

    def write(self, row: Row, elapsed_s: float) -> None:
        try:
            line = diag_line().text(row | {"elapsed_s": elapsed_s})
        except ContractBroken as broken:
            raise ContractBroken(f"{self.path.name} {broken}") from None
        self._file.write(line.encode())

    def flush(self) -> int:
        """Bytes written so far, on the disk: a checkpoint that counts on them must not outlive them."""
        self._file.flush()
        os.fsync(self._file.fileno())
        return self._file.tell()

    def close(self) -> None:
        self._file.close()
