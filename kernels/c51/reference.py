"""The projection as a triangular kernel: every target atom gathers, none scatters, so no sum depends on order."""

from __future__ import annotations

import torch


def shifted_atoms(
    rewards: torch.Tensor,
    discounts: torch.Tensor,
    v_min: torch.Tensor | float,
    v_max: torch.Tensor | float,
    atoms: int,
) -> torch.Tensor:
    """[R, N]: R + discount z_j, z_j = v_min + j (v_max - v_min) / (N - 1); not clipped."""
    j = torch.arange(atoms, dtype=rewards.dtype, device=rewards.device)
    z = v_min + j * ((v_max - v_min) / (atoms - 1))
    return rewards[:, None] + discounts[:, None] * z


def project_atoms(
    probs: torch.Tensor,
    positions: torch.Tensor,
    v_min: torch.Tensor | float,
    v_max: torch.Tensor | float,
) -> torch.Tensor:
    """m_i = sum over ascending j of p_j clip(1 - |b_j - i|, 0, 1), b_j = clip((z_j - v_min) / delta, 0, N - 1).

    Distances are taken in atom numbers, not in values: the neighbours of b_j are then exact integers and the ends
    are hit exactly, so that the two shares of p_j lose no mass.
    """
    n = probs.shape[1]
    delta = (v_max - v_min) / (n - 1)
    b = ((positions - v_min) / delta).clamp(0, n - 1)
    i = torch.arange(n, dtype=probs.dtype, device=probs.device)
    m = torch.zeros_like(probs)
    for j in range(n):
        m.addcmul_(probs[:, j, None], (1 - (b[:, j, None] - i).abs()).clamp(0, 1))
    return m


def cross_entropy(logits: torch.Tensor, target: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """(-sum_i target_i log softmax(logits)_i [R], softmax [R, N])."""
    log_probs = torch.log_softmax(logits, dim=1)
    return -(target * log_probs).sum(dim=1), log_probs.exp()


def cross_entropy_backward(probs: torch.Tensor, target: torch.Tensor, grad: torch.Tensor) -> torch.Tensor:
    """dL/dlogits [R, N] = dL/dloss (softmax sum(target) - target): a target's mass is 1 up to rounding."""
    return grad[:, None] * (probs * target.sum(dim=1, keepdim=True) - target)
