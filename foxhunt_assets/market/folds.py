"""Walk-forward folds over a tape: what each fold trains on, validates on and tests on, purged and embargoed.

A tape is a list of (source, row range) laid end to end; a tape row is the offset in that list. Everything after
fold_spec depends on the source files through it alone.

How a fold is cut. Usable rows are the rows inside segments, counted through all sources in order of time.
- sessions: fold n trains on the sessions before its test, validates on the last of them and tests on the next
  `sessions_per_block`. Training begins with max(2, sessions_per_block) sessions, so that there is one to validate on.
- blocks: where sessions are too few or too short, the usable rows are cut in n_folds + 1 equal blocks; fold n
  trains on blocks 0..n, validates on the last tenth of them and tests on block n + 1.
- purge: purge_rows = longest horizon + latency usable rows are left out before validation and before test,
  wherever the boundary lies, so that no label and no pending order of an earlier row reaches a later range.
- embargo: embargo_rows usable rows after each range that an earlier fold evaluated on are not trained on.

A fold's tape holds only rows up to the end of its test. In sessions mode the cuts count from the first session
and do not look at how many follow, so a file appended later leaves older folds as they were, to the byte. The
price is that sessions beyond (n_folds + 1) blocks lie idle until n_folds is raised. sessions_per_block = None
takes the largest 2^k or 3 x 2^k that fits: it moves once each time the number of sessions grows by a third to a
half; a fixed number never moves. A file inserted before others, and any file in blocks mode, re-cuts all folds.
"""

from __future__ import annotations

import bisect
import dataclasses
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import pyarrow.parquet as pq

from foxhunt_assets.contracts.tables import SEGMENTS
from foxhunt_assets.errors import BadInput, ContractBroken
from foxhunt_assets.market import tape
from foxhunt_assets.storage import canonical_json

Range = tuple[int, int]  # half-open rows of the tape

MAX_JOIN_NS = 10_000_000_000  # silence across a file boundary that still is one segment; a thin ES hour shows 9.3 s
_DAY_NS = 86_400 * 1_000_000_000
VALIDATION_SHARE = 10  # blocks mode validates on the last tenth of the training blocks


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


@dataclass(frozen=True)
class SourceInfo:
    """What fold-making needs of one snapshots folder.

    segments: its segment table, in file rows. spans: (first, last) `ts` of each segment. content(a, b): sha256 of
    rows [a, b), asked only for rows that a fold uses. grid_ms: distance of its rows, 0 on the event clock.
    synthetic: the file was generated.
    """

    key: str
    n_rows: int
    segments: tuple[TapeSegment, ...]
    spans: tuple[tuple[int, int], ...]
    content: Callable[[int, int], str]
    grid_ms: int
    synthetic: bool = False


def source_info(key: str, folder: Path) -> SourceInfo:
    """Facts of a committed snapshots folder. Generated files carry the word synthetic in their name."""
    snapshots = tape.Snapshots(folder)
    path = folder / tape.SEGMENTS_FILE
    if not path.is_file():
        raise BadInput(f"{path}: no such file; materialise the snapshots of {key}")
    rows = pq.read_table(path, columns=[c.name for c in SEGMENTS]).to_pylist()
    segments = tuple(TapeSegment(**row) for row in rows)
    ends = [0, *(s.row_end for s in segments)]
    for before, s in zip(ends, segments):
        if not before <= s.row_start < s.row_end <= snapshots.n_rows:
            raise ContractBroken(f"{path}: segment {s.segment}: rows {s.row_start}..{s.row_end} do not follow {before}")

    def ts(row: int) -> int:
        return int(next(snapshots.slices("ts", row, row + 1))[0])

    spans = tuple((ts(s.row_start), ts(s.row_end - 1)) for s in segments)
    return SourceInfo(key, snapshots.n_rows, segments, spans, snapshots.sha256, snapshots.grid_ms, "synthetic" in key)


def data_version(spec: FoldSpec) -> str:
    """sha256 of a fold's own content; files that are quarantined or in other folds do not move it."""
    body = {k: v for k, v in spec.to_json().items() if k != "quarantined"}
    return hashlib.sha256(canonical_json(body).encode()).hexdigest()


