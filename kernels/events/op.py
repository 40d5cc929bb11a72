"""The events of a step, added to those of the steps before."""

from __future__ import annotations

import torch

from kernels import build
from kernels.arguments import check
from kernels.events import kernel, reference
from kernels.events.reference import Codes, Learned, Step

__all__ = ["EVENTS", "Codes", "Learned", "Step", "mark"]

# Of every step, then of training alone.
EVENTS = ("close", "trail", "segment", "length", "replay_warm", "ring_wrap", "window", "kl_stop", "all_actions")


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
    if learned is not None:
        check("executed", learned.executed, (b,), torch.int64)
        check("actions_seen", learned.actions_seen, (None,), torch.bool)
        for name in ("inserted", "windows", "stops"):
            check(name, getattr(learned, name), (1,), torch.int64)
    (kernel if build.on_gpu(seen) else reference).mark(step, codes, learned, places, seen)
