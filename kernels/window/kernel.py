"""Host side of window.cu: the function of reference.py."""

from __future__ import annotations

import torch

from kernels import build

_THREADS, _ARRIVE_THREADS = 512, 128


def moments(
    advantages: torch.Tensor,
    returns: torch.Tensor,
    values: torch.Tensor,
    next_values: torch.Tensor,
    terminated: torch.Tensor,
    truncated: torch.Tensor,
    entries: torch.Tensor,
    out: torch.Tensor,
) -> None:
    """Moments of [T, B] columns, in the order of op.NAMES."""
    columns = (advantages, returns, values, next_values, terminated, truncated, entries)
    args: tuple[build.Argument, ...] = (
        *(x.contiguous() for x in columns),
        advantages.numel(),
        advantages.shape[1],
        out,
    )
    build.launch("window", "window_moments", (1,), (_THREADS,), *args)


def arrive(
    v: torch.Tensor, t: torch.Tensor, terminated: torch.Tensor, truncated: torch.Tensor, next_values: torch.Tensor
) -> None:
    """Row t - 1 of next_values [T, B] takes v where its episode went on; t 0 has none."""
    n = v.numel()
    args = (v.contiguous(), t, terminated, truncated, n, next_values)
    build.launch("window", "window_arrive", (build.ceil_div(n, _ARRIVE_THREADS),), (_ARRIVE_THREADS,), *args)
