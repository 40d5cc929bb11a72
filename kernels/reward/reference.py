"""Rewards, their statistics and the error, in plain torch.

Sources: van Hasselt 2016 (1602.07714, Eq. 4), Chan 1983 (the pairwise update of a variance).
"""

from __future__ import annotations

import torch


def whiten(
    core_cents: torch.Tensor,
    fee_cents: torch.Tensor,
    point_lot_cents: int,
    learn: bool,
    sigma_min: float,
    scale: torch.Tensor,
    beta: torch.Tensor,
    mu_slot: torch.Tensor,
    sigma_slot: torch.Tensor,
    welford_slot: torch.Tensor,
    state: torch.Tensor,
    raw: torch.Tensor,
    scaled: torch.Tensor,
    final: torch.Tensor,
) -> None:
    """Fill raw, scaled and final; move state and slots where `learn`."""
    raw.copy_((core_cents - fee_cents).double() / point_lot_cents)
    scaled.copy_(raw * scale)
    if learn:
        x, (started, mu, nu, count, welford_mean, m2) = scaled.double(), state.clone()
        mean, square, k = x.mean(), (x * x).mean(), x.numel()
        starts = (started > 0) | (x != 0).any()
        rate = torch.where(started > 0, beta.double(), 1.0) * starts
        mu, nu, n, delta = mu + rate * (mean - mu), nu + rate * (square - nu), count + k, mean - welford_mean
        m2 = m2 + ((x - mean) ** 2).sum() + delta**2 * count * k / n
        state.copy_(torch.stack([starts.double(), mu, nu, n, welford_mean + delta * k / n, m2]))
        mu_slot.copy_(mu)
        sigma = (nu - mu * mu).clamp_min(sigma_min**2).sqrt()
        sigma_slot.copy_(torch.where(starts, sigma, sigma_slot.double()))
        welford_slot.copy_((m2 / n).sqrt())
    final.copy_(scaled / sigma_slot)


def error(
    values: torch.Tensor,
    rewards: torch.Tensor,
    terminated: torch.Tensor,
    truncated: torch.Tensor,
    gamma: float,
    valid: bool,
    prev_value: torch.Tensor,
    prev_reward: torch.Tensor,
    prev_terminated: torch.Tensor,
    prev_truncated: torch.Tensor,
    prev_valid: torch.Tensor,
) -> torch.Tensor:
    """float64 [1]: mean absolute TD error of the step before, which this one replaces."""
    found = prev_reward + gamma * torch.where(prev_terminated, 0.0, values) - prev_value
    counted = prev_valid & ~prev_truncated
    td_abs = (found.abs().double() * counted).sum() / counted.sum().clamp_min(1)
    kept = ((prev_value, values), (prev_reward, rewards), (prev_terminated, terminated), (prev_truncated, truncated))
    for old, new in kept:
        old.copy_(new)
    prev_valid.fill_(valid)
    return td_abs[None]
