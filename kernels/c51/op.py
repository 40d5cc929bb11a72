"""C51 targets and loss on a uniform support of N atoms from v_min to v_max, in the units of the rewards.

v_min, v_max and every step of one update must come from the same span: read it once, project with it, then move.
"""

from __future__ import annotations

import torch

from kernels.arguments import FLOATS, check, check_scalar
from kernels.c51 import reference


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
    return reference.shifted_atoms(rewards, discounts, v_min, v_max, atoms)


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
    return reference.project_atoms(probs, positions, v_min, v_max)


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


def cross_entropy(logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """-sum_i target_i log softmax(logits)_i a row, [R] nats; the gradient to logits is softmax - target.

    logits, target: [R, N]; a target's rows sum to 1 and carry no gradient.
    """
    check("logits", logits, (None, None), *FLOATS)
    check("target", target, tuple(logits.shape), logits.dtype)
    return reference.cross_entropy(logits, target.detach())
