"""Host side of events.cu: the function of reference.py."""

from __future__ import annotations

import torch

from kernels import build

_THREADS = 128


def mark(
    closed: torch.Tensor,
    trades: torch.Tensor,
    mask: torch.Tensor,
    end_reason: torch.Tensor,
    reason: int,
    codes: tuple[int, int, int, int],
    learned: tuple[torch.Tensor, ...] | None,
    replay_rows: int,
    capacity: int,
    actions_seen: torch.Tensor | None,
    places: torch.Tensor,
    seen: torch.Tensor,
) -> None:
    """Mark what happened in `seen` and `actions_seen`."""
    what = [x.contiguous() for x in (closed, trades, mask, end_reason)]
    counters = [None] * 4 if learned is None else [x.contiguous() for x in learned]
    actions = 0 if actions_seen is None else actions_seen.numel()
    args: tuple[build.Argument, ...] = (*what, *trades.shape, reason, *codes, *counters, replay_rows, capacity)
    build.launch("events", "events_mark", (1,), (_THREADS,), *args, actions, actions_seen, places, seen)
