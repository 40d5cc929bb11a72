"""Host side of td.cu: the functions of reference.py."""

from __future__ import annotations

import torch

from kernels import build

_THREADS, _KEEP_THREADS = 128, 256
_PARTS = 11


def rows(
    logits: torch.Tensor,
    online_next: torch.Tensor,
    target_next: torch.Tensor,
    actions: torch.Tensor,
    legal_next: torch.Tensor,
    rewards: torch.Tensor,
    closed: torch.Tensor,
    terminated: torch.Tensor,
    weights: torch.Tensor,
    v_min: torch.Tensor,
    v_max: torch.Tensor,
    reward_scale: torch.Tensor,
    gamma: float,
    eps: float,
    alpha: float,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """(dL/dlogits [S, A, N], new priorities [S], parts float64 [S, 11])."""
    n, actions_, atoms = logits.shape
    if max(2 * actions_, atoms) > _THREADS:
        raise ValueError(f"logits: {actions_} actions of {atoms} atoms, the kernel holds {_THREADS // 2} of {_THREADS}")
    batch = (actions, legal_next, rewards, closed, terminated, weights, v_min, v_max, reward_scale)
    inputs = [x.contiguous() for x in (logits, online_next, target_next, *batch)]
    grad, priorities = torch.empty_like(inputs[0]), torch.empty_like(inputs[5])
    parts = torch.empty(n, _PARTS, dtype=torch.float64, device=logits.device)
    args: tuple[build.Argument, ...] = (*inputs, n, actions_, atoms, gamma, eps, alpha, grad, priorities, parts)
    build.launch("td", "td_rows", (n,), (_THREADS,), *args)
    return grad, priorities, parts


def keep(
    parts: torch.Tensor,
    weights: torch.Tensor,
    leaves: torch.Tensor,
    draws: torch.Tensor,
    indices: torch.Tensor,
    steps: torch.Tensor,
    now: torch.Tensor,
    closed: torch.Tensor,
    terminated: torch.Tensor,
    atoms: int,
    stats: torch.Tensor,
) -> None:
    """Statistics of the batch, in the order of op.NAMES."""
    inputs = [x.contiguous() for x in (parts, weights, leaves, draws, indices, steps, now, closed, terminated)]
    build.launch("td", "td_keep", (1,), (_KEEP_THREADS,), *inputs, indices.numel(), atoms, stats)
