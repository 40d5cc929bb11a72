"""Host side of policy.cu: the function of reference.py."""

from __future__ import annotations

import torch

from kernels import build

_THREADS = 128  # of a block, and the most actions a row may have


def sample(
    logits: torch.Tensor, legal: torch.Tensor, draws: torch.Tensor, floor: torch.Tensor | float
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """(pi [R, A], action int64 [R], log_pi [R])."""
    rows, actions = logits.shape
    if actions > _THREADS:
        raise ValueError(f"logits: {actions} actions, a row of the kernel holds at most {_THREADS}")
    inputs = [x.contiguous() for x in (logits, legal, draws)]
    pi, action, log_pi = torch.empty_like(inputs[0]), torch.empty_like(inputs[2]), logits.new_empty(rows)
    args = (*inputs, *build.scalar(floor, logits), rows, actions, pi, action, log_pi)
    grid = (build.ceil_div(rows, _THREADS // actions),)
    build.launch("policy", "policy_sample", grid, (_THREADS,), *args)
    return pi, action, log_pi
