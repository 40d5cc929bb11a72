"""The target of each row, the gradient of the weighed cross entropy to it, and what the diagnostics ask about them.

Sources: Bellemare 2017 (1707.06887), van Hasselt 2016 (1509.06461, double Q), Schaul 2016 (1511.05952, Algorithm 1).
"""

from __future__ import annotations

from typing import NamedTuple

import torch

from kernels.c51 import reference as c51


class Target(NamedTuple):
    """mass [S, N] on the support; atoms [S, N] before clipping; expectation [S]; gap [S]: what double Q gave up."""

    mass: torch.Tensor
    atoms: torch.Tensor
    expectation: torch.Tensor
    gap: torch.Tensor


def support(v_min: torch.Tensor, v_max: torch.Tensor, n: int) -> torch.Tensor:
    """[N]: v_min + j (v_max - v_min) / (N - 1)."""
    return v_min + torch.arange(n, dtype=v_min.dtype, device=v_min.device) * ((v_max - v_min) / (n - 1))


def target(
    online_next: torch.Tensor,
    target_next: torch.Tensor,
    legal_next: torch.Tensor,
    rewards: torch.Tensor,
    discounts: torch.Tensor,
    v_min: torch.Tensor,
    v_max: torch.Tensor,
) -> Target:
    """The legal action with the largest online E[Q] at s_{t+1}, valued by the target network."""
    n = target_next.shape[2]
    z, p = support(v_min, v_max, n), torch.softmax(target_next, dim=-1)
    target_q = (p * z).sum(-1).masked_fill(~legal_next, float("-inf"))
    online_q = (torch.softmax(online_next, dim=-1) * z).sum(-1).masked_fill(~legal_next, float("-inf"))
    best = online_q.argmax(dim=1)
    atoms = c51.shifted_atoms(rewards, discounts, v_min, v_max, n)
    mass = c51.project_atoms(p[torch.arange(best.numel(), device=best.device), best], atoms, v_min, v_max)
    gap = target_q.max(dim=1).values - target_q.gather(1, best[:, None])[:, 0]
    return Target(mass, atoms, (mass * z).sum(-1), gap)


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
    """(dL/dlogits [S, A, N], new priorities [S], parts float64 [S, 11], as the kernel lays them out)."""
    discounts = gamma * (~(closed | terminated)).to(rewards.dtype)
    t = target(online_next, target_next, legal_next, rewards * reward_scale, discounts, v_min, v_max)
    row = torch.arange(actions.numel(), device=actions.device)
    loss, p = c51.cross_entropy(logits[row, actions], t.mass)
    grad = torch.zeros_like(logits)
    grad[row, actions] = c51.cross_entropy_backward(p, t.mass, weights / actions.numel())
    now = (p * support(v_min, v_max, logits.shape[2])).sum(-1)
    over, under = (t.atoms - v_max).clamp_min(0), (v_min - t.atoms).clamp_min(0)
    parts = (
        loss, weights * loss, t.expectation - now, t.expectation, t.gap, (over > 0).sum(1), (under > 0).sum(1),
        (over + under).sum(1), t.atoms.abs().amax(1), (t.mass.sum(1) - 1).abs(), rewards > 0,
    )  # fmt: skip
    return grad, ((loss + eps) ** alpha).nan_to_num(eps, eps, eps), torch.stack([x.double() for x in parts], 1)


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
    _, loss, error, expectation, gap, above, below, out, far, lost, positive = parts.unbind(1)
    w, age, ordered = weights.double(), (now - steps).double(), indices.sort().values
    found = (
        loss.mean(), error.abs().mean(), error.abs().max(), error.mean(), expectation.mean(),
        expectation.std(unbiased=False), gap.mean(), (above / atoms).mean(), (below / atoms).mean(),
        out.sum() / (above + below).sum().clamp_min(1), far.max(), lost.max(),
        (w.sum() ** 2 / (w.numel() * (w**2).sum())).clamp_max(1.0), leaves.double().mean(), w.mean(), w.min(),
        age.mean(), age.max(), ((ordered[1:] != ordered[:-1]).sum() + 1).double() / indices.numel(),
        closed.double().mean(), terminated.double().mean(), positive.mean(), draws.double().mean(),
    )  # fmt: skip
    stats.copy_(torch.stack(found))
