"""What is wrong with a fold's folders, one line a fault, without Dagster and pandera: for the assets before they
commit and for the checks after.

A fault is something wrong with a readable artefact. What cannot be read at all raises, and is never a failed check.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.ipc

from foxhunt_assets import storage
from foxhunt_assets.contracts.tables import ABSENT_PX, arrow_schema, label_columns
from foxhunt_assets.errors import ContractBroken
from foxhunt_assets.market import labels
from foxhunt_assets.market.folds import FoldSpec, Range

SPEC_FILE = "fold_spec.json"


def raise_on(faults: Sequence[str], where: Path) -> None:
    """ContractBroken with the first fault and how many more there are."""
    if faults:
        more = f" ({len(faults) - 1} more)" if len(faults) > 1 else ""
        raise ContractBroken(f"{where}: {faults[0]}{more}")


def read_fold(folder: Path) -> FoldSpec:
    """The fold of a committed spec folder."""
    return FoldSpec.from_json(storage.read_json(folder / SPEC_FILE))


def fold_faults(spec: FoldSpec) -> list[str]:
    """Leaks and nonsense of a fold: order, purge, overlap, ranges across segments, rows that are not there."""
    parts: list[tuple[str, tuple[Range, ...]]] = [
        ("train", spec.train), ("validation", spec.validation), ("test", spec.test),
    ]  # fmt: skip
    faults = [f"{name}: no rows" for name, ranges in parts if not ranges]
    if faults:
        return faults
    if spec.purge_rows != max(spec.horizons) + spec.latency_steps:
        faults.append(f"purge_rows is {spec.purge_rows}, not the longest horizon + latency")
    for (a_name, a), (b_name, b) in pairwise(parts):
        if b[0][0] - a[-1][1] < spec.purge_rows:
            faults.append(f"{a_name} ends {b[0][0] - a[-1][1]} rows before {b_name}; the purge is {spec.purge_rows}")
    for name, ranges in parts:
        faults += [f"{name} {r}: empty, or not inside one segment" for r in ranges if not _inside(spec, r)]
        faults += [f"{name}: {a} and {b} overlap or are out of order" for a, b in pairwise(ranges) if a[1] > b[0]]
    rows = sum(s.row_end - s.row_start for s in spec.sources)
    if rows != spec.n_rows:
        faults.append(f"n_rows is {spec.n_rows}, the sources hold {rows}")
    return faults


def _inside(spec: FoldSpec, r: Range) -> bool:
    return r[0] < r[1] and any(s.row_start <= r[0] and r[1] <= s.row_end for s in spec.segments)


def read_labels(folder: Path) -> pa.Table:
    """The table of a committed labels folder."""
    with pa.memory_map(str(folder / labels.LABELS_FILE)) as source:
        return pa.ipc.open_file(source).read_all()


def label_faults(folder: Path, spec: FoldSpec) -> list[str]:
    """Labels that are not row for row with the tape, out of range, or reach over the end of a segment."""
    table = read_labels(folder)
    expected = arrow_schema(label_columns(spec.horizons))
    if not table.schema.remove_metadata().equals(expected):
        return [f"columns are {table.schema.names}, not {expected.names}"]
    if table.num_rows != spec.n_rows:
        return [f"{table.num_rows} rows for a tape of {spec.n_rows}"]
    faults = []
    for h in spec.horizons:
        atoms = table[f"h{h}"].to_numpy()
        if atoms.size and not (atoms.min() >= -1 and atoms.max() < labels.ATOMS):
            faults.append(f"h{h}: atoms {atoms.min()}..{atoms.max()}, -1..{labels.ATOMS - 1} are allowed")
        labelled = np.flatnonzero(atoms >= 0)
        ends = np.array([s.row_end for s in spec.segments])
        starts = np.array([s.row_start for s in spec.segments])
        at = np.searchsorted(ends, labelled, side="right")
        outside = (at == len(ends)) | (labelled < starts[np.minimum(at, len(ends) - 1)])
        late = ~outside & (labelled + h >= ends[np.minimum(at, len(ends) - 1)])
        if outside.any() or late.any():
            row = int(labelled[outside | late][0])
            faults.append(f"h{h}: row {row} has a label that reaches out of its segment")
        if not len(labelled):
            faults.append(f"h{h}: no row has a label; the horizon is longer than every segment")
    return faults


def label_mid_faults(folder: Path, spec: FoldSpec, bid: np.ndarray, ask: np.ndarray) -> list[str]:
    """Labels that are there without two sound mids in one segment, or not there with them. bid, ask: int64 [n], best
    prices in ticks. Where sigma_step is 0 a moved price has no label."""
    table = read_labels(folder)
    sound = (bid != ABSENT_PX) & (ask != ABSENT_PX) & (bid < ask)
    flat = json.loads(table.schema.metadata[b"sigma_step"]) == 0
    faults = []
    for h in spec.horizons:
        may = np.zeros(spec.n_rows, bool)
        for s in spec.segments:
            a, b = s.row_start, s.row_end - h
            if a < b:
                may[a:b] = sound[a:b] & sound[a + h : b + h]
                if flat:
                    may[a:b] &= (bid + ask)[a:b] == (bid + ask)[a + h : b + h]
        wrong = np.flatnonzero((table[f"h{h}"].to_numpy() >= 0) != may)
        if len(wrong):
            has = "no label where one belongs" if may[wrong[0]] else "a label without two sound mids in its segment"
            faults.append(f"h{h}: row {wrong[0]} has {has} ({len(wrong)} such rows)")
    return faults
