"""Any of the accounts, event by event."""

from __future__ import annotations

import torch


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
    trail, session, gap, length = codes
    now = [
        closed.any(), ((trades[:, :, reason] == trail) & mask).any(),
        ((end_reason == session) | (end_reason == gap)).any(), (end_reason == length).any(),
    ]  # fmt: skip
    if learned is not None and actions_seen is not None:
        executed, inserted, windows, stops = learned
        every = torch.arange(actions_seen.numel(), device=executed.device)
        actions_seen.logical_or_((executed[:, None] == every).any(0))
        count = inserted[0]
        now += [count >= replay_rows, count > capacity, windows[0] > 0, stops[0] > 0, actions_seen.all()]
    at = places[: len(now)]
    seen[at] = seen[at] | torch.stack(now)
