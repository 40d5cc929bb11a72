"""One step of B accounts: time, stops, orders, forced closes, marks."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch.nn.functional import pad

from foxhunt_assets.contracts.tables import ABSENT_PX
from foxhunt_assets.errors import BadInput
from foxhunt_assets.simulator.account_step import AccountStep
from foxhunt_assets.simulator.actions import HOLD
from foxhunt_assets.simulator.config import EnvConfig
from foxhunt_assets.simulator.legal import legal_actions
from foxhunt_assets.simulator.market_view import MarketView, segment_bounds
from foxhunt_assets.simulator.observe import account_state
from foxhunt_assets.simulator.on_device import OnDevice
from foxhunt_assets.simulator.orders import COUNTS, Book, read_book, store_memory
from foxhunt_assets.simulator.outcome import StepOutcome
from foxhunt_assets.simulator.state import Buffers, load_units, specs, store_units
from foxhunt_assets.simulator.units import PNL, REASONS
from foxhunt_assets.simulator.walk import Step, Walk
from kernels import build

__all__ = ["Simulator", "StepOutcome"]

_SESSION, _BLOWN, _GAP, _LENGTH, _PHASE_END = (
    REASONS.index(name) for name in ("session", "blown", "gap", "length", "phase_end")
)


class _Before(NamedTuple):
    """What the step found, [B] each."""

    anchor: torch.Tensor
    lots: torch.Tensor  # signed
    units: torch.Tensor
    equity: torch.Tensor


class Simulator:
    """The environment. buffers: tensors by the names of `state.specs`, updated in place. window: K rows.

    Use: reset(step) begins a phase; then legal_mask, observe, step, and advance once the outcome was used (in
    between, observe describes the account on its next row, flattened where the episode ended).

    On a CUDA device a step and an advance are a launch each, bit-equal to the torch operations below, and what
    legal_mask, observe and step return are the simulator's own tensors, which its next step or advance writes over.
    """

    def __init__(self, env: EnvConfig, market: MarketView, walk: Walk, buffers: Buffers, accounts: int, window: int):
        if walk.accounts != accounts:
            raise BadInput(f"simulator: the walk has {walk.accounts} accounts, {accounts} are wanted")
        self.env, self.market, self.walk, self.buffers = env, market, walk, buffers
        self.accounts, self.window = accounts, window
        first, self.segment_last = segment_bounds(market.segment)
        rows = torch.arange(market.rows, device=market.device)
        self._warm = rows - first + 1 >= window
        self._device = OnDevice(env, market, walk, buffers, self._warm) if build.on_gpu(market.ts) else None

    def reset(self, step: Step) -> None:
        """Begin a phase whose first step number is step: fresh accounts on their first rows."""
        for spec in specs(self.accounts, self.env):
            self.buffers[spec.name].fill_(spec.fill)
        self.buffers["acct_step"].fill_(step)
        self.walk.start(step)
        self._seat(torch.ones(self.accounts, dtype=torch.bool, device=self.market.device))

    def advance(self, step: Step) -> None:
        """After step: ended accounts become fresh ones where their next episode starts.

        What such an account had decided and was still on its way to the book is dropped: it never became an order.
        """
        if self._device is not None:
            self._device.advance(step)
            return
        ended = self.buffers["acct_ended"].clone()
        self.walk.advance(ended, step)
        self._seat(ended)

    def legal_mask(self) -> torch.Tensor:
        """bool [B, 11], True where the action may be chosen now; a2_hold always is.

        Only a2_hold is legal while the segment has fewer than K rows up to and with the account's own.
        """
        if self._device is not None:
            return self._device.legal_mask()
        b = self.buffers
        warm = self._warm[self.walk.anchor]
        return legal_actions(self.env, b["acct_side"], load_units(b), b["acct_step"], warm)

    def observe(self) -> torch.Tensor:
        """float32 [B, 12], the account state in the order of ACCOUNT_FEATURES."""
        if self._device is not None:
            return self._device.observe()
        return account_state(self.env, self.buffers, self.walk.rows_left())

    def step(
        self, actions: torch.Tensor, step: Step, entry_signs: torch.Tensor, phase_end: bool, drain: bool = False
    ) -> StepOutcome:
        """Move every account one row and fill what is due on the book there.

        actions: int64 [B], decided where the accounts stand; an illegal one counts as a2_hold. step: a number, or a
        0-d int64 tensor that a captured graph reads anew. entry_signs: int8 [B, 3], stored with a unit this decision
        opens. phase_end: close everything on the next book. drain: the row after the last evaluation step: no
        action, no time passes, everything closes on the book the accounts stand on.
        """
        if self._device is not None:
            return self._device.step(actions, step, entry_signs, phase_end, drain)
        b, walk = self.buffers, self.walk
        b["acct_step"].fill_(step)
        anchor = walk.anchor.clone()
        row = anchor if drain else walk.next_row
        legal = self.legal_mask().gather(1, actions[:, None])[:, 0]
        executed = torch.where(legal & (not drain), actions, HOLD)
        due, signs = (executed, entry_signs) if drain else self._due(executed, entry_signs)
        book = read_book(self.market, row, b)
        work = AccountStep(self.env, self.market.tick_cents, book, b, b["acct_step"], self.market.ts_event[anchor])
        before = _Before(anchor, work.signed_lots, work.units.number, b["acct_equity_cents"].clone())
        if not drain:
            work.stops()
            work.policy(due, signs, self.market.ts_event[(row - self.env.latency_steps).clamp(min=0)])
        equity = self.env.start_equity_cents + b["acct_realised_cents"] + work.realised + work.open_cents()
        reason = self._end_reason(equity <= 0, phase_end or drain, drain)
        work.flatten(reason, due)
        work.follow_touch()
        outcome = self._outcome(before, row, executed, ~legal & (not drain), due, reason, work)
        self._store(row, reason, step, work, outcome)
        return outcome

    def _due(self, executed: torch.Tensor, signs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Push this decision into the shift register; returns the action and signs whose time has come."""
        if self.env.latency_steps == 1:
            return executed, signs
        waiting, waiting_signs = self.buffers["acct_pending_action"], self.buffers["acct_pending_signs"]
        queue = torch.cat([waiting, executed[:, None]], 1)
        queue_signs = torch.cat([waiting_signs, signs[:, None]], 1)
        waiting.copy_(queue[:, 1:])
        waiting_signs.copy_(queue_signs[:, 1:])
        return queue[:, 0], queue_signs[:, 0]

    def _end_reason(self, blown: torch.Tensor, phase_end: bool, drain: bool) -> torch.Tensor:
        """int64 [B] index into REASONS, 0 where the episode goes on. Terminal reasons come first."""
        reason = torch.where(blown, _BLOWN, 0)
        if not drain:
            session, stretch = self.walk.ends_session(), self.walk.last_of_stretch()
            length = self.buffers["acct_episode_age"] + 1 >= self.env.episode_length
            reason = torch.where(session, _SESSION, reason)
            reason = torch.where((reason == 0) & stretch, _GAP, reason)
            reason = torch.where((reason == 0) & length, _LENGTH, reason)
        return torch.where((reason == 0) & phase_end, _PHASE_END, reason)

    def _outcome(
        self,
        before: _Before,
        row: torch.Tensor,
        executed: torch.Tensor,
        illegal: torch.Tensor,
        due: torch.Tensor,
        reason: torch.Tensor,
        work: AccountStep,
    ) -> StepOutcome:
        b, book, count = self.buffers, work.book, work.desk.count
        open_cents = work.open_cents()
        equity = self.env.start_equity_cents + b["acct_realised_cents"] + work.realised + open_cents
        change = equity - before.equity
        mark_known = book.mark_valid & b["acct_mark_valid"]
        mask, trades = torch.cat(work.masks, 1), torch.cat(work.rows, 1)
        missing = 3 * self.env.max_units - mask.shape[1]  # a drain sends neither stops nor an order
        terminated = (reason == _SESSION) | (reason == _BLOWN)
        return StepOutcome(
            anchor=before.anchor,
            next_row=row.clone(),
            episode_start=b["acct_episode_start"].clone(),
            episode_age=b["acct_episode_age"].clone(),
            executed=executed,
            illegal=illegal,
            ineffective=(due != HOLD) & ~work.effective,
            equity_change_cents=change,
            core_cents=change + count["fee_cents"],
            realised_cents=work.realised,
            cash_change_cents=count["cash_cents"],
            episode_equity_cents=equity,
            phase_equity_cents=b["acct_phase_realised_cents"] + work.realised + open_cents,
            open_cents=open_cents,
            mark_half_ticks=book.mark,
            mark_change_half_ticks=torch.where(mark_known, book.mark - b["acct_mark_half_ticks"], 0),
            terminated=terminated,
            truncated=(reason > 0) & ~terminated,
            end_reason=reason,
            trades=pad(trades, (0, 0, missing, 0)),
            trade_mask=pad(mask, (missing, 0)),
            trade_closed=mask.any(1),
            lots_before=before.lots,
            units_before=before.units,
            lots=work.signed_lots,
            policy_orders=work.policy_orders,
            units_added=work.units_added,
            units_closed_singly=work.closed_singly,
            tightened=work.tightened,
            loosened=work.loosened,
            touch_take=work.desk.touch_take,
            **{name: count[name] for name in COUNTS if name != "cash_cents"},
        )

    def _store(self, row: torch.Tensor, reason: torch.Tensor, step: Step, work: AccountStep, out: StepOutcome) -> None:
        b, book = self.buffers, work.book
        flat = work.side == 0
        pnl, mask = out.trades[:, :, PNL], out.trade_mask
        b["acct_loss_streak"].copy_(_loss_streak(b["acct_loss_streak"], pnl, mask))
        b["acct_hold_steps"].copy_(torch.where(work.flat_between, 0, b["acct_hold_steps"] + 1))
        b["acct_flat_steps"].copy_(torch.where(flat, b["acct_flat_steps"] + 1, 0))
        b["acct_realised_cents"].add_(work.realised)
        b["acct_phase_realised_cents"].add_(work.realised)
        b["acct_cash_cents"].add_(out.cash_change_cents)
        b["acct_equity_cents"].copy_(out.episode_equity_cents)
        b["acct_episode_age"].add_(1)
        b["acct_episode_start"].zero_()
        b["acct_ended"].copy_(reason > 0)
        b["acct_side"].copy_(work.side)
        b["acct_row"].copy_(row)
        b["acct_step"].fill_(step + 1)
        self._store_marks(book)
        store_memory(b, "bid", work.desk.bid_memory)
        store_memory(b, "ask", work.desk.ask_memory)
        store_units(b, work.units)

    def _store_marks(self, book: Book) -> None:
        b = self.buffers
        b["acct_mark_half_ticks"].copy_(book.mark)
        b["acct_mark_valid"].copy_(book.mark_valid)
        b["acct_last_bid"].copy_(book.last_bid)
        b["acct_last_ask"].copy_(book.last_ask)

    def _seat(self, fresh: torch.Tensor) -> None:
        """Make the flat accounts of fresh (bool [B]) new ones on the row where they stand."""
        b = self.buffers
        fills = {
            **dict.fromkeys(("acct_episode_age", "acct_realised_cents", "acct_loss_streak", "acct_hold_steps"), 0),
            **dict.fromkeys(("acct_mark_valid", "acct_mark_half_ticks", "acct_last_bid", "acct_last_ask"), 0),
            **dict.fromkeys(("acct_taken_bid_px", "acct_taken_ask_px"), ABSENT_PX),
            **{f"acct_taken_{side}_{field}": 0 for side in ("bid", "ask") for field in ("lots", "sz")},
            "acct_equity_cents": self.env.start_equity_cents,
        }
        if self.env.latency_steps > 1:
            fills |= {"acct_pending_action": HOLD, "acct_pending_signs": 0}
        for name, value in fills.items():
            where = fresh.view(-1, *[1] * (b[name].dim() - 1))
            b[name].masked_fill_(where, value)
        b["acct_episode_start"].copy_(fresh)
        b["acct_ended"].zero_()
        self._store_marks(read_book(self.market, self.walk.anchor, b))


def _loss_streak(streak: torch.Tensor, pnl: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Closes at or below 0 since the last winning one; pnl, mask: [B, M] of one step in order of closing."""
    place = torch.arange(1, pnl.shape[1] + 1, device=pnl.device)
    last_win = ((mask & (pnl > 0)) * place).amax(1)
    since = (mask & (place > last_win[:, None])).sum(1)
    return torch.where(last_win > 0, 0, streak) + since
