"""The ten microstructure features: what the last rows of a segment say that the newest row alone does not.

Only arithmetic lives here; names, units, bounds and sources are rows of `features.FEATURES`. Every feature looks
back over a fixed number of rows, never beyond the first row of its segment, and uses what is there. So a row needs
LOOK_BACK rows before it and no more, and a tape may be cut anywhere. Sums over a window are differences of int64
running sums: exact, and the same on every device, in any order and from any cut.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch

from foxhunt_assets.contracts.tables import ABSENT_PX, LEVELS

RECENT_ROWS = 64  # 16 s at 250 ms: realised variance, spread, aggression, queue depletion, order count
REGIME_ROWS = 240  # a minute at 250 ms
BAR_ROWS = 240  # a bar, counted from the first row of the segment
OFI_ROWS = 32  # the window whose slope of order flow is the trajectory
HAWKES_DOUBLINGS = 9  # the kernel reaches over 2**9 rows: 128 s at 250 ms, where it is down to e**-25
HAWKES_MU, HAWKES_ALPHA, HAWKES_BETA = 0.2, 0.16, 0.2  # 1/s; in balance at one trade a second, memory of 5 s
LOOK_BACK = max(RECENT_ROWS, REGIME_ROWS, BAR_ROWS, OFI_ROWS, 2**HAWKES_DOUBLINGS)
MAX_MOVE = 128  # half ticks: the largest one-row move of the mid, and spread, told apart

# Snapshot columns that `compute` reads.
COLUMNS = ("ts", "bid_px", "ask_px", "bid_sz", "ask_sz", "bid_ct", "ask_ct", "buy_lots", "sell_lots", "n_trades", "ofi")


def compute(columns: Mapping[str, torch.Tensor], start: torch.Tensor) -> dict[str, torch.Tensor]:
    """The features that look back, float64 [n] by name: all of the group but the book pressure.

    columns: consecutive rows of a tape. start: int64 [n], first row of each row's segment, counted from the first
    row given (below 0 where it lies before). Rows whose look-back starts before the rows given are not defined.
    """
    rows = torch.arange(start.numel(), device=start.device)
    touch = _Touch(columns, rows > start)
    ofi = columns["ofi"][:, 0].to(torch.int64)
    bought, sold = columns["buy_lots"].to(torch.int64), columns["sell_lots"].to(torch.int64)
    traded, rested = bought + sold, (ofi - (bought - sold)).abs()
    step, lost_bid, lost_ask = touch.step, *touch.depleted()
    recent = torch.stack((step * step, touch.stepped, touch.spread, touch.there, traded, rested, lost_bid, lost_ask))
    squares, steps, spreads, present, taken, left, bid_gone, ask_gone = window_sums(recent, start, RECENT_ROWS)
    net, path = window_sums(torch.stack((step, step.abs())), start, REGIME_ROWS)
    return {
        "realized_variance": _ratio(squares, 4 * steps),
        "hawkes_intensity": hawkes(columns["n_trades"], columns["ts"], start),
        "spread_dynamics": (touch.spread - _ratio(spreads, present)) * touch.there / 2,
        "aggression_ratio": _ratio(taken, taken + left),
        "queue_depletion_asymmetry": _ratio(bid_gone - ask_gone, bid_gone + ask_gone),
        "order_count_flux": _order_count_flux(columns, start, rows),
        "intra_bar_momentum": _bar_momentum(touch, start, rows),
        "regime_score": _ratio(net.abs(), path),
        "ofi_trajectory": slope(ofi, start),
    }


def book_pressure(gaps: tuple[torch.Tensor, torch.Tensor], sizes: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    """(bid - ask) / (bid + ask) of size over distance to the mid, float32 [n]; 0 for an empty book.

    gaps, sizes: float32 [n, 10] of (bid, ask), ticks and lots; a distance counts as half a tick at least.
    """
    weighted = [size / gap.clamp_min(0.5) for gap, size in zip(gaps, sizes)]
    # level by level: a library's sum over ten columns has no stated order
    bid, ask = (sum((x[:, k] for k in range(1, LEVELS)), x[:, 0]) for x in weighted)
    return (bid - ask) / torch.where(bid + ask > 0, bid + ask, 1.0)


class _Touch:
    """Best prices row by row: half-tick mid, where there is one, its steps, and the queues.

    after: bool [n], the row before is there and of the same segment. All counts are int64 [n].
    """

    def __init__(self, columns: Mapping[str, torch.Tensor], after: torch.Tensor):
        self._after = after
        self._bid, self._ask = (columns[f"{side}_px"][:, 0].to(torch.int64) for side in ("bid", "ask"))
        self._queues = [columns[f"{side}_sz"][:, 0].to(torch.int64) for side in ("bid", "ask")]
        has_mid = (self._bid != ABSENT_PX) & (self._ask != ABSENT_PX) & (self._bid < self._ask)
        self.there = has_mid.to(torch.int64)
        self.mid = torch.where(has_mid, self._bid + self._ask, 0)
        self.spread = (2 * (self._ask - self._bid)).clamp_max(MAX_MOVE) * self.there  # half ticks
        both = after & has_mid & _before(has_mid)
        self.stepped = both.to(torch.int64)
        self.step = (self.mid - _before(self.mid)).clamp(-MAX_MOVE, MAX_MOVE) * self.stepped

    def depleted(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Lots gone from the (bid, ask) queue since the row before: all of it where its price gave way."""
        far = torch.where(self._ask == ABSENT_PX, -ABSENT_PX, self._ask)  # an absent ask lies above every price
        worse = (self._bid - _before(self._bid), _before(far) - far)
        out = []
        for moved, queue in zip(worse, self._queues):
            was = _before(queue)
            gone = torch.where(moved < 0, was, (was - queue).clamp_min(0) * (moved == 0))
            out.append(gone * self._after)
        return out[0], out[1]


