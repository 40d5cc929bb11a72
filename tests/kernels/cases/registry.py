"""What a case is, and the list of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

Inputs = dict[str, torch.Tensor]


@dataclass(frozen=True)
class Case:
    """ulps bounds the distance to the twin, in units in the last place of the largest value of the output compared;
    0 is bit for bit. The twin itself is held to worked numbers in the family's own test file."""

    inputs: Callable[[torch.Generator], Inputs]
    call: Callable[[Inputs], tuple[torch.Tensor, ...]]
    kernels: frozenset[str]
    ulps: int = 0
    captured: bool = True  # False where the call makes tables, or a Python number


CASES: dict[str, Case] = {}


def case(*kernels: str, ulps: int = 0, captured: bool = True) -> Callable[[type], type]:
    """Register a class of two functions, inputs(generator) and call(inputs)."""

    def register(of: type) -> type:
        CASES[of.__name__] = Case(of.inputs, of.call, frozenset(kernels), ulps, captured)
        return of

    return register


def made(name: str, seed: int = 0) -> Inputs:
    """Inputs drawn on the host, so that every device gets the same."""
    return CASES[name].inputs(torch.Generator().manual_seed(seed))


def ulps_apart(got: torch.Tensor, twin: torch.Tensor) -> float:
    """Largest distance in units in the last place of the twin's largest value; infinite where NaN meets a number."""
    if not twin.is_floating_point():
        return 0.0 if torch.equal(got, twin) else float("inf")
    unit = torch.finfo(twin.dtype).eps * twin.abs().amax().clamp_min(torch.finfo(twin.dtype).tiny)
    return float(((got - twin).abs() / unit).nan_to_num(nan=float("inf")).amax())
