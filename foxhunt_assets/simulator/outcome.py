"""What a step of the simulator leaves behind."""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class StepOutcome:
    """What one step did, [B] each; money int64 cents, counts int64. Nothing here aliases a state buffer.

    On a CUDA device the tensors are the simulator's own and hold until its next step, which writes over them.
    """

    anchor: torch.Tensor  # int64, row of the decision
    next_row: torch.Tensor  # int64, row the account stands on now; ended accounts have not jumped yet
    episode_start: torch.Tensor  # bool, an episode started on the decision row
    episode_age: torch.Tensor  # int64, steps since the episode started, at the decision
    executed: torch.Tensor  # int64, the decided action, a2_hold where it was illegal
    illegal: torch.Tensor  # bool, the action given was illegal
    ineffective: torch.Tensor  # bool, the action due was not a2_hold and changed no order, unit or trail

    equity_change_cents: torch.Tensor  # marked to market, net of fees
    core_cents: torch.Tensor  # the same before fees
    fee_cents: torch.Tensor  # fees of this step's fills
    realised_cents: torch.Tensor  # net pnl of this step's closes
    cash_change_cents: torch.Tensor  # sell value - buy value - fees of this step's fills
    episode_equity_cents: torch.Tensor  # start equity + net pnl of the episode; 0 or less is blown
    phase_equity_cents: torch.Tensor  # realised + open net pnl since the phase began
    open_cents: torch.Tensor  # open pnl at the mark, net of entry fees
    mark_half_ticks: torch.Tensor  # mid of next_row, last valid one if a touch is absent
    mark_change_half_ticks: torch.Tensor  # since the decision row; 0 where either has no mid yet

    terminated: torch.Tensor  # bool: blown, or session end
    truncated: torch.Tensor  # bool: length, gap or end of range, end of phase; never with terminated
    end_reason: torch.Tensor  # int64 index into REASONS, 0 while the episode goes on
    trades: torch.Tensor  # int64 [B, M, len(TRADE_FIELDS)], M = 3 x max_units; anything where trade_mask is False
    trade_mask: torch.Tensor  # bool [B, M], the rows that are there: stops, then the policy's order, then forced closes
    trade_closed: torch.Tensor  # bool, at least one row

    lots_before: torch.Tensor  # signed
    units_before: torch.Tensor
    lots: torch.Tensor  # signed, after the step
    orders: torch.Tensor  # market orders that reached the book
    policy_orders: torch.Tensor
    fills: torch.Tensor  # orders with at least one lot filled
    fill_lots: torch.Tensor
    buy_lots: torch.Tensor
    rejected: torch.Tensor  # intents refused before the book
    cancelled_lots: torch.Tensor  # asked and not filled
    forced_rest_lots: torch.Tensor  # filled beyond what the book showed
    levels_max: torch.Tensor  # deepest level a fill reached
    slippage_half_ticks: torch.Tensor  # adverse distance from the mid x lots
    touch_fills: torch.Tensor  # fills on a book with a displayed touch
    touch_take: torch.Tensor  # float64, sum over them of lots over the touch's displayed size
    lag_ns: torch.Tensor  # sum over fills of the fill book's ts_event less the decision row's
    units_added: torch.Tensor  # units opened on top of an open unit
    units_closed_singly: torch.Tensor  # units closed by a stop or a half close that left the account with lots
    tightened: torch.Tensor  # open units whose trail distance fell
    loosened: torch.Tensor
