"""Any of the accounts, event by event."""

from __future__ import annotations

from typing import NamedTuple

import torch


class Step(NamedTuple):
    """closed bool [B]; trades int64 [B, M, fields] with mask bool [B, M]; end_reason int64 [B]."""

    closed: torch.Tensor
    trades: torch.Tensor
    mask: torch.Tensor
    end_reason: torch.Tensor


class Codes(NamedTuple):
    """Column of a trade that tells why it closed, and the numbers that stand for the reasons."""

    column: int
    trail: int
    session: int
    gap: int
    length: int


class Learned(NamedTuple):
    """executed int64 [B]; int64 [1]: transitions inserted, windows finished, KL stops; bool [A]: actions seen so far.

    replay_rows: from how many transitions on replay is warm. capacity: beyond which the ring has wrapped.
    """

    executed: torch.Tensor
    inserted: torch.Tensor
    windows: torch.Tensor
    stops: torch.Tensor
    actions_seen: torch.Tensor
    replay_rows: int
    capacity: int


def mark(step: Step, codes: Codes, learned: Learned | None, places: torch.Tensor, seen: torch.Tensor) -> None:
    """Mark what happened in `seen` and `learned.actions_seen`."""
    trades, ended = step.trades, step.end_reason
    now = [
        step.closed.any(), ((trades[:, :, codes.column] == codes.trail) & step.mask).any(),
        ((ended == codes.session) | (ended == codes.gap)).any(), (ended == codes.length).any(),
    ]  # fmt: skip
    if learned is not None:
        actions = learned.actions_seen
        every = torch.arange(actions.numel(), device=actions.device)
        actions.logical_or_((learned.executed[:, None] == every).any(0))
        count = learned.inserted[0]
        now += [
            count >= learned.replay_rows, count > learned.capacity, learned.windows[0] > 0, learned.stops[0] > 0,
            actions.all(),
        ]  # fmt: skip
    at = places[: len(now)]
    seen[at] = seen[at] | torch.stack(now)
