"""Host side of c51.cu: the functions of reference.py."""

from __future__ import annotations

import torch

from kernels import build

_THREADS = 128  # of a block, and the most atoms a row may have

Span = torch.Tensor | float


def _row_grid(rows: int, atoms: int) -> tuple[int]:
    """Blocks of whole rows."""
    if atoms > _THREADS:
        raise ValueError(f"atoms: {atoms}, a row of the kernel holds at most {_THREADS}")
    return (build.ceil_div(rows, _THREADS // atoms),)


def shifted_atoms(rewards: torch.Tensor, discounts: torch.Tensor, v_min: Span, v_max: Span, atoms: int) -> torch.Tensor:
    """[R, N]."""
    rewards, discounts = rewards.contiguous(), discounts.contiguous()
    rows = rewards.numel()
    out = rewards.new_empty(rows, atoms)
    span = (*build.scalar(v_min, rewards), *build.scalar(v_max, rewards))
    grid = (build.ceil_div(rows * atoms, _THREADS),)
    build.launch("c51", "c51_shifted_atoms", grid, (_THREADS,), rewards, discounts, *span, rows, atoms, out)
    return out


def project_atoms(probs: torch.Tensor, positions: torch.Tensor, v_min: Span, v_max: Span) -> torch.Tensor:
    """m [R, N]."""
    rows, atoms = probs.shape
    probs, positions = probs.contiguous(), positions.contiguous()
    out = torch.empty_like(probs)
    span = (*build.scalar(v_min, probs), *build.scalar(v_max, probs))
    grid = _row_grid(rows, atoms)
    build.launch("c51", "c51_project_atoms", grid, (_THREADS,), probs, positions, *span, rows, atoms, out)
    return out


def cross_entropy(logits: torch.Tensor, target: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """(loss [R], softmax [R, N])."""
    rows, atoms = logits.shape
    logits, target = logits.contiguous(), target.contiguous()
    loss, probs = logits.new_empty(rows), torch.empty_like(logits)
    grid = _row_grid(rows, atoms)
    build.launch("c51", "c51_cross_entropy", grid, (_THREADS,), logits, target, rows, atoms, loss, probs)
    return loss, probs


def cross_entropy_backward(probs: torch.Tensor, target: torch.Tensor, grad: torch.Tensor) -> torch.Tensor:
    """dL/dlogits [R, N] from dL/dloss [R]."""
    rows, atoms = probs.shape
    out = torch.empty_like(probs)
    grid = _row_grid(rows, atoms)
    inputs = (probs, target.contiguous(), grad.contiguous())
    build.launch("c51", "c51_cross_entropy_backward", grid, (_THREADS,), *inputs, rows, atoms, out)
    return out
