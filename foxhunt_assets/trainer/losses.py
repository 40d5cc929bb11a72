"""Losses as pure functions of head outputs; one value a row, so that the caller weighs and averages.

Sources: Schulman 2017 (1707.06347, Eq. 7 and section 4), Bellemare 2017 (1707.06887), van Hasselt 2016
(1509.06461, double Q), joschu.net/blog/kl-approx (k3).
"""

from __future__ import annotations

import torch

from kernels.c51 import op as c51


def ppo_surrogate(ratio: torch.Tensor, advantage: torch.Tensor, clip_eps: float) -> torch.Tensor:
    """-min(rho A, clip(rho, 1 - eps, 1 + eps) A), [R]."""
    return -torch.minimum(ratio * advantage, ratio.clamp(1.0 - clip_eps, 1.0 + clip_eps) * advantage)


def k3(log_ratio: torch.Tensor) -> torch.Tensor:
    """(rho - 1) - log rho, [R]: non-negative, low-variance estimate of KL(old, new)."""
    return torch.expm1(log_ratio) - log_ratio


def clipped_value(value: torch.Tensor, value_old: torch.Tensor, returns: torch.Tensor, clip: float) -> torch.Tensor:
    """1/2 max((V - R)^2, (V_old + clip(V - V_old) - R)^2), [R]."""
    near = value_old + (value - value_old).clamp(-clip, clip)
    return 0.5 * torch.maximum((value - returns) ** 2, (near - returns) ** 2)


def masked_cross_entropy(logits: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """(cross entropy [R, S], valid [R, S]): logits [R, S, N], labels int64 [R, S] with -1 where there is none."""
    valid = labels >= 0
    log_p = torch.log_softmax(logits, dim=-1)
    picked = log_p.gather(-1, labels.clamp_min(0)[..., None])[..., 0]
    return torch.where(valid, -picked, torch.zeros_like(picked)), valid


class BellmanTarget:
    """The projected C51 target of replay rows, with what the diagnostics ask about it.

    mass: [R, N]. expectation: [R]. shifted: [R, N] atoms before clipping. double_q_gap: [R].
    """

    def __init__(
        self,
        online_next: torch.Tensor,
        target_next: torch.Tensor,
        legal_next: torch.Tensor,
        rewards: torch.Tensor,
        discounts: torch.Tensor,
        support: torch.Tensor,
    ) -> None:
        """online_next, target_next: C51 logits [R, A, N] at s_{t+1}; the legal online argmax picks the action."""
        v_min, v_max = support[0], support[-1]
        target_p = torch.softmax(target_next, dim=-1)
        target_q = (target_p * support).sum(-1).masked_fill(~legal_next, float("-inf"))
        online_q = (torch.softmax(online_next, dim=-1) * support).sum(-1).masked_fill(~legal_next, float("-inf"))
        best = online_q.argmax(dim=1)
        chosen = target_p[torch.arange(best.numel(), device=best.device), best]
        self.double_q_gap = target_q.max(dim=1).values - target_q.gather(1, best[:, None])[:, 0]
        self.shifted = c51.shifted_atoms(rewards, discounts, v_min, v_max, support.numel())
        self.mass = c51.project_atoms(chosen, self.shifted, v_min, v_max)
        self.expectation = (self.mass * support).sum(-1)
