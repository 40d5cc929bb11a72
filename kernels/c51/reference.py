"""The target of each row, the gradient of the weighed cross entropy to it, and what the diagnostics ask about them.

The projection is a triangular kernel: every atom of the target gathers, none scatters, so no sum depends on order.
Sources: Bellemare 2017 (1707.06887), van Hasselt 2016 (1509.06461, double Q), Schaul 2016 (1511.05952, Algorithm 1).
"""

from __future__ import annotations

from typing import NamedTuple

import torch


class Transitions(NamedTuple):
    """Columns of S sampled transitions. The Q target ends where the trade closed or the account terminated."""

    action: torch.Tensor  # int64 [S]
    legal_next: torch.Tensor  # bool [S, A], at least one a row
    reward: torch.Tensor  # [S], raw
    closed: torch.Tensor  # bool [S]
    terminated: torch.Tensor  # bool [S]
    step: torch.Tensor  # int64 [S], when they happened


class Drawn(NamedTuple):
    """How they were drawn: slots in ascending order, as strata give them; weights' largest is 1."""

    indices: torch.Tensor  # int64 [S]
    weights: torch.Tensor  # [S]
    leaves: torch.Tensor  # [S]
    uniforms: torch.Tensor  # [S]


class Scale(NamedTuple):
    """0-dim: the span of the atoms, what a raw reward is multiplied by, and the step it is now (int64)."""

    v_min: torch.Tensor
    v_max: torch.Tensor
    reward: torch.Tensor
    now: torch.Tensor


class Target(NamedTuple):
    """mass [S, N] on the support; atoms [S, N] before clipping; expectation [S]; gap [S]: what double Q gave up."""

    mass: torch.Tensor
    atoms: torch.Tensor
    expectation: torch.Tensor
    gap: torch.Tensor


def support(v_min: torch.Tensor, v_max: torch.Tensor, n: int) -> torch.Tensor:
    """[N]: v_min + j (v_max - v_min) / (N - 1)."""
    return v_min + torch.arange(n, dtype=v_min.dtype, device=v_min.device) * ((v_max - v_min) / (n - 1))


def project(probs: torch.Tensor, atoms: torch.Tensor, v_min: torch.Tensor, v_max: torch.Tensor) -> torch.Tensor:
    """Mass probs [S, N] at values atoms [S, N] on the support, [S, N] (Bellemare 2017, Eq. 7).

    m_i = sum over ascending j of p_j clip(1 - |b_j - i|, 0, 1), b_j = clip((atom_j - v_min) / delta, 0, N - 1).
    Distances are taken in atom numbers, not in values: the neighbours of b_j are then exact integers and the ends are
    hit exactly, so that the two shares of p_j lose no mass.
    """
    n = probs.shape[1]
    b = ((atoms - v_min) / ((v_max - v_min) / (n - 1))).clamp(0, n - 1)
    i = torch.arange(n, dtype=probs.dtype, device=probs.device)
    m = torch.zeros_like(probs)
    for j in range(n):
        m.addcmul_(probs[:, j, None], (1 - (b[:, j, None] - i).abs()).clamp(0, 1))
    return m


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
    atoms = rewards[:, None] + discounts[:, None] * z
    mass = project(p[torch.arange(best.numel(), device=best.device), best], atoms, v_min, v_max)
    gap = target_q.max(dim=1).values - target_q.gather(1, best[:, None])[:, 0]
    return Target(mass, atoms, (mass * z).sum(-1), gap)


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
    """(dL/dlogits [S, A, N], new priorities [S], parts float64 [S, 11], as the kernel lays them out)."""
    discounts = gamma * (~(t.closed | t.terminated)).to(logits.dtype)
    aim = target(online_next, target_next, t.legal_next, t.reward * s.reward, discounts, s.v_min, s.v_max)
    n = t.action.numel()
    row = torch.arange(n, device=logits.device)
    log_p = torch.log_softmax(logits[row, t.action], dim=1)
    loss, p = -(aim.mass * log_p).sum(1), log_p.exp()
    grad = torch.zeros_like(logits)  # the target's mass is 1 up to rounding
    grad[row, t.action] = (weights / n)[:, None] * (p * aim.mass.sum(1, keepdim=True) - aim.mass)
    now = (p * support(s.v_min, s.v_max, logits.shape[2])).sum(-1)
    over, under = (aim.atoms - s.v_max).clamp_min(0), (s.v_min - aim.atoms).clamp_min(0)
    parts = (
        loss, weights * loss, aim.expectation - now, aim.expectation, aim.gap, (over > 0).sum(1), (under > 0).sum(1),
        (over + under).sum(1), aim.atoms.abs().amax(1), (aim.mass.sum(1) - 1).abs(), t.reward > 0,
    )  # fmt: skip
    return grad, ((loss + eps) ** alpha).nan_to_num(eps, eps, eps), torch.stack([x.double() for x in parts], 1)


def keep(parts: torch.Tensor, t: Transitions, d: Drawn, now: torch.Tensor, atoms: int, stats: torch.Tensor) -> None:
    """Statistics of the batch, in the order of op.NAMES."""
    _, loss, error, expectation, gap, above, below, out, far, lost, positive = parts.unbind(1)
    w, age, ordered = d.weights.double(), (now - t.step).double(), d.indices.sort().values
    found = (
        loss.mean(), error.abs().mean(), error.abs().max(), error.mean(), expectation.mean(),
        expectation.std(unbiased=False), gap.mean(), (above / atoms).mean(), (below / atoms).mean(),
        out.sum() / (above + below).sum().clamp_min(1), far.max(), lost.max(),
        (w.sum() ** 2 / (w.numel() * (w**2).sum())).clamp_max(1.0), d.leaves.double().mean(), w.mean(), w.min(),
        age.mean(), age.max(), ((ordered[1:] != ordered[:-1]).sum() + 1).double() / w.numel(),
        t.closed.double().mean(), t.terminated.double().mean(), positive.mean(), d.uniforms.double().mean(),
    )  # fmt: skip
    stats.copy_(torch.stack(found))
