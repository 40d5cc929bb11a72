"""Advantages and returns of a rollout; flags belong to the transition they end (done after, not before)."""

from __future__ import annotations

import torch

from kernels import build
from kernels.arguments import FLOATS, check, check_scalar
from kernels.gae import kernel, reference


def gae(
    rewards: torch.Tensor,
    values: torch.Tensor,
    next_values: torch.Tensor,
    terminated: torch.Tensor,
    truncated: torch.Tensor,
    gamma: torch.Tensor | float,
    lam: torch.Tensor | float,
) -> tuple[torch.Tensor, torch.Tensor]:
    """(advantages, returns), each [T, B]: Schulman et al. 2016 (1506.02438), Eq. 16, and A + V.

    delta_t = r_t + gamma (0 if terminated_t else next_values_t) - V_t
    A_t = delta_t + gamma lam (0 if terminated_t or truncated_t else A_{t+1}), A_T = 0

    rewards, values: [T, B], values in the units of the rewards. next_values[t] = V of the state the transition
    t -> t+1 arrives in, before any reset: a truncated transition bootstraps from it, a terminated one does not
    (and may hold anything there). terminated, truncated: bool [T, B], flags of the transition t -> t+1.
    """
    check("rewards", rewards, (None, None), *FLOATS)
    shape = tuple(rewards.shape)
    check("values", values, shape, rewards.dtype)
    check("next_values", next_values, shape, rewards.dtype)
    check("terminated", terminated, shape, torch.bool)
    check("truncated", truncated, shape, torch.bool)
    check_scalar("gamma", gamma)
    check_scalar("lam", lam)
    if shape[0] == 0:
        raise ValueError("rewards: an empty rollout, expected T >= 1")
    backend = kernel if build.on_gpu(rewards) else reference
    return backend.gae(rewards, values, next_values, terminated, truncated, gamma, lam)
