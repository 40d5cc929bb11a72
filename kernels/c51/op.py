"""C51 targets and loss on a uniform support of N atoms from v_min to v_max, in the units of the rewards.

v_min, v_max and every step of one update must come from the same span: read it once, project with it, then move.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.autograd.function import once_differentiable

from kernels import build
from kernels.arguments import FLOATS, check, check_scalar
from kernels.c51 import kernel, reference


def _check_span(v_min: torch.Tensor | float, v_max: torch.Tensor | float, atoms: int) -> None:
    check_scalar("v_min", v_min)
    check_scalar("v_max", v_max)
    if not isinstance(v_min, torch.Tensor) and not isinstance(v_max, torch.Tensor) and not v_min < v_max:
        raise ValueError(f"v_max: {v_max} is not above v_min {v_min}")
    if atoms < 2:
        raise ValueError(f"atoms: {atoms}, expected at least 2")


def shifted_atoms(
    rewards: torch.Tensor,
    discounts: torch.Tensor,
    v_min: torch.Tensor | float,
    v_max: torch.Tensor | float,
    atoms: int,
) -> torch.Tensor:
    """Where the Bellman operator moves the support, before clipping: R + discount z_j, [R, atoms].

    rewards [R]: n-step rewards; discounts [R]: gamma^n, 0 where the target ends. Counts of positions outside
    [v_min, v_max] are the saturation of the span.
    """
    check("rewards", rewards, (None,), *FLOATS)
    check("discounts", discounts, tuple(rewards.shape), rewards.dtype)
    _check_span(v_min, v_max, atoms)
    backend = kernel if build.on_gpu(rewards) else reference
    return backend.shifted_atoms(rewards, discounts, v_min, v_max, atoms)


def project_atoms(
    probs: torch.Tensor,
    positions: torch.Tensor,
    v_min: torch.Tensor | float,
    v_max: torch.Tensor | float,
) -> torch.Tensor:
    """Project mass probs [R, N] at positions [R, N] (any values) onto the support: m [R, N].

    Mass is kept; the mean is kept where nothing is clipped. With the atoms of an old span as positions this
    carries a distribution to a new span (its logits alone would not: every Q would move affinely).
    Bellemare, Dabney & Munos 2017 (1707.06887), Eq. 7, in triangular-kernel form.
    """
    check("probs", probs, (None, None), *FLOATS)
    check("positions", positions, tuple(probs.shape), probs.dtype)
    _check_span(v_min, v_max, probs.shape[1])
    backend = kernel if build.on_gpu(probs) else reference
    return backend.project_atoms(probs, positions, v_min, v_max)


def project(
    probs: torch.Tensor,
    rewards: torch.Tensor,
    discounts: torch.Tensor,
    v_min: torch.Tensor | float,
    v_max: torch.Tensor | float,
) -> torch.Tensor:
    """The distributional Bellman target m [R, N] of next-state masses probs [R, N].

    `shifted_atoms` followed by `project_atoms`; use the two where something acts on the atoms in between.
    """
    check("probs", probs, (None, None), *FLOATS)
    check("rewards", rewards, (probs.shape[0],), probs.dtype)
    positions = shifted_atoms(rewards, discounts, v_min, v_max, probs.shape[1])
    return project_atoms(probs, positions, v_min, v_max)


class _CrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        loss, probs = (kernel if build.on_gpu(logits) else reference).cross_entropy(logits, target)
        ctx.save_for_backward(probs, target)
        return loss

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None]:
        probs, target = ctx.saved_tensors
        return (kernel if build.on_gpu(probs) else reference).cross_entropy_backward(probs, target, grad), None


def cross_entropy(logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """-sum_i target_i log softmax(logits)_i a row, [R] nats; the gradient to logits is softmax - target (once).

    logits, target: [R, N]; a target's rows sum to 1 and carry no gradient.
    """
    check("logits", logits, (None, None), *FLOATS)
    check("target", target, tuple(logits.shape), logits.dtype)
    return _CrossEntropy.apply(logits, target.detach())
