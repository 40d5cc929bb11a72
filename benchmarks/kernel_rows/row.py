"""What a row of the kernels' table is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Row:
    """One measurement: the same arguments through kernel and twin. moved: bytes a call must read and write.

    Tensors among the arguments are copied before results are compared; what is deeper must not be written by both.
    """

    name: str
    kernel: Callable[..., Any]
    twin: Callable[..., Any]
    args: tuple[Any, ...]
    moved: int
    tolerance: float = 0.0  # largest difference to the twin, over the largest value
    compiled: bool = True  # False where torch.compile has no whole graph to compile
    peer: Callable[..., Any] | None = None  # what torch.compile is given where it refuses the twin
    oracle: Callable[..., Any] | None = (
        None  # what the kernel is compared with where the twin is timed for a part of it
    )


def written(function: Callable[..., Any], *places: int) -> Callable[..., tuple[Any, ...]]:
    """A function that writes arguments, as one that returns them, behind what it returns itself."""

    def call(*args: Any) -> tuple[Any, ...]:
        found = function(*args)
        own = () if found is None else found if isinstance(found, tuple) else (found,)
        return *own, *(args[place] for place in places)

    return call
