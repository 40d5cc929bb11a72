"""Host side of c51.cu: the functions of reference.py."""

from __future__ import annotations

import torch

from kernels import build
from kernels.c51.reference import Drawn, Scale, Transitions

_THREADS, _KEEP_THREADS = 128, 256
_PARTS = 11


def rows(
    logits: torch.Tensor,
    online_next: torch.Tensor,
    target_next: torch.Tensor,
    t: Transitions,
    weights: torch.Tensor,
    s: Scale,
    gamma: float,
    eps: float,
    alpha: float,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """(dL/dlogits [S, A, N], new priorities [S], parts float64 [S, 11])."""
    n, actions, atoms = logits.shape
    if max(2 * actions, atoms) > _THREADS:
        raise ValueError(f"logits: {actions} actions of {atoms} atoms, the kernel holds {_THREADS // 2} of {_THREADS}")
    batch = (logits, online_next, target_next, *t[:5], weights, s.v_min, s.v_max, s.reward)
    inputs = [x.contiguous() for x in batch]
    grad, priorities = torch.empty_like(inputs[0]), logits.new_empty(n)
    parts = torch.empty(n, _PARTS, dtype=torch.float64, device=logits.device)
    args: tuple[build.Argument, ...] = (*inputs, n, actions, atoms, gamma, eps, alpha, grad, priorities, parts)
    build.launch("c51", "c51_rows", (n,), (_THREADS,), *args)
    return grad, priorities, parts


def keep(parts: torch.Tensor, t: Transitions, d: Drawn, now: torch.Tensor, atoms: int, stats: torch.Tensor) -> None:
    """Statistics of the batch, in the order of op.NAMES."""
    drawn = (parts, d.weights, d.leaves, d.uniforms, d.indices, t.step, now, t.closed, t.terminated)
    inputs = [x.contiguous() for x in drawn]
    build.launch("c51", "c51_keep", (1,), (_KEEP_THREADS,), *inputs, t.step.numel(), atoms, stats)
