"""Norms of fixed buffers, and how far some are from others, in two launches."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from kernels import build
from kernels.arguments import check
from kernels.distances import kernel, reference


class Distances:
    """pairs: float32 tensors (a, b) of one shape, or (a, None) for a alone; named once, read where they lie.

    They must stay allocated and contiguous.
    """

    def __init__(self, pairs: Sequence[tuple[torch.Tensor, torch.Tensor | None]]) -> None:
        for i, (a, b) in enumerate(pairs):
            check(f"pairs[{i}][0]", a, tuple(a.shape), torch.float32)
            if b is not None:
                check(f"pairs[{i}][1]", b, tuple(a.shape), torch.float32)
            if not a.is_contiguous() or not (b is None or b.is_contiguous()):
                raise ValueError(f"pairs[{i}]: not contiguous, and a copy would not follow it")
        self._pairs = [(a.detach(), None if b is None else b.detach()) for a, b in pairs]
        self._tables = kernel.Tables(self._pairs) if build.on_gpu(pairs[0][0]) else None

    def run(self) -> torch.Tensor:
        """float64 [pairs, 2]: L2 norm and largest absolute element of a - b, or of a."""
        return reference.run(self._pairs) if self._tables is None else self._tables.run()