def make_fold(
    index: int,
    n_folds: int,
    sources: Sequence[SourceInfo],
    *,
    root: str,
    grid_ms: int,
    window: int,
    latency_steps: int,
    horizons: Sequence[int],
    embargo_rows: int = 0,
    sessions_per_block: int | None = None,
    quarantined: Sequence[tuple[str, str]] = (),
) -> FoldSpec:
    """Fold `index` of 0..n_folds-1, in any order of `sources`; rules in the module docstring.

    BadInput: no such fold, rows of another clock than grid_ms, files that hold the same instrument at the same time,
    instruments side by side where one track record is walked, or too few rows (with the number needed).
    """
    if not 0 <= index < n_folds:
        raise BadInput(f"fold_{index}: folds are fold_0 to fold_{n_folds - 1}; raise folds.n_folds")
    _require_grid(sources, grid_ms)
    runs = _joined(_in_time_order(sources))
    purge = max(horizons) + latency_steps
    shortest = window + latency_steps + 1  # window behind, a fill and a step ahead
    mode, cuts = _cuts(runs, n_folds, purge, shortest, sessions_per_block)
    cut = cuts[index]
    _require_one_at_a_time(runs, (cut.validation, cut.test))
    evaluated = [end for earlier in cuts[:index] for _, end in (earlier.validation, earlier.test)]
    train = _without(cut.train, [(end, end + embargo_rows) for end in evaluated])
    tape_sources, segments, to_tape = _lay_tape(runs, cut.test[1])
    return FoldSpec(
        fold=f"fold_{index}",
        root=root,
        mode=mode,
        synthetic=any(p.source.synthetic for run in runs for p in run.parts if p.usable_start < cut.test[1]),
        grid_ms=grid_ms,
        window=window,
        latency_steps=latency_steps,
        horizons=tuple(horizons),
        purge_rows=purge,
        embargo_rows=embargo_rows,
        n_rows=sum(s.row_end - s.row_start for s in tape_sources),
        sources=tape_sources,
        segments=segments,
        train=to_tape(train),
        validation=to_tape([cut.validation]),
        test=to_tape([cut.test]),
        quarantined=tuple(quarantined),
    )


def _require_grid(sources: Sequence[SourceInfo], grid_ms: int) -> None:
    if grid_ms == 0:
        raise BadInput("data.clock is event: folds are cut on the grid clock only; set data.clock to grid")
    for source in sources:
        if source.grid_ms != grid_ms:
            has = f"on a grid of {source.grid_ms} ms" if source.grid_ms else "on the event clock"
            raise BadInput(
                f"{source.key}: decoded {has}, folds are cut at {grid_ms} ms; materialise es_snapshots of it again"
            )


def _require_one_at_a_time(runs: Sequence[_Run], ranges: Sequence[Range]) -> None:
    """Instruments side by side may be trained on; what is walked once, end to end, is one instrument at a time."""
    for start, end in ranges:
        inside = [p for run in runs for p in run.parts if p.usable_start < end and start < p.usable_end]
        for a, b in pairwise(inside):
            if b.span[0] <= a.span[1]:
                raise BadInput(
                    f"{a.segment.symbol} and {b.segment.symbol} overlap in time on {b.segment.trade_date}, and an "
                    "evaluation is one track record; set data.instrument_mode to front_month, volume or one symbol"
                )


@dataclass(frozen=True)
class _Part:
    """A file segment at its place among the usable rows."""

    source: SourceInfo
    segment: TapeSegment
    span: tuple[int, int]
    usable_start: int

    @property
    def usable_end(self) -> int:
        return self.usable_start + self.segment.row_end - self.segment.row_start


@dataclass(frozen=True)
class _Run:
    """File segments that are one segment of the market."""

    parts: tuple[_Part, ...]

    @property
    def rows(self) -> Range:
        """Usable rows of the run."""
        return self.parts[0].usable_start, self.parts[-1].usable_end


