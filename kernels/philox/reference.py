"""Philox 4x32-10 on torch int64 tensors, bit-equal to the published known answers and to the CUDA kernel."""

from __future__ import annotations

import torch

_MASK = 0xFFFFFFFF
_M0, _M1 = 0xD2511F53, 0xCD9E8D57  # Salmon et al. 2011, multipliers
_W0, _W1 = 0x9E3779B9, 0xBB67AE85  # Weyl key increments
_ROUNDS = 10


def philox4x32(
    counter: tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor], key: tuple[int, int]
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Four uint32 words (in int64 tensors) for four broadcastable uint32 counter words and a two-word key."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(_ROUNDS):
        p0, p1 = c0 * _M0, c2 * _M1  # wraps modulo 2^64; the shift below reads the high word all the same
        c0, c1, c2, c3 = (
            ((p1 >> 32) & _MASK) ^ c1 ^ k0,
            p1 & _MASK,
            ((p0 >> 32) & _MASK) ^ c3 ^ k1,
            p0 & _MASK,
        )
        k0, k1 = (k0 + _W0) & _MASK, (k1 + _W1) & _MASK
    return c0, c1, c2, c3


def words(rows: torch.Tensor, lanes: int, step: int | torch.Tensor, purpose: int, key: tuple[int, int]) -> torch.Tensor:
    """int64 [len(rows), lanes]: word 0 of counter (lane, row, step, purpose)."""
    lane = torch.arange(lanes, device=rows.device, dtype=torch.int64)[None, :]
    row = rows.to(torch.int64)[:, None].expand(-1, lanes)
    full = torch.zeros_like(row)
    return philox4x32((lane.expand_as(row), row, full + step, full + purpose), key)[0]


def uniforms(rows: torch.Tensor, step: int | torch.Tensor, purpose: int, key: tuple[int, int]) -> torch.Tensor:
    """float32 [len(rows)]: lane 0 of `words` in [0, 1)."""
    return (words(rows, 1, step, purpose, key)[:, 0] >> 8).to(torch.float32) * 2.0**-24
