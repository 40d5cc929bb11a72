"""The features of a snapshot: one table names them all, one function computes them over a tape.

`FEATURES` is the only place that says what a feature is, and its length is the width F everywhere. A feature reads
its own row and, the ten of `micro`, rows before it in the same segment: none can look ahead, and none knows of
another segment. A row outside every segment (segment -1) stands alone. Values are raw: `norm` scales them.
"""

from __future__ import annotations

import calendar
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, get_args

import torch

from foxhunt_assets.contracts.tables import ABSENT_PX, LEVELS, NO_SEGMENT
from foxhunt_assets.market import micro
from foxhunt_assets.market.micro import BAR_ROWS, HAWKES_DOUBLINGS, LOOK_BACK, OFI_ROWS, RECENT_ROWS, REGIME_ROWS

ABSENT_GAP = 64.0  # ticks: the gap of a level that is not there, and the largest gap told apart
MAX_AGE_MS = 3_600_000.0  # an event older than an hour says no more than one an hour old
BLOCK_ROWS = 16_384  # rows computed at a time: constant memory, most of it in a core's cache
GPU_BLOCK_ROWS = 1 << 19  # there a block must be worth its 250 launches; it takes some 600 MB beside the tape
Group = Literal["price", "size", "micro", "ofi", "time", "flow"]
GROUPS: tuple[Group, ...] = get_args(Group)  # in table order


@dataclass(frozen=True)
class Feature:
    """One feature. unit: of the raw value. low, high: bounds no book can break. source: of the formula."""

    name: str
    group: Group
    unit: str
    low: float
    high: float
    definition: str
    source: str


_BOOK = "the book itself"
_GAP = (
    "{sign}, in ticks, within +-64; 64 where the level is absent; where the other side is empty the mid is "
    "replaced by the side's own best price"
)
_LOTS = 2.0**31  # lots of a snapshot column are int32
_MAX_LOG = math.log1p(_LOTS)
_MAX_STEP = micro.MAX_MOVE / 2  # ticks


def _recent(text: str, rows: int = RECENT_ROWS) -> str:
    return f"{text} over the last {rows} rows of the segment"


FEATURES: tuple[Feature, ...] = (
    *(
        Feature(f"{side}_gap_{k}", "price", "ticks", -ABSENT_GAP, ABSENT_GAP, _GAP.format(sign=sign.format(k)), _BOOK)
        for side, sign in (("bid", "mid - bid {}"), ("ask", "ask {} - mid"))
        for k in range(LEVELS)
    ),
    *(
        Feature(f"{side}_size_{k}", "size", "ln(1 + lots)", 0.0, _MAX_LOG, f"ln(1 + size of {side} {k})", _BOOK)
        for side in ("bid", "ask")
        for k in range(LEVELS)
    ),
    Feature(
        "realized_variance", "micro", "ticks^2", 0.0, _MAX_STEP**2,
        _recent("mean square of the one-row changes of the mid (64 ticks at most; both rows with a mid)"),
        "realised variance a row: Andersen, Bollerslev, Diebold, Labys 2003",
    ),
    Feature(
        "hawkes_intensity", "micro", "1/s", micro.HAWKES_MU, math.inf,
        _recent(
            f"{micro.HAWKES_MU} + {micro.HAWKES_ALPHA} x trades, each by exp(-{micro.HAWKES_BETA} x its age in s),",
            2**HAWKES_DOUBLINGS,
        ),
        "Hawkes 1971, exponential kernel; Ozaki 1979, recursion",
    ),
    Feature(
        "weighted_book_pressure", "micro", "1", -1.0, 1.0,
        "(bid - ask)/(bid + ask) of size / gap, the gap half a tick or more, summed over ten levels; "
        "0 for an empty book",
        "queue imbalance of Gould and Bonart 2016, weights ours",
    ),
    Feature(
        "spread_dynamics", "micro", "ticks", -_MAX_STEP, _MAX_STEP,
        _recent("spread (64 ticks at most) less its mean") + "; 0 without a mid", "ours",
    ),
    Feature(
        "aggression_ratio", "micro", "1", 0.0, 1.0,
        _recent("T/(T + R), T lots traded by aggressors, R sum of |touch OFI - signed trades|, the net limit lots,")
        + "; 0 without volume",
        "Cont, Kukanov, Stoikov 2014: OFI is trades plus limit orders less cancels; ratio ours",
    ),
    Feature(
        "queue_depletion_asymmetry", "micro", "1", -1.0, 1.0,
        _recent("(bid - ask)/(bid + ask) of lots gone from the touch from row to row (all where its price gave way)")
        + "; 0 without",
        "queues at the touch: Cont and de Larrard 2013; ratio ours",
    ),
    Feature(
        "order_count_flux", "micro", "orders", -math.inf, math.inf,
        f"orders resting on ten levels a side, less those {RECENT_ROWS} rows ago or in the segment's first row",
        "ours",
    ),
    Feature(
        "intra_bar_momentum", "micro", "ticks", -math.inf, math.inf,
        f"mid less the first mid of its bar of {BAR_ROWS} rows, counted from the segment's first row; 0 without a mid",
        "ours",
    ),
    Feature(
        "regime_score", "micro", "1", 0.0, 1.0,
        _recent("|net change of the mid| / sum of its absolute one-row changes", REGIME_ROWS)
        + ": 1 a straight line, 0 no headway or no change",
        "efficiency ratio: Kaufman 1995",
    ),
    Feature(
        "ofi_trajectory", "micro", "lots/row", -math.inf, math.inf,
        _recent("least-squares slope of the touch OFI", OFI_ROWS) + "; 0 in its first row",
        "ordinary least squares",
    ),
    Feature(
        "ofi_touch", "ofi", "lots", -_LOTS, _LOTS, "order-flow imbalance of the best prices since the row before",
        "Cont, Kukanov, Stoikov 2014, eq. 4",
    ),
    Feature(
        "ofi_depth", "ofi", "lots", -_LOTS, _LOTS,
        "mean of the ten levels' order-flow imbalances since the row before, level k weighted by 1/(k + 1)",
        "multi-level OFI: Xu, Gould, Howison 2019; weights ours",
    ),
    Feature(
        "session_sin", "time", "1", -1.0, 1.0,
        "sine of the share of the 23 h trade day gone since 17:00 Chicago, as an angle", "CME Globex hours",
    ),
    Feature("session_cos", "time", "1", -1.0, 1.0, "cosine of the same angle", "CME Globex hours"),
    Feature(
        "event_age", "time", "ln(1 + ms)", 0.0, math.log1p(MAX_AGE_MS), "ln(1 + ts - ts_event), from 0 to one hour",
        "time since the last event",
    ),
    Feature(
        "trade_flow", "flow", "lots", -_LOTS, _LOTS,
        "lots bought less lots sold by aggressors since the row before", "signed trade volume",
    ),
)  # fmt: skip

