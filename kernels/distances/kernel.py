"""Host side of distances.cu."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from kernels import build

_THREADS = 256
_CHUNK = 4096  # elements of a block


class Tables:
    """Where the pairs lie, by chunk."""

    def __init__(self, pairs: Sequence[tuple[torch.Tensor, torch.Tensor | None]]) -> None:
        device = pairs[0][0].device
        items, bounds = [], [0]
        for p, (a, b) in enumerate(pairs):
            for at in range(0, a.numel(), _CHUNK):
                other = 0 if b is None else b.data_ptr() + 4 * at
                items.append((a.data_ptr() + 4 * at, other, min(_CHUNK, a.numel() - at), p))
            bounds.append(len(items))
        self._items = torch.tensor(items, dtype=torch.int64, device=device)
        self._bounds = torch.tensor(bounds, dtype=torch.int64, device=device)
        self._reached = [x for pair in pairs for x in pair if x is not None]

    def run(self) -> torch.Tensor:
        """float64 [pairs, 2]."""
        chunks, pairs = len(self._items), len(self._bounds) - 1
        parts, out = (torch.empty(n, 2, dtype=torch.float64, device=self._items.device) for n in (chunks, pairs))
        through = self._reached
        build.launch("distances", "distances_parts", (chunks,), (_THREADS,), self._items, parts, through=through)
        build.launch("distances", "distances_finish", (pairs,), (_THREADS,), parts, self._bounds, out)
        return out
