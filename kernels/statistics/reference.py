"""Statistics of a matrix, by column and as a whole, in plain torch and float64.

Squares are taken about the first row, so that no large mean drowns a small spread: what is lost is at most a factor
of the number of rows, and a column of one value has a spread of exactly 0.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

COLUMN = ("mean", "std", "abs_max")
WHOLE = (
    "mean", "std", "abs_mean", "abs_max", "clipped", "entropy", "column_mean_abs", "column_mean_abs_max",
    "column_std", "column_std_min",
)  # fmt: skip


def summary(
    sources: Sequence[torch.Tensor], at: torch.Tensor | None, shares: Sequence[bool], limit: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """(whole float64 [S, len(WHOLE)], columns float64 [len(COLUMN), sum of the columns])."""
    read = [x if at is None or i else x[at] for i, x in enumerate(sources)]
    found = [_matrix(x.detach().double(), share, limit) for x, share in zip(read, shares)]
    return torch.stack([whole for whole, _ in found]), torch.cat([columns for _, columns in found], dim=1)


def _matrix(x: torch.Tensor, share: bool, limit: float) -> tuple[torch.Tensor, torch.Tensor]:
    size, off = x.abs(), x - x[0]
    shift = off.mean(0)
    mean, variance = x[0] + shift, ((off * off).mean(0) - shift * shift).clamp_min(0)
    std = variance.sqrt()
    total = mean.mean()
    entropy = (
        -(x * torch.log(x.clamp_min(torch.finfo(x.dtype).tiny))).sum(1).mean() if share else torch.zeros_like(total)
    )
    whole = (
        total, (variance.mean() + ((mean - total) ** 2).mean()).sqrt(), size.mean(), size.amax(),
        (size >= limit).double().mean(), entropy, mean.abs().mean(), mean.abs().amax(), std.mean(), std.amin(),
    )  # fmt: skip
    return torch.stack(whole), torch.stack([mean, std, size.amax(0)])
