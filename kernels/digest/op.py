"""Digests of tensors and of lists of tensors; the leaf form fits an int every JSON reader keeps exactly."""

from __future__ import annotations

import torch

from kernels import build
from kernels.digest import reference
from kernels.digest.kernel import Digests
from kernels.digest.reference import digest32

__all__ = ["Digests", "chain", "digest32", "digest64", "leaf53"]


def digest64(x: torch.Tensor, seed: int = 0) -> int:
    """64-bit digest of a tensor's raw bits, as a Python int in [0, 2^64); the host waits for it.

    `Digests` keeps those of fixed buffers on the device instead.
    """
    if not build.on_gpu(x):
        return reference.digest64(x, seed)
    return int(Digests([x.contiguous()], [seed]).run()) % 2**64


def chain(previous: int, x: torch.Tensor) -> int:
    """The digest of `previous` followed by x: a running digest whose cost does not grow."""
    return digest64(x, seed=previous - 2**64 if previous >= 2**63 else previous)


def leaf53(digest: int) -> int:
    """(d AND (2^53 - 1)) XOR (d >> 53): the form of the checksums leaves."""
    return (digest & (2**53 - 1)) ^ (digest >> 53)