@dataclass(frozen=True)
class _Cut:
    """One fold in usable rows, before the embargo."""

    train: Range
    validation: Range
    test: Range


def _in_time_order(sources: Sequence[SourceInfo]) -> list[_Part]:
    """Every segment of every source by first ts; the same instrument twice at one time is refused."""
    found = [(span, s, seg) for s in sources for seg, span in zip(s.segments, s.spans)]
    found.sort(key=lambda x: (x[0], x[2].instrument_id, x[1].key))
    latest: dict[int, tuple[int, str]] = {}
    parts, at = [], 0
    for span, source, segment in found:
        end, other = latest.get(segment.instrument_id, (span[0] - 1, ""))
        if span[0] <= end:
            raise BadInput(
                f"{source.key}: {segment.symbol} on {segment.trade_date} overlaps in time with {other}; "
                "keep one of the two files"
            )
        latest[segment.instrument_id] = (span[1], source.key)
        parts.append(_Part(source, segment, span, at))
        at += segment.row_end - segment.row_start
    return parts


def _joined(parts: Sequence[_Part]) -> list[_Run]:
    """Runs of file segments between which nothing lies: one instrument and trade date, file end to file start."""
    runs: list[list[_Part]] = []
    for part in parts:
        if runs and _continues(runs[-1][-1], part):
            runs[-1].append(part)
        else:
            runs.append([part])
    return [_Run(tuple(run)) for run in runs]


def _continues(a: _Part, b: _Part) -> bool:
    same = (a.segment.instrument_id, a.segment.trade_date) == (b.segment.instrument_id, b.segment.trade_date)
    file_end = a.segment.ended_by == "file" and a.segment.row_end == a.source.n_rows
    return same and file_end and b.segment.row_start == 0 and b.span[0] - a.span[1] <= MAX_JOIN_NS


