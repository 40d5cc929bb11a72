"""Walk-forward folds over a tape: what each fold trains on, validates on and tests on, purged and embargoed.

A tape is a list of (source, row range) laid end to end; a tape row is the offset in that list. Everything after
fold_spec depends on the source files through it alone.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, Literal

Range = tuple[int, int]  # half-open rows of the tape


@dataclass(frozen=True)
class TapeSource:
    """Rows [row_start, row_end) of one snapshots folder. content: the data version (sha256) of those rows."""

    key: str
    row_start: int
    row_end: int
    content: str


@dataclass(frozen=True)
class TapeSegment:
    """One unbroken stretch of one instrument in tape rows; neighbouring file segments are already joined."""

    segment: int
    symbol: str
    instrument_id: int
    trade_date: str
    row_start: int
    row_end: int
    ended_by: str
    tick: int
    multiplier_cents: int


@dataclass(frozen=True)
class FoldSpec:
    """One fold, complete: nothing after it looks at a file list again.

    train, validation, test: tape row ranges in order, each inside one segment, where an account may stand.
    purge_rows: rows left out before each later range (longest horizon + latency). window: K.
    mode: sessions where whole sessions were enough, else blocks of rows. synthetic: some source was generated.
    quarantined: (source key, reason) of what was there and not used. locked: (reserved) a last range not opened.
    """

    fold: str
    root: str
    mode: Literal["sessions", "blocks"]
    synthetic: bool
    grid_ms: int
    window: int
    latency_steps: int
    horizons: tuple[int, ...]
    purge_rows: int
    embargo_rows: int
    n_rows: int
    sources: tuple[TapeSource, ...]
    segments: tuple[TapeSegment, ...]
    train: tuple[Range, ...]
    validation: tuple[Range, ...]
    test: tuple[Range, ...]
    quarantined: tuple[tuple[str, str], ...] = ()

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, raw: dict[str, Any]) -> FoldSpec:
        pairs = {k: tuple((a, b) for a, b in raw[k]) for k in ("train", "validation", "test", "quarantined")}
        return cls(
            **{
                **raw,
                **pairs,
                "horizons": tuple(raw["horizons"]),
                "sources": tuple(TapeSource(**s) for s in raw["sources"]),
                "segments": tuple(TapeSegment(**s) for s in raw["segments"]),
            }
        )
