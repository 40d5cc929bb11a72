"""Host side of policy.cu: the function of reference.py."""

from __future__ import annotations

import torch

from kernels import build

_THREADS = 32  # one thread walks a row: spread the rows over the chip


def sample(
    logits: torch.Tensor, legal: torch.Tensor, draws: torch.Tensor, floor: torch.Tensor | float
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """(pi [R, A], action int64 [R], log_pi [R])."""
    rows, actions = logits.shape
    inputs = [x.contiguous() for x in (logits, legal, draws)]
    pi, action, log_pi = torch.empty_like(inputs[0]), torch.empty_like(inputs[2]), logits.new_empty(rows)
    args = (*inputs, *build.scalar(floor, logits), rows, actions, pi, action, log_pi)
    build.launch("policy", "policy_sample", (build.ceil_div(rows, _THREADS),), (_THREADS,), *args)
    return pi, action, log_pi
