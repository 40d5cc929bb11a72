"""The losses as pure functions, one value a row, and their gradients by hand.

Sources: Schulman 2017 (1707.06347, Eq. 7 and section 4), joschu.net/blog/kl-approx (k3).
"""

from __future__ import annotations

import torch


def surrogate(ratio: torch.Tensor, advantage: torch.Tensor, low: float, high: float) -> torch.Tensor:
    """-min(rho A, clip(rho, low, high) A), [R]."""
    return -torch.minimum(ratio * advantage, ratio.clamp(low, high) * advantage)


def k3(log_ratio: torch.Tensor) -> torch.Tensor:
    """(rho - 1) - log rho, [R]: non-negative, low-variance estimate of KL(old, new)."""
    return torch.expm1(log_ratio) - log_ratio


def clipped_value(value: torch.Tensor, value_old: torch.Tensor, returns: torch.Tensor, clip: float) -> torch.Tensor:
    """1/2 max((V - R)^2, (V_old + clip(V - V_old) - R)^2), [R]."""
    near = value_old + (value - value_old).clamp(-clip, clip)
    return 0.5 * torch.maximum((value - returns) ** 2, (near - returns) ** 2)


def masked_softmax(logits: torch.Tensor, legal: torch.Tensor) -> torch.Tensor:
    """Softmax over the legal actions; illegal ones get exactly 0."""
    return torch.softmax(logits.masked_fill(~legal, float("-inf")), dim=-1)


def entropy(p: torch.Tensor) -> torch.Tensor:
    """-sum p ln p over the last axis, 0 ln 0 = 0 with a finite gradient (an illegal action has p of exactly 0)."""
    return -(p * torch.log(p.clamp_min(torch.finfo(torch.float32).tiny))).sum(dim=-1)


def log_pi(p: torch.Tensor, legal: torch.Tensor, actions: torch.Tensor, floor: float) -> torch.Tensor:
    """ln of the floored probability of each row's action, [R], from the masked softmax p."""
    return torch.log((1.0 - floor * legal.sum(1)) * p.gather(1, actions[:, None])[:, 0] + floor)


def rows(
    logits: torch.Tensor,
    values: torch.Tensor,
    legal: torch.Tensor,
    actions: torch.Tensor,
    log_pi_old: torch.Tensor,
    advantages: torch.Tensor,
    values_old: torch.Tensor,
    returns: torch.Tensor,
    window: torch.Tensor,
    low: float,
    high: float,
    value_clip: float,
    entropy_coef: float,
    floor: float,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """(dL/dlogits [R, A], dL/dvalues [R], sums float64 [13]: twelve sums over the rows and the largest ratio)."""
    n = values.numel()
    p = masked_softmax(logits, legal)
    h, free = entropy(p), 1.0 - floor * legal.sum(1)
    log_ratio = log_pi(p, legal, actions, floor) - log_pi_old
    ratio = torch.exp(log_ratio)
    mean, spread = window.to(logits.dtype)
    a = (advantages - mean) / spread.clamp_min(1e-8)
    inside = (ratio >= low) & (ratio <= high)
    taken = p.gather(1, actions[:, None])[:, 0]
    slope = torch.where(
        inside | (ratio * a < ratio.clamp(low, high) * a), -a * ratio * (free * taken / (free * taken + floor)), 0.0
    )
    chosen = torch.nn.functional.one_hot(actions, logits.shape[1])
    log_p = torch.log(p.clamp_min(torch.finfo(torch.float32).tiny))
    grad_logits = (slope[:, None] * (chosen - p) + entropy_coef * (p * (log_p + h[:, None]))) / n
    moved, error = values - values_old, values - returns
    near = values_old + moved.clamp(-value_clip, value_clip)
    follows = (moved.abs() <= value_clip) | (error**2 >= (near - returns) ** 2)
    grad_values = torch.where(follows, error / n, 0.0)
    v, g = values.double(), returns.double()
    each = (
        surrogate(ratio, a, low, high), clipped_value(values, values_old, returns, value_clip), h, k3(log_ratio),
        ratio, ~inside, error, error.abs(), v, g, v * v, v * g,
    )  # fmt: skip
    sums = torch.stack([x.double().sum() for x in each] + [ratio.max().double()])
    return grad_logits, grad_values, sums


def keep(
    sums: torch.Tensor,
    n: int,
    minibatch: torch.Tensor,
    entropy_coef: float,
    kl_stop: float,
    stats: torch.Tensor,
    gate: torch.Tensor,
    stops: torch.Tensor,
) -> None:
    """Running means of a window's minibatches from number 0 on; close the gate where KL is above kl_stop."""
    stats.masked_fill_(minibatch == 0, 0.0)
    gate.masked_fill_(minibatch == 0, 1.0)
    means, top = sums[:12] / n, sums[12]
    kl, is_open = means[3], gate[0] > 0
    applies = is_open & (kl <= kl_stop)
    count = stats[11] + applies.double()
    now = torch.cat([means[:2], means[2:3] * entropy_coef, means[3:5], means[5:8], means[8:]])
    at = [0, 1, 2, 3, 4, 6, 7, 8, 12, 13, 14, 15]
    blended = stats.clone()
    for place, value in zip(at, now):
        blended[place] += applies * (value - stats[place]) / count.clamp_min(1)
    blended[5] = torch.where(applies, torch.maximum(stats[5], top), stats[5])
    blended[9] = torch.where(is_open & (stats[11] == 0), kl.clamp_min(0), stats[9])
    blended[10] = torch.where(applies, kl.clamp_min(0), stats[10])
    blended[11] = count
    stats.copy_(blended)
    stops.add_((is_open & ~applies).to(torch.int64))
    gate.copy_(applies.to(gate.dtype))
