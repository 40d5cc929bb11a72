"""Host side of window.cu: the function of reference.py."""

from __future__ import annotations

import torch

from kernels import build

_THREADS = 512


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
