"""Host side of reward.cu: the functions of reference.py."""

from __future__ import annotations

import torch

from kernels import build

_THREADS = 128


def whiten(
    core_cents: torch.Tensor, fee_cents: torch.Tensor, point_lot_cents: int, learn: bool, *rest: torch.Tensor | float
) -> None:
    """Fill raw, scaled and final; move state and slots where `learn`."""
    cents = (core_cents.contiguous(), fee_cents.contiguous(), point_lot_cents, core_cents.numel(), int(learn))
    build.launch("reward", "reward_whiten", (1,), (_THREADS,), *cents, *rest)


def error(
    values: torch.Tensor,
    rewards: torch.Tensor,
    terminated: torch.Tensor,
    truncated: torch.Tensor,
    gamma: float,
    valid: bool,
    *previous: torch.Tensor,
) -> torch.Tensor:
    """float64 [1]: mean absolute TD error of the step before, which this one replaces."""
    td_abs = torch.empty(1, dtype=torch.float64, device=values.device)
    now = (values, rewards, terminated.contiguous(), truncated.contiguous(), values.numel(), gamma, int(valid))
    build.launch("reward", "reward_error", (1,), (_THREADS,), *now, *previous, td_abs)
    return td_abs
