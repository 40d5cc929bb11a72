"""digest64: D = fmix(sum_i fmix(w_i XOR fmix(i K + seed)) XOR nbytes K) modulo 2^64 over 8-byte words.

digest32(x) = sum_i (2 i + 1) x (32-bit word i) modulo 2^32, row-major. fmix is MurmurHash3's 64-bit finaliser.
"""

from __future__ import annotations

import torch

_K = 0x9E3779B97F4A7C15
_C1, _C2 = 0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53
_MASK64 = 2**64 - 1


def _signed(x: int) -> int:
    x &= _MASK64
    return x - 2**64 if x >= 2**63 else x


def _shift33(x: torch.Tensor) -> torch.Tensor:
    return (x >> 33) & 0x7FFFFFFF  # logical shift on int64


def _fmix(x: torch.Tensor) -> torch.Tensor:
    x = (x ^ _shift33(x)) * _signed(_C1)
    x = (x ^ _shift33(x)) * _signed(_C2)
    return x ^ _shift33(x)


def _fmix_int(x: int) -> int:
    x = ((x ^ (x >> 33)) * _C1) & _MASK64
    x = ((x ^ (x >> 33)) * _C2) & _MASK64
    return x ^ (x >> 33)


def _words(x: torch.Tensor, dtype: torch.dtype, size: int) -> torch.Tensor:
    raw = x.detach().contiguous().reshape(-1).view(torch.uint8)
    if tail := -raw.numel() % size:
        raw = torch.cat([raw, raw.new_zeros(tail)])
    elif raw.storage_offset() % size:  # a view that starts between words
        raw = raw.clone()
    return raw.view(dtype)


def word_sum(x: torch.Tensor, seed: int = 0) -> torch.Tensor:
    """0-dim int64: the sum over the words of x, before the length is mixed in."""
    words = _words(x, torch.int64, 8)
    position = torch.arange(words.numel(), dtype=torch.int64, device=x.device) * _signed(_K) + seed
    return _fmix(words ^ _fmix(position)).sum()


def digest64(x: torch.Tensor, seed: int = 0) -> int:
    """64-bit digest of a tensor's raw bits, as a Python int in [0, 2^64)."""
    total = int(word_sum(x, seed))
    nbytes = x.numel() * x.element_size()
    return _fmix_int((total & _MASK64) ^ ((nbytes * _K) & _MASK64))


def digest32(x: torch.Tensor) -> int:
    """32-bit digest of a tensor's raw bits, as a Python int in [0, 2^32)."""
    words = _words(x, torch.int32, 4).to(torch.int64) & 0xFFFFFFFF
    odd = 2 * torch.arange(words.numel(), dtype=torch.int64, device=x.device) + 1
    return int(((words * odd) & 0xFFFFFFFF).sum()) & 0xFFFFFFFF
