"""Market orders of one step: what the book still holds for each account, fills, and the tally of what happened.

Assumes `partial_fill` within ten levels, `taken_stays_taken` (kernels.lob) and `no_impact` on the tape. An order
on a one-sided or crossed book is refused and counted, but a forced close must happen: there it fills at the last
touch the account saw on a sound book, and its lots are counted as beyond the book.
"""

from __future__ import annotations

from typing import NamedTuple

import torch

from foxhunt_assets.contracts.tables import ABSENT_PX
from foxhunt_assets.simulator.market_view import MarketView
from foxhunt_assets.simulator.state import Buffers
from kernels.lob import op as lob

COUNTS: tuple[str, ...] = (
    "orders", "fills", "fill_lots", "buy_lots", "rejected", "cancelled_lots", "forced_rest_lots", "levels_max",
    "slippage_half_ticks", "touch_fills", "lag_ns", "fee_cents", "cash_cents",
)  # fmt: skip


class Book(NamedTuple):
    """The book each account stands on, and what it knows beside it."""

    bid_px: torch.Tensor  # int32 [B, 10]
    ask_px: torch.Tensor
    bid_sz: torch.Tensor
    ask_sz: torch.Tensor
    low_bid: torch.Tensor  # int64 [B] ticks, or absent
    high_ask: torch.Tensor
    ts: torch.Tensor  # int64 [B]
    ts_event: torch.Tensor
    fee: torch.Tensor  # int64 [B] cents a lot
    sound: torch.Tensor  # bool [B], two-sided and not crossed or locked
    mark: torch.Tensor  # int64 [B] half ticks: the mid, or the last valid one where a touch is absent
    mark_valid: torch.Tensor  # bool [B], False while no mid was seen
    last_bid: torch.Tensor  # int64 [B], touches of this book, or of the last sound one
    last_ask: torch.Tensor


def read_book(market: MarketView, row: torch.Tensor, buffers: Buffers) -> Book:
    """The book of row (int64 [B]) for accounts whose last marks and touches are in buffers."""
    bid_px, ask_px = market.bid_px[row], market.ask_px[row]
    bid, ask = bid_px[:, 0], ask_px[:, 0]
    mid, two_sided = lob.mid_half_ticks(bid, ask, ABSENT_PX)
    sound = two_sided & (bid < ask)
    return Book(
        bid_px=bid_px,
        ask_px=ask_px,
        bid_sz=market.bid_sz[row],
        ask_sz=market.ask_sz[row],
        low_bid=market.low_bid_px[row].to(torch.int64),
        high_ask=market.high_ask_px[row].to(torch.int64),
        ts=market.ts[row],
        ts_event=market.ts_event[row],
        fee=market.fee_cents[row],
        sound=sound,
        mark=torch.where(two_sided, mid, buffers["acct_mark_half_ticks"]),
        mark_valid=two_sided | buffers["acct_mark_valid"],
        last_bid=torch.where(sound, bid.to(torch.int64), buffers["acct_last_bid"]),
        last_ask=torch.where(sound, ask.to(torch.int64), buffers["acct_last_ask"]),
    )


class Execution(NamedTuple):
    """What O orders of an account filled, one after the other. The last of the L + 1 places is beyond the book."""

    lots: torch.Tensor  # int64 [B, O]
    tick_lots: torch.Tensor  # int64 [B, O]
    lots_at: torch.Tensor  # int64 [B, O, L + 1], in order of filling
    px_at: torch.Tensor  # int64 [B, O, L + 1] ticks
    reached: torch.Tensor  # bool [B, O], the order reached the book