def window_sums(x: torch.Tensor, start: torch.Tensor, rows: int) -> torch.Tensor:
    """int64 [m, n]: sum of x [m, n] int64 over the last `rows` rows of the segment, this row included.

    A running sum that overflows wraps, and so does the difference: the result is exact wherever it fits itself.
    """
    running = torch.nn.functional.pad(x.cumsum(1), (1, 0))
    return running[:, 1:] - running.index_select(1, _first(start, rows))


def hawkes(
    n_trades: torch.Tensor,
    ts: torch.Tensor,
    start: torch.Tensor,
    mu: float = HAWKES_MU,
    alpha: float = HAWKES_ALPHA,
    beta: float = HAWKES_BETA,
) -> torch.Tensor:
    """Intensity float64 [n], 1/s: mu + alpha sum_k n_trades_k exp(-beta (ts - ts_k)) over the last rows of the segment.

    n_trades: [n] arrivals known at ts, int64 [n] ns. Rows k: this one and the 2**HAWKES_DOUBLINGS - 1 before it.
    Hawkes 1971; the recursion A_i = d_i A_{i-1} + n_i of Ozaki 1979 as a scan that doubles its reach: after pass w,
    `total` holds the sum over 2w rows and `decay` the product over them, 0 once a segment's first row lies within.
    The order of operations of a row does not depend on where the rows are cut.
    """
    rows = torch.arange(start.numel(), device=start.device)
    seconds = (ts - _before(ts)).clamp_min(0).to(torch.float64) / 1e9
    decay = torch.where(rows > start, torch.exp(-beta * seconds), 0.0)
    total = n_trades.to(torch.float64)
    for doubling in range(HAWKES_DOUBLINGS):
        w = 2**doubling
        total[w:] += decay[w:] * total[:-w]
        decay = decay * _before(decay, w)
    return mu + alpha * total


def slope(y: torch.Tensor, start: torch.Tensor, rows: int = OFI_ROWS) -> torch.Tensor:
    """Least-squares slope of y (int64 [n]) on the row number over the last `rows` rows, float64 [n]; 0 for one row."""
    at = torch.arange(y.numel(), device=y.device)
    total, moment = window_sums(torch.stack((y, at * y)), start, rows)
    first = _first(start, rows)
    n = at - first + 1
    return _ratio(6 * (2 * moment - (first + at) * total), n * (n * n - 1))


def _order_count_flux(columns: Mapping[str, torch.Tensor], start: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """Orders resting on ten levels now, less those RECENT_ROWS rows ago or in the segment's first row."""
    # counts are whole numbers far below 2**53, so the product of a matrix with ones is exact in any order
    ones = torch.ones(LEVELS, dtype=torch.float64, device=rows.device)
    orders = (columns["bid_ct"] + columns["ask_ct"]).to(torch.float64) @ ones
    return orders - orders[torch.maximum(rows - RECENT_ROWS, start).clamp_min(0)]


def _bar_momentum(touch: _Touch, start: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """Mid less the first mid of the row's bar, ticks; 0 where the row has no mid."""
    opened = (rows - (rows - start) % BAR_ROWS).clamp_min(0)
    with_mid = touch.there.nonzero()[:, 0]
    if with_mid.numel() == 0:
        return torch.zeros(rows.numel(), dtype=torch.float64, device=rows.device)
    seen = touch.there.cumsum(0) - touch.there  # rows with a mid before each row
    first = with_mid[seen[opened].clamp_max(with_mid.numel() - 1)]
    return (touch.mid - touch.mid[first]) * touch.there / 2


def _first(start: torch.Tensor, rows: int) -> torch.Tensor:
    """First row of the window of `rows` rows that ends at each row: int64 [n]."""
    at = torch.arange(start.numel(), device=start.device)
    return torch.maximum(at - (rows - 1), start).clamp_min(0)


def _before(x: torch.Tensor, rows: int = 1) -> torch.Tensor:
    """x [n] as it stood `rows` rows ago; 0 where no such row is given."""
    return torch.cat((torch.zeros_like(x[:rows]), x[:-rows]))


def _ratio(top: torch.Tensor, bottom: torch.Tensor) -> torch.Tensor:
    """top / bottom in float64 of int64 counts; bottom is at least 0, and where it is 0 so is top."""
    return top.to(torch.float64) / bottom.clamp_min(1)
