"""The events of a step, added to those of the steps before."""

from __future__ import annotations

from typing import NamedTuple

import torch

from kernels import build
from kernels.arguments import check
from kernels.events import kernel, reference

# Of every step, then of training alone.
EVENTS = ("close", "trail", "segment", "length", "replay_warm", "ring_wrap", "window", "kl_stop", "all_actions")


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
    """Set seen bool [E] where the step reached an event, and actions_seen; what was set stays.

    places: int64 [len(EVENTS)], where each event lies in `seen`. learned: None outside training.
    """
    b = step.closed.numel()
    check("closed", step.closed, (b,), torch.bool)
    check("trades", step.trades, (b, None, None), torch.int64)
    check("mask", step.mask, tuple(step.trades.shape[:2]), torch.bool)
    check("end_reason", step.end_reason, (b,), torch.int64)
    check("places", places, (len(EVENTS),), torch.int64)
    check("seen", seen, (None,), torch.bool)
    counters, actions, limits = None, None, (0, 0)
    if learned is not None:
        check("executed", learned.executed, (b,), torch.int64)
        check("actions_seen", learned.actions_seen, (None,), torch.bool)
        counters, actions, limits = learned[:4], learned.actions_seen, learned[5:]
        for name, x in zip(Learned._fields[1:4], counters[1:]):
            check(name, x, (1,), torch.int64)
    backend = kernel if build.on_gpu(seen) else reference
    backend.mark(*step, codes.column, codes[1:], counters, *limits, actions, places, seen)
