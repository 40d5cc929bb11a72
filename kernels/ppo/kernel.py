"""Host side of ppo.cu: the functions of reference.py, the sums still a row a block."""

from __future__ import annotations

import torch

from kernels import build

_THREADS = 128
_PARTS = 13


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
    *limits: float,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """(dL/dlogits [R, A], dL/dvalues [R], sums float64 [blocks, 13])."""
    n, n_actions = logits.shape
    stored = (legal, actions, log_pi_old, advantages, values_old, returns, window)
    inputs = [x.contiguous() for x in (logits, values, *stored)]
    blocks = build.ceil_div(n, _THREADS)
    grad_logits, grad_values = torch.empty_like(inputs[0]), torch.empty_like(inputs[1])
    sums = torch.empty(blocks, _PARTS, dtype=torch.float64, device=logits.device)
    args: tuple[build.Argument, ...] = (*inputs, n, n_actions, *limits, grad_logits, grad_values, sums)
    build.launch("ppo", "ppo_rows", (blocks,), (_THREADS,), *args)
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
    """Running means, and the gate, in place."""
    args = (sums, sums.shape[0], n, minibatch, entropy_coef, kl_stop, stats, gate, stops)
    build.launch("ppo", "ppo_keep", (1,), (32,), *args)
