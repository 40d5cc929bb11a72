"""Algorithm 2 of the paper on flat buffers, its gradient clipped by the norm of the whole.

Everything lives on the device: the step count, and the gate that can leave an update out.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

TINY = torch.finfo(torch.float32).tiny


def clip_factor(norm: torch.Tensor, limit: torch.Tensor | float) -> torch.Tensor:
    """min(1, limit / norm) for a 0-dim norm; 1 where the norm is 0."""
    return (limit / norm.clamp_min(TINY)).clamp_max(1.0)


def step(
    weights: torch.Tensor,
    grads: torch.Tensor,
    m: torch.Tensor,
    v: torch.Tensor,
    t: torch.Tensor,
    rates: torch.Tensor,
    gate: torch.Tensor,
    constants: torch.Tensor,
    segments: Sequence[slice],
    stats: torch.Tensor,
) -> None:
    """One update in place where gate is 1, and its statistics; where it is 0 everything stays as it is.

    A gradient whose norm is not finite moves nothing and counts as no step; its statistics say so.
    """
    beta1, beta2, eps, decay, limit = constants.unbind()
    before = [_norm(weights[where]) for where in segments]
    norm = _norm(grads)
    g = grads * clip_factor(norm, limit).to(grads.dtype)
    steps = (t + 1).to(torch.float64)[0]
    first, second = (x + (1 - beta).to(x.dtype) * (y - x) for x, y, beta in ((m, g, beta1), (v, g * g, beta2)))
    m_hat, v_hat = first / (1 - beta1**steps).to(m.dtype), second / (1 - beta2**steps).to(v.dtype)
    root = v_hat.sqrt() + eps.to(m.dtype)
    sound = torch.isfinite(norm)
    change = torch.where(sound, -rates * (m_hat / root + decay.to(m.dtype) * weights), 0.0)
    snr = torch.where(sound, (m_hat.abs() / root).double().mean(), 0.0)
    moved = [_norm(change[where]) / w.clamp_min(TINY) for where, w in zip(segments, before)]
    small = (grads.abs() < TINY).double().mean()
    whole = [norm, _norm(change), snr, grads.abs().max().double(), small]
    found = [*(_norm(grads[where]) for where in segments), *moved, *whole, sound.double()]
    takes = gate[0] > 0
    for old, new in ((weights, weights + change), (m, first), (v, second), (t, t + 1)):
        old.copy_(torch.where(takes & sound, new, old))
    stats.copy_(torch.where(takes, torch.stack(found), stats))


def _norm(x: torch.Tensor) -> torch.Tensor:
    return x.double().square().sum().sqrt()
