"""The behaviour policy and its draw, in plain torch."""

from __future__ import annotations

import torch

from kernels.philox.op import uniform

_LEAST = 1e-38  # under it a logarithm would be of a denormal number


def sample(
    logits: torch.Tensor, legal: torch.Tensor, draws: torch.Tensor, floor: torch.Tensor | float
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """(pi [R, A], action int64 [R], log_pi [R])."""
    n_legal = legal.sum(dim=1, keepdim=True).to(logits.dtype)
    softmax = torch.softmax(logits.masked_fill(~legal, float("-inf")), dim=1)
    pi = (1.0 - floor * n_legal) * softmax + floor * legal.to(logits.dtype)
    action = inverse_cdf(pi, uniform(draws))
    return pi, action, torch.log(pi.gather(1, action[:, None])[:, 0].clamp_min(_LEAST))


def inverse_cdf(pi: torch.Tensor, u: torch.Tensor) -> torch.Tensor:
    """int64 [R]: first action whose cumulative probability exceeds u, the last possible one if rounding leaves none."""
    reached = (pi.cumsum(dim=1) > u[:, None]) & (pi > 0)
    last = pi.shape[1] - 1 - (pi.flip(1) > 0).to(torch.int64).argmax(dim=1)
    return torch.where(reached.any(dim=1), reached.to(torch.int64).argmax(dim=1), last)
