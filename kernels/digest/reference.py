"""digest64: D = fmix(sum_i fmix(w_i XOR fmix(i K + seed)) XOR nbytes K) modulo 2^64 over 8-byte words.

digest32(x) = sum_i (2 i + 1) x (32-bit word i) modulo 2^32, row-major. fmix is MurmurHash3's 64-bit finaliser.
Several tensors are digested end to end, each filled up with zero bytes to whole words; nbytes counts their own.
"""

from __future__ import annotations

from collections.abc import Container, Sequence

import torch

_K = 0x9E3779B97F4A7C15
_C1, _C2 = 0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53
_MASK64 = 2**64 - 1

Parts = Sequence[torch.Tensor]


def _signed(x: int) -> int:
    x &= _MASK64
    return x - 2**64 if x >= 2**63 else x


def _shift33(x: torch.Tensor) -> torch.Tensor:
    return (x >> 33) & 0x7FFFFFFF  # logical shift on int64


def _fmix(x: torch.Tensor) -> torch.Tensor:
    x = (x ^ _shift33(x)) * _signed(_C1)
    x = (x ^ _shift33(x)) * _signed(_C2)
    return x ^ _shift33(x)


def _words(x: torch.Tensor) -> torch.Tensor:
    """int64: the bytes of x in words, zeros to the end of the last."""
    raw = x.detach().contiguous().reshape(-1).view(torch.uint8)
    if tail := -raw.numel() % 8:
        raw = torch.cat([raw, raw.new_zeros(tail)])
    elif raw.storage_offset() % 8:  # a view that starts between words
        raw = raw.clone()
    return raw.view(torch.int64)


def wide(parts: Parts, seed: torch.Tensor | int = 0) -> torch.Tensor:
    """0-dim int64: digest64 of tensors end to end, as a signed word."""
    words = _end_to_end(parts)
    position = torch.arange(words.numel(), device=words.device) * _signed(_K) + seed
    nbytes = sum(x.numel() * x.element_size() for x in parts)
    return _fmix(_fmix(words ^ _fmix(position)).sum() ^ _signed(nbytes * _K))


def narrow(parts: Parts) -> torch.Tensor:
    """0-dim int64: digest32 of tensors end to end."""
    words = _end_to_end(parts)
    odd = 4 * torch.arange(words.numel(), device=words.device) + 1
    return (odd * (words & 0xFFFFFFFF) + (odd + 2) * ((words >> 32) & 0xFFFFFFFF)).sum() & 0xFFFFFFFF


def _end_to_end(parts: Parts) -> torch.Tensor:
    """int64: the words of all parts; in one piece, since a small tensor costs torch as much as a large one."""
    return torch.cat([_words(x) for x in parts])


def run(
    digests: Sequence[Parts], seeds: Sequence[torch.Tensor], chains: Container[int], narrow_ones: Container[int]
) -> torch.Tensor:
    """int64 [digests]; the seed of a chain takes the digest for the next run."""
    found = []
    for i, (parts, seed) in enumerate(zip(digests, seeds, strict=True)):
        found.append(narrow(parts) if i in narrow_ones else wide(parts, seed[0]))
        if i in chains:
            seed.copy_(found[-1])
    return torch.stack(found)


def digest64(x: torch.Tensor, seed: int = 0) -> int:
    """64-bit digest of a tensor's raw bits, as a Python int in [0, 2^64)."""
    return int(wide([x], seed)) & _MASK64


def digest32(x: torch.Tensor) -> int:
    """32-bit digest of a tensor's raw bits, as a Python int in [0, 2^32)."""
    return int(narrow([x]))
