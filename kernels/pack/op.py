"""Numbers of fixed buffers, whatever their type, as one float64 array."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from kernels import build
from kernels.arguments import check
from kernels.pack import kernel, reference


class Pack:
    """Named once, read where they lie at every `run`: one launch, no host synchronisation, fit for a captured graph.

    sources: contiguous tensors of any shape that stay allocated. int64 is exact to 2^53.
    """

    def __init__(self, sources: Sequence[torch.Tensor]) -> None:
        for i, x in enumerate(sources):
            check(f"sources[{i}]", x, tuple(x.shape), *kernel.TYPES)
            if not x.is_contiguous():
                raise ValueError(f"sources[{i}]: not contiguous, and a copy would not follow it")
        self.sources = [x.detach() for x in sources]
        self._table = kernel.table(self.sources) if any(map(build.on_gpu, self.sources)) else None

    def run(self) -> torch.Tensor:
        """float64 [sum of sizes]: the sources one after another."""
        if self._table is None:
            return reference.pack(self.sources)
        return kernel.pack(self._table, self.sources)
