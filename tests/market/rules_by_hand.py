"""The rules of snapshot rows a second time, over whole columns with numpy: the oracle of the compiled pass."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from foxhunt_assets.contracts.tables import ABSENT_PX, NO_SEGMENT
from foxhunt_assets.market.row_rules import Table

Columns = Mapping[str, np.ndarray]


def first_broken(c: Columns, grid: int, by_series: bool, table: Table) -> str:
    """What `RowRules.first_broken` should say of a whole file in one batch."""
    at = np.arange(len(c["ts"]))
    segment = np.searchsorted(table.end, at, side="right")
    inside = (segment < len(table.end)) & (at >= np.append(table.start, 0)[segment])
    painted = np.where(inside, segment, NO_SEGMENT)
    for part in (_rows(c, grid, by_series), _places(c, grid, painted, table.instrument_id), _books(c)):
        for text, wrong in part:
            if wrong.any():
                return f"row {int(wrong.argmax())}: {text} ({int(wrong.sum())} such rows of a batch)"
    return ""


def _rows(c: Columns, grid: int, by_series: bool) -> Iterator[tuple[str, np.ndarray]]:
    step, rows = _change(c["ts"]), _change(c["source_row"])
    same = (_change(c["instrument_id"]) == 0) | (not by_series)
    yield "ts does not rise", same & (step < 0 if grid == 0 else step <= 0)
    if grid:
        yield f"ts is no multiple of {grid} ns", c["ts"] % grid != 0
    yield "received after its ts", c["ts_recv"] > c["ts"]
    yield "source_row falls", same & (rows < 0)
    for name in ("buy_lots", "sell_lots", "n_trades", "n_events"):
        yield f"{name} is negative", c[name] < 0
    lots = c["buy_lots"].astype(np.int64) + c["sell_lots"]
    yield "trades without an event", (c["n_trades"] > 0) & (c["n_events"] == 0)
    yield "lots without a trade", (lots > 0) & (c["n_trades"] == 0)
    yield "unknown action", ~np.isin(c["action"], np.frombuffer(b"ACMTFN", np.uint8))


def _places(c: Columns, grid: int, painted: np.ndarray, ids: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    yield "another segment than the table says", c["segment"] != painted
    inside = painted >= 0
    yield "another instrument than its segment's", inside & (c["instrument_id"] != np.append(ids, 0)[painted])
    if grid:
        goes_on = inside & (_change(c["segment"]) == 0)
        yield f"not {grid} ns after the row before", goes_on & (_change(c["ts"]) != grid)


def _change(column: np.ndarray) -> np.ndarray:
    """How much each value lies above the one before it; the very first counts as a rise of one."""
    wide = column.astype(np.int64)
    return np.diff(wide, prepend=wide[0] - 1)


def _books(c: Columns) -> Iterator[tuple[str, Any]]:
    for side, sign in (("bid", 1), ("ask", -1)):
        px, sz, ct = c[f"{side}_px"], c[f"{side}_sz"], c[f"{side}_ct"]
        there = px != ABSENT_PX
        yield f"{side} size or count is negative", ((sz < 0) | (ct < 0)).any(axis=1)
        yield f"absent {side} level with size or count", (~there & ((sz != 0) | (ct != 0))).any(axis=1)
        yield f"absent {side} level before one that is there", (there[:, 1:] & ~there[:, :-1]).any(axis=1)
        ordered = sign * px[:, :-1].astype(np.int64) > sign * px[:, 1:].astype(np.int64)
        yield f"{side} prices are not best first", (there[:, 1:] & there[:, :-1] & ~ordered).any(axis=1)
        yield f"{side} price beyond 2^30 ticks", (there & (np.abs(px.astype(np.int64)) >= 2**30)).any(axis=1)
    bid, ask, low, high = c["bid_px"][:, 0], c["ask_px"][:, 0], c["low_bid_px"], c["high_ask_px"]
    yield "low_bid_px above the best bid", (bid != ABSENT_PX) & ((low > bid) | (low == ABSENT_PX))
    yield "high_ask_px below the best ask", (ask != ABSENT_PX) & ((high < ask) | (high == ABSENT_PX))