def deal(wanted: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
    """int64 [B, O, P]: lots at places ([B, P], in order of filling) dealt to takers of wanted [B, O], first come first.

    Each side is a row of intervals laid end to end; what a taker gets of a place is where they overlap.
    """
    taker_end, place_end = wanted.cumsum(1), places.cumsum(1)
    end = torch.minimum(taker_end[:, :, None], place_end[:, None, :])
    start = torch.maximum((taker_end - wanted)[:, :, None], (place_end - places)[:, None, :])
    return (end - start).clamp(min=0)


class Desk:
    """Sends the orders of one step, in turn, against one book an account; keeps memory and tally between them."""

    def __init__(self, book: Book, buffers: Buffers, tick_cents: int):
        self.book, self.tick_cents = book, tick_cents
        self.bid_left, self.bid_memory = lob.available(memory_of(buffers, "bid"), book.bid_px, book.bid_sz)
        self.ask_left, self.ask_memory = lob.available(memory_of(buffers, "ask"), book.ask_px, book.ask_sz)
        zero = torch.zeros_like(book.ts)
        self.count: dict[str, torch.Tensor] = dict.fromkeys(COUNTS, zero)
        self.touch_take = torch.zeros(zero.shape, dtype=torch.float64, device=zero.device)

    def send(
        self,
        side: torch.Tensor,
        lots: torch.Tensor,
        decided_ts: torch.Tensor,
        force: bool = False,
        stop: torch.Tensor | None = None,
    ) -> Execution:
        """O orders of an account on one side, the first one first.

        side: int64 [B], +1 buys. lots: int64 [B, O], 0 sends nothing. decided_ts: int64 [B], ts of the decision's book.
        force: every lot fills. stop: int64 [B, O] ticks; a lot fills at the worse of it and the book.
        """
        book = self.book
        buys = (side > 0)[:, None]
        px, left = torch.where(buys, book.ask_px, book.bid_px), torch.where(buys, self.ask_left, self.bid_left)
        forced, total = torch.full_like(book.sound, force), torch.where(side != 0, lots.sum(1), 0)
        fill = lob.fill(torch.where(book.sound, side, 0), total, px, left, forced, ABSENT_PX)
        self._remember(fill.per_level, buys)
        off_book = forced & ~book.sound & (total > 0)
        beyond = torch.where(off_book, total, fill.forced_rest)
        lots_at = deal(lots, torch.cat([fill.per_level, beyond[:, None]], 1))
        px_at = self._prices(buys, px, fill, off_book)[:, None, :]
        if stop is not None:
            px_at = torch.where(buys[:, :, None], px_at.maximum(stop[:, :, None]), px_at.minimum(stop[:, :, None]))
        reached = (lots > 0) & (side != 0)[:, None] & (book.sound | forced)[:, None]
        done = Execution(lots_at.sum(2), (px_at * lots_at).sum(2), lots_at, px_at.expand_as(lots_at), reached)
        levels = torch.where(off_book, 1, fill.levels_consumed)
        self._tally(side, torch.where((side != 0)[:, None], lots, 0), decided_ts, done, levels)
        return done

    def _prices(self, buys: torch.Tensor, px: torch.Tensor, fill: lob.Fill, off_book: torch.Tensor) -> torch.Tensor:
        """int64 [B, L + 1] ticks: the levels, then what lots beyond the book pay."""
        on_book = (px * fill.per_level).sum(1)
        deepest = (fill.tick_lots - on_book) // fill.forced_rest.clamp(min=1)
        last_touch = torch.where(buys[:, 0], self.book.last_ask, self.book.last_bid)
        return torch.cat([px.to(torch.int64), torch.where(off_book, last_touch, deepest)[:, None]], 1)

    def _remember(self, per_level: torch.Tensor, buys: torch.Tensor) -> None:
        bought, sold = torch.where(buys, per_level, 0), torch.where(buys, 0, per_level)
        self.ask_memory, self.bid_memory = lob.take(self.ask_memory, bought), lob.take(self.bid_memory, sold)
        self.ask_left = self.ask_left - bought.to(torch.int32)
        self.bid_left = self.bid_left - sold.to(torch.int32)

    def _tally(
        self, side: torch.Tensor, asked: torch.Tensor, decided_ts: torch.Tensor, done: Execution, levels: torch.Tensor
    ) -> None:
        book, filled = self.book, done.lots > 0
        lots, tick_lots, fills = done.lots.sum(1), done.tick_lots.sum(1), filled.sum(1)
        touch = torch.where(side > 0, book.ask_sz[:, 0], book.bid_sz[:, 0]).to(torch.int64)
        shown = book.sound & (touch > 0)
        fees = lots * book.fee
        self.add("orders", done.reached.sum(1))
        self.add("fills", fills)
        self.add("fill_lots", lots)
        self.add("buy_lots", torch.where(side > 0, lots, 0))
        self.add("rejected", ((asked > 0) & ~done.reached).sum(1))
        self.add("cancelled_lots", torch.where(done.reached, asked - done.lots, 0).sum(1))
        self.add("forced_rest_lots", done.lots_at[:, :, -1].sum(1))
        self.add("slippage_half_ticks", side * (2 * tick_lots - lots * book.mark))
        self.add("touch_fills", torch.where(shown, fills, 0))
        self.add("lag_ns", fills * (book.ts_event - decided_ts))
        self.add("fee_cents", fees)
        self.add("cash_cents", -side * tick_lots * self.tick_cents - fees)
        self.count["levels_max"] = self.count["levels_max"].maximum(levels)
        self.touch_take = self.touch_take + torch.where(shown, lots.to(torch.float64) / touch.clamp(min=1), 0.0)

    def add(self, name: str, value: torch.Tensor) -> None:
        self.count[name] = self.count[name] + value


def memory_of(buffers: Buffers, side: str) -> lob.Memory:
    return lob.Memory(*(buffers[f"acct_taken_{side}_{field}"] for field in ("px", "lots", "sz")))


def store_memory(buffers: Buffers, side: str, memory: lob.Memory) -> None:
    """Keep what was taken; a place where nothing was is as empty as at the start, whatever the book showed there."""
    taken = memory.taken_lots > 0
    buffers[f"acct_taken_{side}_px"].copy_(torch.where(taken, memory.taken_px, ABSENT_PX))
    buffers[f"acct_taken_{side}_lots"].copy_(memory.taken_lots)
    buffers[f"acct_taken_{side}_sz"].copy_(torch.where(taken, memory.taken_sz, 0))
