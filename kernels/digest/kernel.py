"""Host side of digest.cu."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from kernels import build

_THREADS = 256
_CHUNK_WORDS = 4096  # 32 KiB, what one block adds up


class Digests:
    """digest64 of fixed buffers in two launches, on the device: no host synchronisation, fit for a captured graph.

    The buffers are named once and read where they lie at every `run`; they must stay allocated and contiguous.
    """

    def __init__(self, buffers: Sequence[torch.Tensor], seeds: Sequence[int]) -> None:
        self.buffers = [_whole(x) for x in buffers]
        device = self.buffers[0].device
        sizes = [x.numel() * x.element_size() for x in self.buffers]
        rows = [(x.data_ptr(), size, seed) for x, size, seed in zip(self.buffers, sizes, seeds)]
        items = [(i, word) for i, size in enumerate(sizes) for word in range(0, build.ceil_div(size, 8), _CHUNK_WORDS)]
        self._table = torch.tensor(rows, dtype=torch.int64, device=device)
        self._items = torch.tensor(items, dtype=torch.int64, device=device).view(-1, 2)
        self._totals = torch.zeros(len(rows), dtype=torch.int64, device=device)

    def run(self) -> torch.Tensor:
        """int64 [buffers]: digest64 of each, as signed words."""
        out = torch.empty_like(self._totals)
        n = len(self.buffers)
        sums = (self._table, self._items, _CHUNK_WORDS, self._totals)
        build.launch(
            "digest", "digest_sums", (len(self._items),), (_THREADS,), *sums, through=self.buffers
        )  # fmt: skip
        build.launch("digest", "digest_finish", (build.ceil_div(n, 64),), (64,), self._table, n, self._totals, out)
        return out


def _whole(x: torch.Tensor) -> torch.Tensor:
    if not x.is_contiguous():
        raise ValueError("buffers: one is not contiguous, and a copy would not follow it")
    return x.detach()
