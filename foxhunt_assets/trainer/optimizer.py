"""AdamW on the flat buffers (Loshchilov & Hutter 2019, 1711.05101, Algorithm 2), one rate a branch.

Rates, step count and the gate that can leave an update out live on the device, so that nothing is read back.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class AdamW:
    """beta1, beta2, eps and weight_decay as in the paper; decay comes before the step."""

    beta1: float
    beta2: float
    eps: float
    weight_decay: float

    def step(
        self,
        weights: torch.Tensor,
        grads: torch.Tensor,
        m: torch.Tensor,
        v: torch.Tensor,
        t: torch.Tensor,
        rates: torch.Tensor,
        gate: torch.Tensor,
    ) -> torch.Tensor:
        """Update weights, m, v [P] and t [1] in place where gate (0-dim, 0 or 1) is 1; returns the change [P].

        rates: [P] learning rate of each element.
        """
        t.add_(gate.to(t.dtype))
        m.lerp_(grads, (1.0 - self.beta1) * gate)
        v.lerp_(grads * grads, (1.0 - self.beta2) * gate)
        steps = t.to(torch.float32).clamp_min(1.0)  # t is 0 only while the gate is 0, and then nothing moves
        m_hat = m / (1.0 - self.beta1**steps)
        v_hat = v / (1.0 - self.beta2**steps)
        change = -gate * rates * (m_hat / (v_hat.sqrt() + self.eps) + self.weight_decay * weights)
        weights.add_(change)
        return change


def clip_factor(norm: torch.Tensor, limit: float) -> torch.Tensor:
    """min(1, limit / norm) for a 0-dim norm; 1 where the norm is 0."""
    return (limit / norm.clamp_min(torch.finfo(norm.dtype).tiny)).clamp_max(1.0)
