"""Host side of spectral.cu."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from kernels import build

_THREADS = 1024


class Tables:
    """Where matrices and vectors lie, and room for W^T u."""

    def __init__(self, matrices: Sequence[torch.Tensor], vectors: Sequence[torch.Tensor]) -> None:
        device, rows, at = matrices[0].device, [], 0
        for w, u in zip(matrices, vectors, strict=True):
            rows.append((w.data_ptr(), u.data_ptr(), *w.shape, at))
            at += w.shape[1]
        self._table = torch.tensor(rows, dtype=torch.int64, device=device)
        self._v = torch.zeros(at, device=device)
        self._reached = [*matrices, *vectors]

    def step(self) -> torch.Tensor:
        """float32 [matrices]."""
        n = len(self._table)
        sigmas = torch.empty(n, device=self._table.device)
        args = (self._table, self._v, sigmas)
        build.launch("spectral", "spectral_step", (n,), (_THREADS,), *args, through=self._reached)
        return sigmas
