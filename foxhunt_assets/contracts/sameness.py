"""How sameness of each artefact is judged, for determinism verdicts and for Dagster's data versions alike.

bytes: the file's bytes. json_lines: the text of every row without the leaves named. tensors: the same tree of
(name, dtype, shape, raw bytes). table: the same columns, types and values, whatever the file's encoding.
identity: must name the same code, configuration and inputs, and is never compared byte by byte.
ignored: wall clock and the like.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Judge = Literal["bytes", "json_lines", "tensors", "table", "identity", "ignored"]


@dataclass(frozen=True)
class Sameness:
    """file: name in the run folder. judge: see the module. without: JSON paths left out (json_lines only)."""

    file: str
    judge: Judge
    without: tuple[str, ...] = ()


TRAIN_RUN = (
    Sameness("config.json", "bytes"),
    Sameness("diag.jsonl", "json_lines", ("elapsed_s",)),
    Sameness("diag.parquet", "ignored"),  # derived from diag.jsonl, elapsed_s and all
    Sameness("trades.parquet", "table"),
    Sameness("train_summary.json", "bytes"),
    Sameness("checkpoint.safetensors", "tensors"),
    Sameness("checkpoint.json", "bytes"),
    Sameness("timing.parquet", "ignored"),
    Sameness("manifest.json", "identity"),
)
EVAL_RUN = (
    Sameness("config.json", "bytes"),
    Sameness("eval_diag.jsonl", "json_lines", ("elapsed_s",)),
    Sameness("eval_diag.parquet", "ignored"),
    Sameness("eval_summary.json", "bytes"),
    Sameness("trades.parquet", "table"),
    Sameness("equity.parquet", "table"),
    Sameness("timing.parquet", "ignored"),
    Sameness("manifest.json", "identity"),
)
