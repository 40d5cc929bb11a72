"""The orders of one step, in their fixed sequence: trailing stops, the policy's order, forced closes, marks."""

from __future__ import annotations

import torch

from foxhunt_assets.contracts.tables import ABSENT_PX
from foxhunt_assets.simulator.actions import HOLD, LARGE_ENTRIES, LONG_ENTRIES, SHORT_ENTRIES
from foxhunt_assets.simulator.config import EnvConfig
from foxhunt_assets.simulator.legal import (
    FLAT_FROM_LONG,
    FLAT_FROM_SHORT,
    HALF_LONG,
    HALF_SHORT,
    LOOSEN,
    TIGHTEN,
    half_lots,
)
from foxhunt_assets.simulator.orders import Book, Desk, Execution
from foxhunt_assets.simulator.state import Buffers, Units, load_units
from foxhunt_assets.simulator.units import PNL, REASONS, Close, close_lots, deal_to_units, follow, open_unit, stop_px

_POLICY, _TRAIL = REASONS.index("policy"), REASONS.index("trail")


class AccountStep:
    """Units, side and money of B accounts while one step works on them; the buffers are read, never written.

    step: int64 [1]. decided_ts: int64 [B], ts of the row the accounts stand on when the step begins.
    """

    def __init__(
        self,
        env: EnvConfig,
        tick_cents: int,
        book: Book,
        buffers: Buffers,
        step: torch.Tensor,
        decided_ts: torch.Tensor,
    ):
        self.env, self.tick_cents, self.book = env, tick_cents, book
        self.decided_ts = decided_ts
        self.units, self.side = load_units(buffers), buffers["acct_side"]
        self.desk = Desk(book, buffers, tick_cents)
        self.zero = torch.zeros_like(self.side)
        self.step = self.zero + step
        self.realised = self.zero
        self.rows: list[torch.Tensor] = []
        self.masks: list[torch.Tensor] = []
        self.policy_orders = self.units_added = self.closed_singly = self.tightened = self.loosened = self.zero
        self.flat_between = self.side == 0  # flat at some time since the step began
        self.effective = torch.zeros_like(self.flat_between)

    @property
    def lots(self) -> torch.Tensor:
        """int64 [B], open lots, unsigned."""
        return self.units.lots.sum(1)

    @property
    def signed_lots(self) -> torch.Tensor:
        return self.side * self.lots

    def stops(self) -> None:
        """Test the trailing stops against the interval's lowest bid / highest ask; each unit is an order of its own.

        A touched stop stays triggered until its lots are gone, whatever the price does meanwhile.
        """
        book, long = self.book, (self.side > 0)[:, None]
        stop = stop_px(self.units, self.side)
        low, high = book.low_bid[:, None], book.high_ask[:, None]
        touched = torch.where(long, (low <= stop) & (low != ABSENT_PX), (high >= stop) & (high != ABSENT_PX))
        fires = self.units.active & (touched | self.units.triggered)
        self.units = self.units._replace(triggered=fires)
        done = self.desk.send(-self.side, torch.where(fires, self.units.lots, 0), self.decided_ts, stop=stop)
        single = self._close(done.lots, done.tick_lots, self.zero + _TRAIL, self.zero + HOLD)
        self.closed_singly = self.closed_singly + single

    def policy(self, due: torch.Tensor, signs: torch.Tensor, decided_ts: torch.Tensor) -> None:
        """Carry out the action due, int64 [B], on the account as it is now; decided_ts: int64 [B] of its decision."""
        wanted = _among(due, LONG_ENTRIES).to(torch.int64) - _among(due, SHORT_ENTRIES).to(torch.int64)
        enters = (wanted != 0) & ((self.side == 0) | (self.side == wanted))
        room = self.units.number < self.env.max_units
        size = torch.where(_among(due, LARGE_ENTRIES), self.env.lots_large, self.env.lots_small)
        closes = ((wanted != 0) & (self.side == -wanted)) | self._on_side(due, FLAT_FROM_LONG, FLAT_FROM_SHORT)
        halves = self._on_side(due, HALF_LONG, HALF_SHORT)
        lots = torch.where(enters & room, size, 0)
        lots = torch.where(closes, self.lots, torch.where(halves, half_lots(self.lots), lots))
        intent = (wanted != 0) | _among(due, (FLAT_FROM_LONG, FLAT_FROM_SHORT, HALF_LONG, HALF_SHORT))
        self.desk.add("rejected", intent & (lots == 0))
        done = self.desk.send(torch.where(enters, wanted, -self.side), lots[:, None], decided_ts)
        reached = done.reached[:, 0]
        self.policy_orders = reached.to(torch.int64)
        self._take_off(done, closes | halves, due, halves)
        self._put_on(done, enters, wanted, due, signs)
        self._move_trails(due)
        self.effective = reached | (self.tightened + self.loosened > 0)

    def flatten(self, reason: torch.Tensor, due: torch.Tensor) -> None:
        """Close everything where reason (int64 [B], index into REASONS) is not 0."""
        lots = torch.where(reason > 0, self.lots, 0)
        done = self.desk.send(-self.side, lots[:, None], self.decided_ts, force=True)
        self._close(*deal_to_units(self.units, done), reason, due)

    def follow_touch(self) -> None:
        """Let the trails follow the touch of this book, after the stops were tested."""
        touch = torch.where(self.side > 0, self.book.last_bid, self.book.last_ask)
        self.units = follow(self.units, self.side, touch, self.book.sound)

    def open_cents(self) -> torch.Tensor:
        """int64 [B]: open pnl at the mark, net of the entry fees still open; half a cent is rounded down."""
        value = (self.signed_lots * self.book.mark * self.tick_cents) // 2
        cost = self.side * self.units.open_tick_lots.sum(1) * self.tick_cents
        return value - cost - self.units.open_fee.sum(1)

    def _on_side(self, due: torch.Tensor, of_long: int, of_short: int) -> torch.Tensor:
        return ((due == of_long) & (self.side > 0)) | ((due == of_short) & (self.side < 0))

    def _take_off(self, done: Execution, where: torch.Tensor, due: torch.Tensor, halves: torch.Tensor) -> None:
        taken, exit_tick_lots = deal_to_units(self.units, done)
        off = where[:, None]
        single = self._close(taken * off, exit_tick_lots * off, self.zero + _POLICY, due)
        self.closed_singly = self.closed_singly + single * halves

    def _put_on(
        self, done: Execution, enters: torch.Tensor, wanted: torch.Tensor, due: torch.Tensor, signs: torch.Tensor
    ) -> None:
        lots, tick_lots = done.lots, done.tick_lots  # [B, 1]: one order, one slot
        opened = enters & (lots[:, 0] > 0)
        self.units_added = (opened & (self.units.number > 0)).to(torch.int64)
        env, floats = self.env, torch.zeros_like(self.units.trail_distance[:, :1])
        distance = min(max(env.initial_r_ticks * env.trail_initial_mult, env.trail_min_ticks), env.trail_max_ticks)
        fee = lots * self.book.fee[:, None]
        unit = Units(
            lots=lots,
            entry_lots=lots,
            entry_step=self.step[:, None],
            entry_ts=self.book.ts[:, None],
            entry_tick_lots=tick_lots,
            open_tick_lots=tick_lots,
            entry_fee=fee,
            open_fee=fee,
            entry_action=due[:, None],
            entry_signs=signs[:, None, :],
            initial_r=floats + env.initial_r_ticks,
            trail_distance=floats + distance,
            best_px=torch.where(wanted > 0, self.book.last_bid, self.book.last_ask)[:, None],
            triggered=floats > 0,
        )
        self.units = open_unit(self.units, opened, unit)
        self.side = torch.where(opened, wanted, self.side)

    def _move_trails(self, due: torch.Tensor) -> None:
        env, old = self.env, self.units.trail_distance
        factor = torch.where(due == TIGHTEN, env.trail_tighten, torch.where(due == LOOSEN, env.trail_loosen, 1.0))
        new = (old * factor.to(old.dtype)[:, None]).clamp(env.trail_min_ticks, env.trail_max_ticks)
        moves = self.units.active & _among(due, (TIGHTEN, LOOSEN))[:, None]
        new = torch.where(moves, new, old)
        self.units = self.units._replace(trail_distance=new)
        self.tightened, self.loosened = (new < old).sum(1), (new > old).sum(1)

    def _close(
        self, taken: torch.Tensor, exit_tick_lots: torch.Tensor, reason: torch.Tensor, action: torch.Tensor
    ) -> torch.Tensor:
        """Book the closes; returns units closed by accounts that still hold lots, int64 [B]."""
        book, held = self.book, self.units.number
        close = Close(self.side, reason, action, self.step, book.ts, book.fee, self.tick_cents)
        self.units, rows, mask = close_lots(self.units, taken, exit_tick_lots, close)
        self.rows.append(rows)
        self.masks.append(mask)
        self.realised = self.realised + rows[:, :, PNL].sum(1)
        self.side = torch.where(self.lots > 0, self.side, 0)
        self.flat_between = self.flat_between | (self.side == 0)
        return torch.where(self.lots > 0, held - self.units.number, 0)


def _among(due: torch.Tensor, actions: tuple[int, ...]) -> torch.Tensor:
    found = due == actions[0]
    for action in actions[1:]:
        found = found | (due == action)
    return found
