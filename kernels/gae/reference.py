"""GAE(lambda) by the backward recursion, one row of the rollout at a time."""

from __future__ import annotations

import torch


def gae(
    rewards: torch.Tensor,
    values: torch.Tensor,
    next_values: torch.Tensor,
    terminated: torch.Tensor,
    truncated: torch.Tensor,
    gamma: torch.Tensor | float,
    lam: torch.Tensor | float,
) -> tuple[torch.Tensor, torch.Tensor]:
    """(advantages, returns), each [T, B]."""
    bootstrap = torch.where(terminated, 0.0, next_values)
    goes_on = (~(terminated | truncated)).to(rewards.dtype)
    delta = rewards + gamma * bootstrap - values
    decay = gamma * lam * goes_on
    advantages = torch.empty_like(delta)
    running = torch.zeros_like(delta[0])
    for t in range(rewards.shape[0] - 1, -1, -1):
        running = delta[t] + decay[t] * running
        advantages[t] = running
    return advantages, advantages + values
