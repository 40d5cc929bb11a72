"""Host side of digest.cu."""

from __future__ import annotations

from collections.abc import Container, Sequence

import torch

from kernels import build

_THREADS = 256
_CHUNK_WORDS = 4096  # 32 KiB, what one block adds up
_CHAIN, _NARROW = 1, 2

Parts = Sequence[torch.Tensor]


class Tables:
    """Where the parts of each digest lie, and room for its sum."""

    def __init__(
        self, digests: Sequence[Parts], seeds: Sequence[torch.Tensor], chains: Container[int], narrow: Container[int]
    ) -> None:
        device = digests[0][0].device
        rows, items = [], []
        for d, (parts, seed) in enumerate(zip(digests, seeds, strict=True)):
            kind = _NARROW if d in narrow else _CHAIN if d in chains else 0
            rows.append((sum(map(_bytes, parts)), seed.data_ptr(), kind))
            before = 0
            for x in parts:
                words = build.ceil_div(_bytes(x), 8)
                items += [(d, x.data_ptr(), _bytes(x), word, before) for word in range(0, words, _CHUNK_WORDS)]
                before += words
        self._table = torch.tensor(rows, dtype=torch.int64, device=device)
        self._items = torch.tensor(items, dtype=torch.int64, device=device).view(-1, 5)
        self._totals = torch.zeros(len(rows), dtype=torch.int64, device=device)
        self._reached = [*(x for parts in digests for x in parts), *seeds]

    def run(self) -> torch.Tensor:
        """int64 [digests]."""
        out, n, through = torch.empty_like(self._totals), len(self._totals), self._reached
        sums = (self._table, self._items, _CHUNK_WORDS, self._totals)
        build.launch("digest", "digest_sums", (len(self._items),), (_THREADS,), *sums, through=through)
        finish = (self._table, n, self._totals, out)
        build.launch("digest", "digest_finish", (build.ceil_div(n, 64),), (64,), *finish, through=through)
        return out


def _bytes(x: torch.Tensor) -> int:
    return x.numel() * x.element_size()
