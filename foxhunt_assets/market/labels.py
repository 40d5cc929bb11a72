"""Forward-return distribution labels: where the mid lies h snapshots on, as one of 21 atoms in sigma units.

r = (mid[i+h] - mid[i]) / (sigma_step * sqrt(h)); atom = floor(r * 20/6 + 10 + 1/2), clamped to 0..20. A tie goes
up. Everything is counted in half ticks, in which a mid is the integer bid + ask; the atom is the number of the 20
integer thresholds at or below the difference, so CPU and device agree to the bit and no tie depends on rounding.

A row has no label (-1) where i + h leaves its tape segment, where either mid is missing (a side absent, or a
crossed or locked book), and where sigma_step is 0 and the price moved; a flat price under sigma 0 is the middle atom.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch

from foxhunt_assets.contracts.tables import ABSENT_PX, arrow_schema, label_columns
from foxhunt_assets.errors import BadInput
from foxhunt_assets.market.folds import FoldSpec, Range
from foxhunt_assets.market.tape import segment_of_rows

ATOMS = 21
RANGE_SIGMA = 3  # the outermost atoms are centred here
NO_LABEL = -1
COLUMNS = ("bid_px", "ask_px")  # snapshot columns that labels need
LABELS_FILE = "frd_labels.arrow"
_BATCH_ROWS = 65_520  # not a power of two: whole columns would alias in the cache
_BLOCK_ROWS = 32_736  # their mids, moves and atoms fit the core's own cache


def half_tick_mids(bid0: torch.Tensor, ask0: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """(bid + ask int64 [n], 0 where there is no mid; whether there is one bool [n]) from best prices in ticks."""
    there = (bid0 != ABSENT_PX) & (ask0 != ABSENT_PX) & (bid0 < ask0)
    # in place, on a copy: fresh pages cost more than sums
    return bid0.to(torch.int64, copy=True).add_(ask0).masked_fill_(~there, 0), there


def sigma_step(bid0: torch.Tensor, ask0: torch.Tensor, ranges: Sequence[Range]) -> float:
    """Sample standard deviation (ddof 1), in ticks, of one-step mid increments with both rows inside one range.

    ranges: rows of the fold's training part, each inside one segment. Integer sums make it exact up to the last
    division and square root, so it is the same on every machine. BadInput where there are fewer than 2 increments.
    """
    mid, there = half_tick_mids(bid0, ask0)
    n = s1 = s2 = 0
    for a, b in ranges:
        both = there[a : b - 1] & there[a + 1 : b]
        step = (mid[a + 1 : b] - mid[a : b - 1])[both]
        n += step.numel()
        s1 += int(step.sum())
        s2 += int((step * step).sum())
    if n < 2:
        raise BadInput(f"{n} mid increments in the training rows, 2 needed for sigma_step: add files or lower n_folds")
    return math.sqrt((n * s2 - s1 * s1) / (n * (n - 1))) / 2  # Python's int / int is correctly rounded


def thresholds(sigma: float, h: int, atoms: int = ATOMS, range_sigma: int = RANGE_SIGMA) -> list[int]:
    """The atoms - 1 least half-tick differences that reach atom 1, 2, ...: ceil of (j - atoms/2) * width.

    width = 2 * range_sigma / (atoms - 1) * sigma * sqrt(h) half ticks, sigma in ticks. Exact: the float sigma is a
    rational number and a square root is compared by squaring.
    """
    if not (math.isfinite(sigma) and sigma >= 0):
        raise BadInput(f"sigma_step is {sigma}; it must be finite and 0 or more")
    if sigma == 0:  # any move at all is infinitely many sigmas
        return [0 if 2 * j < atoms else 1 for j in range(1, atoms)]
    squared = (Fraction(2 * range_sigma, atoms - 1) * 2 * Fraction(sigma)) ** 2 * h
    out = []
    for j in range(1, atoms):
        offset = Fraction(2 * j - atoms, 2)
        square = offset * offset * squared
        floor = math.isqrt(math.floor(square))
        out.append(-floor if offset < 0 else floor if floor * floor == square else floor + 1)
    return out


def make_labels(
    bid0: torch.Tensor, ask0: torch.Tensor, segment: torch.Tensor, horizons: Sequence[int], sigma: float
) -> torch.Tensor:
    """int8 [n, len(horizons)] atoms, -1 where there is no label; inputs are [n] in ticks and tape segments.

    BadInput where a mid is made of a price of 2^29 ticks or more, of which differences would overflow.
    """
    from foxhunt_assets.market import label_pass  # numba: the trainer imports this module and does without

    bid, ask, inside = (x.cpu().contiguous().to(torch.int32).numpy() for x in (bid0, ask0, segment))
    out = torch.empty((len(horizons), len(bid)), dtype=torch.int8)
    edges = _edges([thresholds(sigma, h) for h in horizons])
    if label_pass.label(bid, ask, inside, np.array(horizons), edges, _BLOCK_ROWS, out.numpy()) >= 2**29:
        raise BadInput("a best price of 2^29 ticks or more; the snapshots are damaged: materialise es_snapshots again")
    if sigma == 0:  # only what stands still has a label
        out.masked_fill_(out != ATOMS // 2, NO_LABEL)
    return out.T


def _edges(rows: Sequence[Sequence[int]]) -> np.ndarray:
    """Thresholds as `label_pass.label` takes them, in the narrowest type that holds all of them inside its range."""
    kind = np.int16 if all(abs(e) < 2**15 - 1 for row in rows for e in row) else np.int32
    low = np.iinfo(kind).min + 1
    return np.array([[low, *(min(max(e, low), -low) for e in row)] for row in rows], kind)


def write_labels(spec: FoldSpec, columns: Mapping[str, torch.Tensor], out: Path) -> dict[str, Any]:
    """Write out/frd_labels.arrow, row for row with the tape; sigma_step comes from spec.train alone.

    columns: the snapshot columns COLUMNS of the whole tape. Metadata of the file, as JSON: sigma_step (ticks),
    horizons, thresholds (half ticks). Returns those and counts: {h: [rows without a label, atom 0, ..., atom 20]}.
    """
    bid0, ask0 = columns["bid_px"][:, 0].cpu(), columns["ask_px"][:, 0].cpu()
    sigma = sigma_step(bid0, ask0, spec.train)
    labels = make_labels(bid0, ask0, segment_of_rows(spec), spec.horizons, sigma)
    facts = {
        "sigma_step": sigma,
        "horizons": list(spec.horizons),
        "thresholds": {f"h{h}": thresholds(sigma, h) for h in spec.horizons},
    }
    schema = arrow_schema(label_columns(spec.horizons), {k: json.dumps(v) for k, v in facts.items()})
    table = pa.table([pa.array(labels[:, i].contiguous().numpy()) for i in range(len(spec.horizons))], schema=schema)
    out.mkdir(parents=True, exist_ok=True)
    with pa.OSFile(str(out / LABELS_FILE), "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
        writer.write_table(table, max_chunksize=_BATCH_ROWS)
    counts = {
        f"h{h}": torch.bincount(labels[:, i].to(torch.int64) + 1, minlength=ATOMS + 1).tolist()
        for i, h in enumerate(spec.horizons)
    }
    return {**facts, "counts": counts}
