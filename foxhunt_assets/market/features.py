"""The features of a snapshot: one table names them all, one function computes them row by row.

`FEATURES` is the only place that says what a feature is, and its length is the width F everywhere. `compute`
reads nothing but its own row, so no feature can look ahead; what happened since the row before is already in the
row (trades, order flow). Values are raw: `norm` scales them.
"""

from __future__ import annotations

import calendar
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

import torch

from foxhunt_assets.contracts.tables import ABSENT_PX, LEVELS

ABSENT_GAP = 64.0  # ticks: the gap of a level that is not there, and the largest gap told apart
MAX_AGE_MS = 3_600_000.0  # an event older than an hour says no more than one an hour old
Group = Literal["price", "size", "ofi", "time", "flow"]


@dataclass(frozen=True)
class Feature:
    """One feature. unit: of the raw value. source: where the formula comes from."""

    name: str
    group: Group
    unit: str
    definition: str
    source: str


_BOOK = "the book itself"
_GAP = (
    "{sign}, in ticks, within +-64; 64 where the level is absent; where the other side is empty the mid is "
    "replaced by the side's own best price"
)
FEATURES: tuple[Feature, ...] = (
    *(Feature(f"bid_gap_{k}", "price", "ticks", _GAP.format(sign=f"mid - bid {k}"), _BOOK) for k in range(LEVELS)),
    *(Feature(f"ask_gap_{k}", "price", "ticks", _GAP.format(sign=f"ask {k} - mid"), _BOOK) for k in range(LEVELS)),
    *(Feature(f"bid_size_{k}", "size", "ln(1 + lots)", f"ln(1 + size of bid {k})", _BOOK) for k in range(LEVELS)),
    *(Feature(f"ask_size_{k}", "size", "ln(1 + lots)", f"ln(1 + size of ask {k})", _BOOK) for k in range(LEVELS)),
    Feature(
        "ofi_touch", "ofi", "lots", "order-flow imbalance of the best prices since the row before",
        "Cont, Kukanov, Stoikov 2014, eq. 4",
    ),
    Feature(
        "session_sin", "time", "1", "sine of the share of the 23 h trade day gone since 17:00 Chicago, as an angle",
        "CME Globex hours",
    ),
    Feature("session_cos", "time", "1", "cosine of the same angle", "CME Globex hours"),
    Feature(
        "event_age", "time", "ln(1 + ms)", "ln(1 + ts - ts_event), from 0 to one hour", "time since the last event"
    ),
    Feature(
        "trade_flow", "flow", "lots", "lots bought less lots sold by aggressors since the row before",
        "signed trade volume",
    ),
)  # fmt: skip

# Snapshot columns that `compute` reads, with names as in contracts.tables.SNAPSHOTS.
COLUMNS = ("ts_event", "ts", "bid_px", "ask_px", "bid_sz", "ask_sz", "buy_lots", "sell_lots", "ofi")

_INDEX = {f.name: i for i, f in enumerate(FEATURES)}


def index(name: str) -> int:
    """Column of a feature in what `compute` returns."""
    return _INDEX[name]


def compute(columns: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """float32 [n, len(FEATURES)] from the snapshot columns COLUMNS ([n], levels [n, 10]); finite for any book."""
    bid_gap, ask_gap = _gaps(columns["bid_px"], columns["ask_px"])
    angle = _session_angle(columns["ts"])
    age_ms = (columns["ts"] - columns["ts_event"]).to(torch.float64) / 1e6
    scalars = (
        columns["ofi"][:, 0],
        torch.sin(angle),
        torch.cos(angle),
        torch.log1p(age_ms.clamp(0.0, MAX_AGE_MS)),
        columns["buy_lots"].to(torch.int64) - columns["sell_lots"].to(torch.int64),
    )
    sizes = (torch.log1p(columns[f"{side}_sz"].to(torch.float32)) for side in ("bid", "ask"))
    return torch.cat((bid_gap, ask_gap, *sizes, *(s.to(torch.float32)[:, None] for s in scalars)), dim=1)


def _gaps(bid_px: torch.Tensor, ask_px: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Distance of each level to the mid in ticks, float32 [n, 10] a side."""
    bid, ask = bid_px.to(torch.int64), ask_px.to(torch.int64)
    has_bid, has_ask = bid[:, :1] != ABSENT_PX, ask[:, :1] != ABSENT_PX
    # in half ticks a mid is the integer bid + ask; a lone side stands for both
    bid0 = torch.where(has_bid, bid[:, :1], ask[:, :1])
    ask0 = torch.where(has_ask, ask[:, :1], bid[:, :1])
    mid = bid0 + ask0

    def gap(half_ticks: torch.Tensor, px: torch.Tensor) -> torch.Tensor:
        ticks = (half_ticks.to(torch.float32) / 2).clamp(-ABSENT_GAP, ABSENT_GAP)
        return torch.where(px == ABSENT_PX, torch.full_like(ticks, ABSENT_GAP), ticks)

    return gap(mid - 2 * bid, bid), gap(2 * ask - mid, ask)


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
