"""Draws keyed by (seed, purpose, step, row, lane): no generator state exists, so nothing races and resume is trivial.

key = (seed low word, seed high word); counter = (lane, row, step, purpose); a draw is output word 0.
"""

from __future__ import annotations

import torch

from kernels import build
from kernels.arguments import check
from kernels.philox import kernel, reference

# One number a use; a number is never given a second meaning, or two uses would share their draws.
PURPOSES: dict[str, int] = {
    "init": 1, "action": 2, "episode_start": 3, "replay": 4, "minibatch": 5, "surrogate": 6, "synthetic": 7,
}  # fmt: skip


def words(seed: int, purpose: str, step: int | torch.Tensor, rows: torch.Tensor, lanes: int) -> torch.Tensor:
    """int64 tensor [len(rows), lanes] of uint32 draws; rows is an int64 tensor of row numbers below 2^32."""
    return (kernel if build.on_gpu(rows) else reference).words(rows, lanes, step, PURPOSES[purpose], key(seed))


def uniforms(seed: int, purpose: str, step: int | torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """float32 [len(rows)], `uniform` of the first lane of `words`: one launch for what only wants a draw a row."""
    check("rows", rows, (None,), torch.int64)
    return (kernel if build.on_gpu(rows) else reference).uniforms(rows, step, PURPOSES[purpose], key(seed))


def key(seed: int) -> tuple[int, int]:
    """The two key words of a seed."""
    return seed & 0xFFFFFFFF, (seed >> 32) & 0xFFFFFFFF


def uniform(drawn: torch.Tensor) -> torch.Tensor:
    """float32 in [0, 1) from uint32 draws: (x >> 8) x 2^-24, which cannot round up to 1."""
    return (drawn >> 8).to(torch.float32) * 2.0**-24


def normal(seed: int, purpose: str, step: int, rows: torch.Tensor, lanes: int) -> torch.Tensor:
    """Standard normal float32 [len(rows), lanes] by Box-Muller on two draws each, computed in float64."""
    drawn = words(seed, purpose, step, rows, 2 * lanes).to(torch.float64)
    u1, u2 = (drawn[:, :lanes] + 1.0) * 2.0**-32, drawn[:, lanes:] * 2.0**-32
    return (torch.sqrt(-2.0 * torch.log(u1)) * torch.cos(2.0 * torch.pi * u2)).to(torch.float32)
