"""Digests of tensors and of lists of tensors; the leaf form fits an int every JSON reader keeps exactly."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import torch

from kernels import build
from kernels.arguments import check
from kernels.digest import kernel, reference


class Digests:
    """Digests of fixed buffers in two launches, on the device: no host synchronisation, fit for a captured graph.

    Buffers and seeds are named once and read where they lie at every `run`; they must stay allocated and contiguous.
    """

    def __init__(
        self,
        buffers: Sequence[torch.Tensor | Sequence[torch.Tensor]],
        seeds: Sequence[int | torch.Tensor] | None = None,
        narrow: Collection[int] = (),
    ) -> None:
        """buffers: one a digest, or several that are digested end to end, each filled up to whole words of 8 bytes.

        seeds: 0 by default; an int64 [1] tensor makes a chain: every run replaces it by the digest. narrow: positions
        that are digest32 instead, which has no seed.
        """
        self._parts = [[_whole(x) for x in ([b] if isinstance(b, torch.Tensor) else b)] for b in buffers]
        given = list(seeds) if seeds is not None else [0] * len(self._parts)
        self._chains = frozenset(i for i, seed in enumerate(given) if isinstance(seed, torch.Tensor))
        self._narrow = frozenset(narrow)
        if both := sorted(self._chains & self._narrow):
            raise ValueError(f"seeds[{both[0]}]: digest32 has no seed")
        numbers = [0 if isinstance(seed, torch.Tensor) else seed for seed in given]
        self.seeds = torch.tensor(numbers, dtype=torch.int64, device=self._parts[0][0].device)  # of all but chains
        self._read = [
            _chained(i, x) if isinstance(x, torch.Tensor) else self.seeds[i : i + 1] for i, x in enumerate(given)
        ]
        gpu = any(build.on_gpu(x) for parts in self._parts for x in parts)
        self._tables = kernel.Tables(self._parts, self._read, self._chains, self._narrow) if gpu else None

    def run(self) -> torch.Tensor:
        """int64 [digests]: digest64 of each as a signed word (`unsigned`), digest32 of the narrow ones."""
        if self._tables is None:
            return reference.run(self._parts, self._read, self._chains, self._narrow)
        return self._tables.run()


def _whole(x: torch.Tensor) -> torch.Tensor:
    if not x.is_contiguous():
        raise ValueError("buffers: one is not contiguous, and a copy would not follow it")
    return x.detach()


def _chained(number: int, seed: torch.Tensor) -> torch.Tensor:
    check(f"seeds[{number}]", seed, (1,), torch.int64)
    return seed


def digest64(x: torch.Tensor, seed: int = 0) -> int:
    """64-bit digest of a tensor's raw bits, as a Python int in [0, 2^64); the host waits for it.

    `Digests` keeps those of fixed buffers on the device instead.
    """
    if not build.on_gpu(x):
        return reference.digest64(x, seed)
    return unsigned(int(Digests([x.contiguous()], [seed]).run()))


def unsigned(word: int) -> int:
    """A digest in [0, 2^64) from the signed word that a tensor holds."""
    return word % 2**64


def leaf53(digest: int) -> int:
    """(d AND (2^53 - 1)) XOR (d >> 53): the form of the checksums leaves."""
    return (digest & (2**53 - 1)) ^ (digest >> 53)
