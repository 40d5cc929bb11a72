"""Scaling of features: mean and standard deviation over a fold's training rows, and nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import torch

from foxhunt_assets.contracts.tables import FEATURE_NORM, arrow_schema
from foxhunt_assets.errors import BadInput, ContractBroken
from foxhunt_assets.market.features import FEATURES, block_rows, blocks
from foxhunt_assets.market.folds import FoldSpec
from foxhunt_assets.market.tape import segment_of_rows

NORM_FILE = "feature_norm.parquet"
NORM_CLIP = 8.0  # standard deviations; lots and ages have heavy tails that would drown the rest


def fit(spec: FoldSpec, columns: Mapping[str, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor, int]:
    """(mean, standard deviation with ddof 0: float64 [F], rows) over spec.train, in one pass.

    columns: the snapshot columns features.COLUMNS of the whole tape. A training row's features look back at rows
    before it, never at a row of the fold's validation or test, which lie behind every training row. Blocks of rows
    are merged in order (Chan, Golub, LeVeque 1979), and each is summed by a fixed tree: the result is part of
    identities, and a library's sum moves with the number of threads.
    """
    n = 0
    mean = squares = torch.zeros(len(FEATURES), dtype=torch.float64, device=columns["ts"].device)
    for block in blocks(columns, segment_of_rows(spec, mean.device), spec.train):
        x = block.to(torch.float64)
        m = len(x)
        block_mean = tree_sum(x) / m
        shift = block_mean - mean
        squares = squares + tree_sum((x - block_mean) ** 2) + shift * shift * (n * m / (n + m))
        mean = mean + shift * (m / (n + m))
        n += m
    return mean, torch.sqrt(squares / n), n


def tree_sum(x: torch.Tensor) -> torch.Tensor:
    """Sum of x [n, F] over its rows, halves added to halves: additions of fixed operands, whatever runs them."""
    width = 1 << (len(x) - 1).bit_length()
    x = torch.nn.functional.pad(x, (0, 0, 0, width - len(x)))
    while len(x) > 1:
        half = len(x) // 2
        x = x[:half] + x[half:]
    return x[0]


def write_norm(spec: FoldSpec, columns: Mapping[str, torch.Tensor], out: Path) -> dict[str, Any]:
    """Write out/feature_norm.parquet. Returns n_rows and the features constant over them, whose std is stored as 1."""
    mean, std, n = fit(spec, columns)
    constant = std <= 1e-9 * mean.abs().clamp(min=1.0)  # what rounding leaves of a constant is not a spread
    std = torch.where(constant, torch.ones_like(std), std)
    names = [f.name for f in FEATURES]
    table = pa.table([names, mean.tolist(), std.tolist()], schema=arrow_schema(FEATURE_NORM))
    out.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, out / NORM_FILE)
    return {"n_rows": n, "constant": [name for name, c in zip(names, constant.tolist()) if c]}


def read_norm(folder: Path) -> tuple[torch.Tensor, torch.Tensor]:
    """(mean, std) float64 [F] of a fold folder; ContractBroken where it is of another feature table."""
    path = folder / NORM_FILE
    if not path.is_file():
        raise BadInput(f"{path}: no such file; materialise feature_norm of {folder.name}")
    table = pq.read_table(path)
    if table.column_names != [c.name for c in FEATURE_NORM] or table["feature"].to_pylist() != [
        f.name for f in FEATURES
    ]:
        raise ContractBroken(f"{path}: not the features of this code; materialise feature_norm again")
    mean, std = (torch.tensor(table[name].to_pylist(), dtype=torch.float64) for name in ("mean", "std"))
    if not bool(torch.isfinite(mean).all() and torch.isfinite(std).all() and (std > 0).all()):
        raise ContractBroken(f"{path}: a mean or std is not finite, or a std is not above 0")
    return mean, std


def normalise(x: torch.Tensor, mean: torch.Tensor, std: torch.Tensor) -> torch.Tensor:
    """(x - mean) / std clipped to +-NORM_CLIP, float32 of x's shape [N, ..., F]; the arithmetic is float64.

    Block by block of N: in float64 a whole tape would take several times the room of the result.
    """
    out = torch.empty(x.shape, dtype=torch.float32, device=x.device)
    mean, std, rows = mean.to(x.device), std.to(x.device), block_rows(x.device)
    for part, into in zip(x.split(rows), out.split(rows)):
        into.copy_(part.to(torch.float64).sub_(mean).div_(std).clamp_(-NORM_CLIP, NORM_CLIP))
    return out
