"""Small tapes for the simulator tests: hand-made rows and random markets that also misbehave."""

from __future__ import annotations

import numpy as np
import torch

from foxhunt_assets.contracts.tables import ABSENT_PX, LEVELS
from foxhunt_assets.simulator.market_view import MarketView
from foxhunt_assets.simulator.state import specs

GRID_NS = 250_000_000
EVENT_AGE_NS = 1_000_000  # the last event of every row is this old
_NAMES = ("bid_px", "ask_px", "bid_sz", "ask_sz", "low_bid_px", "high_ask_px", "ts", "segment", "fee_cents")


def view(tape, tick_cents=1250):
    columns = {name: torch.from_numpy(np.ascontiguousarray(tape[name])) for name in _NAMES}
    return MarketView(**columns, ts_event=columns["ts"] - EVENT_AGE_NS, tick_cents=tick_cents)


def buffers(accounts, env):
    return {s.name: torch.full(s.shape, s.fill, dtype=getattr(torch, s.dtype)) for s in specs(accounts, env)}


def tape(books, fee=225, segments=None):
    """A tape of hand-made rows. books: ((bid levels), (ask levels)) a row, a level is (price, size), best first.

    A row may carry a third entry, (lowest bid, highest ask); without it they are the row's own touches.
    """
    n = len(books)
    out = {
        **{f"{s}_px": np.full((n, LEVELS), ABSENT_PX, np.int32) for s in ("bid", "ask")},
        **{f"{s}_sz": np.zeros((n, LEVELS), np.int32) for s in ("bid", "ask")},
        **{name: np.full(n, ABSENT_PX, np.int32) for name in ("low_bid_px", "high_ask_px")},
        "ts": np.arange(n, dtype=np.int64) * GRID_NS,
        "segment": np.zeros(n, np.int32) if segments is None else np.array(segments, np.int32),
        "fee_cents": np.full(n, fee, np.int64),
    }
    for row, book in enumerate(books):
        for side, levels in zip(("bid", "ask"), book):
            for place, (px, sz) in enumerate(levels):
                out[f"{side}_px"][row, place], out[f"{side}_sz"][row, place] = px, sz
        extremes = book[2] if len(book) > 2 else (out["bid_px"][row, 0], out["ask_px"][row, 0])
        out["low_bid_px"][row], out["high_ask_px"][row] = extremes
    return out


def random_tape(rng, rows=260):
    """(tape, ranges, segment ends): thin books, gaps between levels, jumps, crossed and one-sided rows."""
    steps = rng.choice([-6, -1, 0, 0, 1, 6], rows, p=[0.02, 0.2, 0.38, 0.18, 0.2, 0.02])
    mid, books = 20_000 + np.cumsum(steps), []
    sizes = {s: rng.integers(1, 4, LEVELS) for s in ("bid", "ask")}
    for row in range(rows):
        sides = []
        for name, way in (("bid", -1), ("ask", 1)):
            moved = rng.random(LEVELS) < 0.3  # most sizes stay, so that taken lots stay taken
            sizes[name] = np.where(moved, rng.integers(1, 4, LEVELS), sizes[name])
            gaps = np.cumsum(rng.choice([1, 1, 2], LEVELS))
            px = mid[row] + way * gaps - (way < 0) * -1
            depth = rng.choice([1, 2, LEVELS], p=[0.1, 0.1, 0.8])
            sides.append([(int(p), int(s)) for p, s in zip(px[:depth], sizes[name][:depth])])
        odd = rng.random()
        if odd < 0.04:
            sides[rng.integers(2)] = []
        elif odd < 0.08 and sides[1]:
            sides[1] = [(p - 4, s) for p, s in sides[1]]  # crossed
        low = min([p for p, _ in sides[0][:1]], default=ABSENT_PX)
        high = max([p for p, _ in sides[1][:1]], default=ABSENT_PX)
        extremes = (
            low if low == ABSENT_PX else low - int(rng.integers(4)),
            high if high == ABSENT_PX else high + int(rng.integers(4)),
        )
        books.append((*sides, extremes))
    segments = np.repeat([0, 1, -1, 2], [rows // 3, rows // 4, 7, rows])[:rows]
    out = tape(books, segments=segments)
    out["fee_cents"][rows // 2 :] = 231
    first, second = rows // 3, rows // 3 + rows // 4
    ranges = [(0, first), (first, second - 5), (second + 7, rows)]
    ends = [(first, "session"), (second, "gap"), (second + 7, "none"), (rows, "file")]
    return out, ranges, ends
