"""Host side of events.cu: the function of reference.py."""

from __future__ import annotations

import torch

from kernels import build
from kernels.events.reference import Codes, Learned, Step

_THREADS = 128


def mark(step: Step, codes: Codes, learned: Learned | None, places: torch.Tensor, seen: torch.Tensor) -> None:
    """Mark what happened in `seen` and `learned.actions_seen`."""
    what = [x.contiguous() for x in step]
    counters: list[torch.Tensor | None] = [None] * 4 if learned is None else [x.contiguous() for x in learned[:4]]
    actions, limits = (None, (0, 0)) if learned is None else (learned.actions_seen, learned[5:])
    n_actions = 0 if actions is None else actions.numel()
    args: tuple[build.Argument, ...] = (*what, *step.trades.shape, *codes, *counters, *limits, n_actions, actions)
    build.launch("events", "events_mark", (1,), (_THREADS,), *args, places, seen)
