"""The moments in float64."""

from __future__ import annotations

import torch


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
    a, g = advantages.double(), returns.double()
    error, variance = g - values.double(), g.var(unbiased=False)
    opened, held = entries == 1, entries == -1
    trade, hold = ((a * of).sum() / of.sum().clamp_min(1) for of in (opened, held))
    last = torch.where(terminated[-1], 0.0, next_values[-1]).double()
    explained = 1 - error.var(unbiased=False) / torch.where(variance > 0, variance, 1.0)
    found = (
        a.mean(), a.std(unbiased=False), a.abs().mean(), g.mean(), last.mean(), terminated.double().mean(),
        truncated.double().mean(), torch.where(variance > 0, explained, 0.0), (a > 0).double().mean(),
        (opened.any() & held.any()).double() * (trade - hold),
    )  # fmt: skip
    out.copy_(torch.stack(found))


def arrive(
    v: torch.Tensor, t: torch.Tensor, terminated: torch.Tensor, truncated: torch.Tensor, next_values: torch.Tensor
) -> None:
    """Row t - 1 of next_values [T, B] takes v where its episode went on; t 0 has none."""
    before = (t - 1).clamp_min(0)
    kept = terminated[before] | truncated[before] | (t == 0)[:, None]
    next_values.index_copy_(0, before, torch.where(kept, next_values[before], v[None]))