def _cuts(
    runs: Sequence[_Run], n_folds: int, purge: int, shortest: int, sessions_per_block: int | None
) -> tuple[Literal["sessions", "blocks"], list[_Cut]]:
    """All folds in usable rows: by whole sessions where every fold has enough, else by blocks of rows."""
    starts = [run.rows[0] for run in runs]

    def fits(rows: Range) -> bool:
        """Whether some unbroken stretch of these rows is long enough to stand in."""
        first = bisect.bisect_right(starts, rows[0]) - 1
        pieces = (min(run.rows[1], rows[1]) - max(run.rows[0], rows[0]) for run in runs[max(first, 0) :])
        return rows[0] < rows[1] and any(piece >= shortest for piece in pieces)

    def usable(cuts: list[_Cut]) -> bool:
        return bool(cuts) and all(fits(r) for c in cuts for r in (c.train, c.validation, c.test))

    by_session = _session_cuts(runs, n_folds, purge, sessions_per_block)
    if usable(by_session):
        return "sessions", by_session
    n = runs[-1].rows[1] if runs else 0
    edges = [i * n // (n_folds + 1) for i in range(n_folds + 2)]
    blocks = [_block_cut(edges[i + 1], edges[i + 2], purge) for i in range(n_folds)]
    need = _rows_needed(n_folds, purge, shortest)
    if n < need or not usable(blocks):
        why = "" if n < need else f", and every part an unbroken stretch of {shortest}"
        raise BadInput(
            f"{n} usable rows, {n_folds} folds need {need}{why}: add files, lower folds.n_folds or shorten the "
            f"horizons (purge is {purge} rows)"
        )
    if any(b.span[0] <= a.span[1] for a, b in pairwise(p for run in runs for p in run.parts)):
        raise BadInput("files of different instruments overlap in time and sessions are too few to cut between them")
    return "blocks", blocks


def _session_cuts(runs: Sequence[_Run], n_folds: int, purge: int, sessions_per_block: int | None) -> list[_Cut]:
    """Folds by whole trade dates; empty where there are too few."""
    dates: dict[str, Range] = {}
    for run in runs:
        date = run.parts[0].segment.trade_date
        dates[date] = (dates.get(date, run.rows)[0], run.rows[1])
    if runs and _cut_at_midnight(runs[-1].parts[-1]):
        del dates[runs[-1].parts[0].segment.trade_date]
    sessions = [dates[d] for d in sorted(dates)]
    block = sessions_per_block or _automatic_block(len(sessions), n_folds)
    first = max(2, block)
    if block < 1 or first + n_folds * block > len(sessions):
        return []
    cuts = []
    for fold in range(n_folds):
        test = sessions[first + fold * block : first + (fold + 1) * block]
        validation = sessions[first + fold * block - 1]
        cuts.append(_Cut((0, validation[0] - purge), (validation[0], validation[1] - purge), (test[0][0], test[-1][1])))
    return cuts


def _cut_at_midnight(part: _Part) -> bool:
    """A file that ends at UTC midnight inside a session: the rest of the session is in a file not here yet."""
    return part.segment.ended_by == "file" and _DAY_NS - part.span[1] % _DAY_NS <= MAX_JOIN_NS


def _automatic_block(n_sessions: int, n_folds: int) -> int:
    """Largest 2^k or 3 x 2^k sessions a block, 0 where not even one fits."""
    lengths = (b << k for b in (1, 3) for k in range(n_sessions.bit_length()))
    return max((b for b in lengths if max(2, b) + n_folds * b <= n_sessions), default=0)


def _block_cut(train_end: int, test_end: int, purge: int) -> _Cut:
    last = train_end - purge
    validation = last - last // VALIDATION_SHARE
    return _Cut((0, validation - purge), (validation, last), (train_end, test_end))


def _rows_needed(n_folds: int, purge: int, shortest: int) -> int:
    """Least usable rows with which the first and tightest of the block folds has all three parts."""
    kept = VALIDATION_SHARE * shortest
    while kept - kept // VALIDATION_SHARE - purge < shortest:
        kept += 1
    return (n_folds + 1) * (kept + purge)


def _without(rows: Range, holes: Sequence[Range]) -> list[Range]:
    """`rows` less the holes, in order."""
    pieces = [rows]
    for a, b in holes:
        pieces = [p for x, y in pieces for p in ((x, min(y, a)), (max(x, b), y)) if p[0] < p[1]] if a < b else pieces
    return pieces


def _lay_tape(
    runs: Sequence[_Run], end: int
) -> tuple[tuple[TapeSource, ...], tuple[TapeSegment, ...], Callable[[Sequence[Range]], tuple[Range, ...]]]:
    """Sources and segments of the tape of usable rows [0, end), and the map from usable rows to tape ranges."""
    spans: list[tuple[SourceInfo, int, int]] = []
    segments: list[TapeSegment] = []
    pieces: list[tuple[int, int, int]] = []  # usable start and end of a run, tape row of its start
    at = 0  # tape rows laid so far
    for run in runs:
        if run.rows[0] >= end:
            break
        start = None
        for part in run.parts:
            if part.usable_start >= end:
                break
            a = part.segment.row_start
            b = a + min(part.usable_end, end) - part.usable_start
            if spans and spans[-1][0] is part.source and spans[-1][2] <= a:
                at += a - spans[-1][2]  # rows between two segments of one file stay on the tape, outside every segment
                spans[-1] = (part.source, spans[-1][1], b)
            else:
                spans.append((part.source, a, b))
            start = at if start is None else start
            at += b - a
        assert start is not None
        last = run.parts[-1]
        ended_by = last.segment.ended_by if last.usable_end <= end else "file"
        number = len(segments)
        segments.append(
            dataclasses.replace(run.parts[0].segment, segment=number, row_start=start, row_end=at, ended_by=ended_by)
        )
        pieces.append((run.rows[0], min(run.rows[1], end), start))

    def to_tape(ranges: Sequence[Range]) -> tuple[Range, ...]:
        return tuple(
            (start + max(a, first) - first, start + min(b, stop) - first)
            for a, b in ranges
            for first, stop, start in pieces
            if max(a, first) < min(b, stop)
        )

    sources = tuple(TapeSource(s.key, a, b, s.content(a, b)) for s, a, b in spans)
    return sources, tuple(segments), to_tape
