"""Host side of gae.cu: the function of reference.py."""

from __future__ import annotations

import torch

from kernels import build

_BLOCK = (32, 8)  # accounts, lanes that load their steps


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
    steps, accounts = rewards.shape
    inputs = [x.contiguous() for x in (rewards, values, next_values, terminated, truncated)]
    advantages, returns = torch.empty_like(inputs[0]), torch.empty_like(inputs[0])
    scalars = (*build.scalar(gamma, rewards), *build.scalar(gamma * lam, rewards))
    grid = (build.ceil_div(accounts, _BLOCK[0]),)
    build.launch(
        "gae", "gae_backwards", grid, _BLOCK, *inputs, *scalars, steps, accounts, advantages, returns
    )  # fmt: skip
    return advantages, returns
