"""Largest singular values of fixed matrices, followed from row to row by one power iteration each."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from kernels import build
from kernels.arguments import check
from kernels.spectral import kernel, reference


class Powers:
    """matrices: float32 [rows, columns]; vectors: u float32 [rows] of each, not 0. Named once, read where they lie.

    They must stay allocated and contiguous.
    """

    def __init__(self, matrices: Sequence[torch.Tensor], vectors: Sequence[torch.Tensor]) -> None:
        for i, (w, u) in enumerate(zip(matrices, vectors, strict=True)):
            check(f"matrices[{i}]", w, (None, None), torch.float32)
            check(f"vectors[{i}]", u, (w.shape[0],), torch.float32)
            if not w.is_contiguous() or not u.is_contiguous():
                raise ValueError(f"matrices[{i}]: it or its vector is not contiguous, and a copy would not follow it")
        self._matrices, self._vectors = [w.detach() for w in matrices], [u.detach() for u in vectors]
        self._tables = kernel.Tables(self._matrices, self._vectors) if build.on_gpu(matrices[0]) else None

    def step(self) -> torch.Tensor:
        """float32 [matrices]: sigma = u . W v after one iteration; every u moves in place.

        Miyato et al. 2018 (1802.05957, Algorithm 1).
        """
        return reference.step(self._matrices, self._vectors) if self._tables is None else self._tables.step()
