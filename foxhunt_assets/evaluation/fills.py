"""Fills held against real trades: what the simulator's fill rule gives a real aggressor on the book just before it.

Each trade of an MBO file is one aggressor taking one price. It is replayed as a market order of its size, with
`kernels.lob.fill`, on the ten levels that stood at the last event end before it. Trades of one event and side are one
order that goes on: a trade finds what those before it have left. The file must hold one instrument and start from a
whole book.

A trade differs from its replay for the reasons in REASONS, and the rates say how far a simulator may be believed that
knows displayed levels and nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import torch

from foxhunt_assets.errors import BadInput
from foxhunt_assets.market.dbn import F_LAST, DbnReader
from foxhunt_assets.market.snapshot_folder import values
from kernels.lob import op as lob

REASONS: dict[str, str] = {
    "match": "same lots at the same price",
    "no_side": "an auction trade (side N): it has no aggressor",
    "unsound_book": "the book before it is crossed, locked or one-sided: the simulator sends nothing there",
    "more_than_displayed": "more traded at its price than was displayed: a resting order showed a part of its size "
    "(an iceberg); the simulator goes on to the next price",
    "less_than_displayed": "traded at a worse price while a better one was displayed: the order passed it by, as the "
    "venue does that cancels a resting order instead of matching it with its own owner",
    "better_than_displayed": "traded at a better price than was displayed",
}
_BUY, _SELL, _TRADE = ord("B"), ord("A"), ord("T")


@dataclass(frozen=True)
class Replay:
    """One row a trade, in file order: int64 [n] unless said otherwise. Prices in ticks."""

    record: np.ndarray  # index in the file
    side: np.ndarray  # +1 buys, -1 sells, 0 auction
    lots: np.ndarray
    price: np.ndarray
    filled: np.ndarray  # lots the simulator fills
    tick_lots: np.ndarray  # sum of price x lots over them
    reason: np.ndarray  # index into REASONS

    @property
    def lot_rate(self) -> float:
        """Share of trades whose lots all fill."""
        return float((self.filled == self.lots).mean())

    @property
    def price_rate(self) -> float:
        """Share of trades that fill whole at the traded price."""
        return float((self.reason == 0).mean())

    @property
    def mean_error_ticks(self) -> float:
        """Mean of the simulated price less the traded one over filled lots, in ticks against the aggressor."""
        worse = self.side * (self.tick_lots - self.price * self.filled)
        return float(worse.sum() / self.filled.sum())

    def counts(self) -> dict[str, int]:
        """Trades by reason."""
        return {name: int((self.reason == n).sum()) for n, name in enumerate(REASONS)}


def replay(path: Path, rows: pa.Table, tick: int) -> Replay:
    """Replay the trades of an MBO file. rows: its snapshots on the event clock. tick: 1e-9 points."""
    record, side, lots, price, event = _trades(path, tick)
    book = np.searchsorted(rows["source_row"].to_numpy(), record) - 1  # the last event end before the trade
    if not len(record) or (book < 0).any():
        raise BadInput(f"{path}: no trade, or no book before one; replay a file that opens with a whole book")
    bid, ask = _levels(rows, "bid_px", book), _levels(rows, "ask_px", book)
    px = np.where(side[:, None] > 0, ask, bid)
    sz = np.where(side[:, None] > 0, _levels(rows, "ask_sz", book), _levels(rows, "bid_sz", book))
    taken = _taken_before(event, side, lots)
    filled, tick_lots, per_level = (
        after - before for after, before in zip(_fill(side, taken + lots, px, sz), _fill(side, taken, px, sz))
    )
    sound = (bid[:, 0] != lob.ABSENT) & (ask[:, 0] != lob.ABSENT) & (bid[:, 0] < ask[:, 0])
    filled, tick_lots = filled * sound, tick_lots * sound
    same = (filled == lots) & (tick_lots == price * lots)
    first = px[np.arange(len(px)), (per_level > 0).argmax(1)]  # best price the replay reaches
    away = side * (price - first)
    names = list(REASONS)
    reason = np.select(
        [side == 0, ~sound, same, away > 0, away < 0],
        [names.index(n) for n in ("no_side", "unsound_book", "match", "less_than_displayed", "better_than_displayed")],
        names.index("more_than_displayed"),
    )
    return Replay(record, side, lots, price, filled, tick_lots, reason)


def _trades(path: Path, tick: int) -> tuple[np.ndarray, ...]:
    """Of each trade: record, side, lots, price in ticks, number of event ends before it."""
    parts, events = [], 0
    with DbnReader(path) as reader:
        if reader.header.schema != "mbo":
            raise BadInput(f"{path}: schema {reader.header.schema}; a replay of trades needs an MBO file")
        first = 0
        for octets in reader.batches():
            r = octets.view(reader.header.dtype)[:, 0]
            ends = np.cumsum((r["flags"] & F_LAST) > 0)
            at = np.flatnonzero((r["action"] == _TRADE) & (r["size"] > 0))
            t = r[at]
            side = (t["side"] == _BUY).astype(np.int64) - (t["side"] == _SELL)
            lots, price = t["size"].astype(np.int64), t["price"] // tick
            parts.append((first + at, side, lots, price, events + ends[at] - ((t["flags"] & F_LAST) > 0)))
            first, events = first + len(r), events + int(ends[-1])
    return tuple(np.concatenate(column) for column in zip(*parts, strict=True))


def _levels(rows: pa.Table, name: str, at: np.ndarray) -> np.ndarray:
    return np.concatenate([values(chunk) for chunk in rows[name].chunks])[at]


def _taken_before(event: np.ndarray, side: np.ndarray, lots: np.ndarray) -> np.ndarray:
    """Lots that earlier trades of the same event and side took."""
    taken = np.zeros_like(lots)
    sums: dict[tuple[int, int], int] = {}
    for i, (key, n) in enumerate(zip(zip(event.tolist(), side.tolist()), lots.tolist(), strict=True)):
        taken[i] = sums.get(key, 0)
        sums[key] = taken[i] + n
    return taken


def _fill(side: np.ndarray, lots: np.ndarray, px: np.ndarray, sz: np.ndarray) -> tuple[np.ndarray, ...]:
    """(filled, tick_lots, per_level) of market orders that nobody forces."""
    asked, held, prices, sizes = (torch.from_numpy(np.ascontiguousarray(a)) for a in (side, lots, px, sz))
    fill = lob.fill(asked, held, prices, sizes, torch.zeros(len(side), dtype=torch.bool))
    return fill.filled.numpy(), fill.tick_lots.numpy(), fill.per_level.numpy()