_N_BOOK = 4 * LEVELS  # the features of price and size come first

# Snapshot columns that `compute` reads, with names as in contracts.tables.SNAPSHOTS.
COLUMNS = ("ts_event", *micro.COLUMNS)

_INDEX = {f.name: i for i, f in enumerate(FEATURES)}
# 2520 x 1/(k + 1) are integers, so a weighted sum of lots is exact before the one division
_DEPTH_WEIGHTS = tuple(2520 // (k + 1) for k in range(LEVELS))


def index(name: str) -> int:
    """Column of a feature in what `compute` returns."""
    return _INDEX[name]


def columns_of(group: Group) -> slice:
    """Columns of a group, which lie side by side."""
    inside = [i for i, f in enumerate(FEATURES) if f.group == group]
    return slice(inside[0], inside[-1] + 1)


def compute(columns: Mapping[str, torch.Tensor], segment: torch.Tensor) -> torch.Tensor:
    """float32 [n, len(FEATURES)] over a whole tape; finite, and within the bounds of the table, for any book.

    columns: the snapshot columns COLUMNS ([n], levels [n, 10]). segment: int32 [n], equal in the rows of a segment.
    """
    start = _starts(segment)
    out = torch.empty((segment.numel(), len(FEATURES)), dtype=torch.float32, device=segment.device)
    rows = block_rows(segment.device)
    for a in range(0, segment.numel(), rows):
        _fill(columns, start, a, out[a : a + rows])
    return out


def block_rows(device: torch.device) -> int:
    """Rows of a tape to work on at a time on a device; no bit of a row depends on it."""
    return BLOCK_ROWS if device.type == "cpu" else GPU_BLOCK_ROWS


def blocks(
    columns: Mapping[str, torch.Tensor], segment: torch.Tensor, ranges: Sequence[tuple[int, int]]
) -> Iterator[torch.Tensor]:
    """The rows of `compute` in tape row ranges, bit for bit, at most BLOCK_ROWS at a time.

    columns and segment are those of the whole tape: a row also reads up to LOOK_BACK rows before its range. A block
    is good until the next is asked for.
    """
    start = _starts(segment)
    out = torch.empty((BLOCK_ROWS, len(FEATURES)), dtype=torch.float32, device=segment.device)
    for first, last in ranges:
        for a in range(first, last, BLOCK_ROWS):
            block = out[: min(BLOCK_ROWS, last - a)]
            _fill(columns, start, a, block)
            yield block


def _starts(segment: torch.Tensor) -> torch.Tensor:
    """int64 [n]: first row of the segment each row lies in; a row outside every segment is its own first row."""
    rows = torch.arange(segment.numel(), device=segment.device)
    goes_on = torch.zeros(segment.numel(), dtype=torch.bool, device=segment.device)
    goes_on[1:] = (segment[1:] == segment[:-1]) & (segment[1:] != NO_SEGMENT)
    return torch.where(goes_on, 0, rows).cummax(0).values


def _fill(columns: Mapping[str, torch.Tensor], start: torch.Tensor, first: int, out: torch.Tensor) -> None:
    """Features of rows [first, first + m) into out, float32 [m, F]. columns, start: of the whole tape."""
    last, seen = first + len(out), max(0, first - LOOK_BACK)
    behind = {name: columns[name][seen:last] for name in micro.COLUMNS}
    own = {name: columns[name][first:last] for name in COLUMNS}
    scalars = {name: x[first - seen :] for name, x in micro.compute(behind, start[seen:last] - seen).items()}
    gaps = _gaps(own["bid_px"], own["ask_px"])
    sizes = own["bid_sz"].to(torch.float32), own["ask_sz"].to(torch.float32)
    out[:, :LEVELS], out[:, LEVELS : 2 * LEVELS] = gaps
    out[:, 2 * LEVELS : 3 * LEVELS], out[:, 3 * LEVELS : _N_BOOK] = map(torch.log1p, sizes)
    scalars |= {"weighted_book_pressure": micro.book_pressure(gaps, sizes), **_of_the_row(own)}
    for column, feature in enumerate(FEATURES[_N_BOOK:], _N_BOOK):
        out[:, column] = scalars[feature.name]


def _of_the_row(columns: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Order flow, time and trade flow, [n] by name."""
    angle = _session_angle(columns["ts"])
    age_ms = (columns["ts"] - columns["ts_event"]).to(torch.float64) / 1e6
    weights = torch.tensor(_DEPTH_WEIGHTS, dtype=torch.float64, device=angle.device)
    return {
        "ofi_touch": columns["ofi"][:, 0],
        "ofi_depth": columns["ofi"].to(torch.float64) @ weights / sum(_DEPTH_WEIGHTS),
        "session_sin": torch.sin(angle),
        "session_cos": torch.cos(angle),
        "event_age": torch.log1p(age_ms.clamp(0.0, MAX_AGE_MS)),
        "trade_flow": columns["buy_lots"].to(torch.int64) - columns["sell_lots"].to(torch.int64),
    }


def _gaps(bid_px: torch.Tensor, ask_px: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Distance of each level to the mid in ticks, float32 [n, 10] a side."""
    # float64 holds every half tick of an int32 price
    bid, ask = bid_px.to(torch.float64), ask_px.to(torch.float64)
    no_bid, no_ask = bid_px == ABSENT_PX, ask_px == ABSENT_PX
    # a lone side stands for both
    bid0 = torch.where(no_bid[:, 0], ask[:, 0], bid[:, 0])
    ask0 = torch.where(no_ask[:, 0], bid[:, 0], ask[:, 0])
    mid = ((bid0 + ask0) / 2)[:, None]

    def gap(ticks: torch.Tensor, absent: torch.Tensor) -> torch.Tensor:
        return ticks.clamp_(-ABSENT_GAP, ABSENT_GAP).masked_fill_(absent, ABSENT_GAP).to(torch.float32)

    return gap(mid - bid, no_bid), gap(ask - mid, no_ask)


_SECOND, _HOUR, _DAY = 1_000_000_000, 3_600 * 1_000_000_000, 86_400 * 1_000_000_000
_OPEN, _TRADE_DAY = 17 * _HOUR, 23 * _HOUR  # Globex opens at 17:00 Chicago and shuts 23 hours later


def _chicago_switches() -> list[int]:
    """Instants (ns UTC) at which Chicago enters and leaves summer time, 2007 to 2099.

    Second Sunday of March, 02:00 standard, to first Sunday of November, 02:00 summer time (Energy Policy Act of
    2005). A closed form, because a training box may have no time-zone database and tensors cannot ask one.
    """
    out = []
    for year in range(2007, 2100):
        for month, nth, hour in ((3, 2, 8), (11, 1, 7)):
            first_weekday, _ = calendar.monthrange(year, month)
            day = 1 + (calendar.SUNDAY - first_weekday) % 7 + 7 * (nth - 1)
            out.append(calendar.timegm(datetime(year, month, day, hour).timetuple()) * _SECOND)
    return out


_SWITCHES = torch.tensor(_chicago_switches(), dtype=torch.int64)


def _session_angle(ts: torch.Tensor) -> torch.Tensor:
    """2 pi x share of the trade day gone, float64 [n]; ts is int64 ns UTC from 2007 on."""
    switches_passed = torch.searchsorted(_SWITCHES.to(ts.device), ts.contiguous(), right=True)
    offset = torch.where(switches_passed % 2 == 1, -5 * _HOUR, -6 * _HOUR)
    since_open = torch.remainder(ts + offset - _OPEN, _DAY)
    return since_open.to(torch.float64) * (2 * torch.pi / _TRADE_DAY)
