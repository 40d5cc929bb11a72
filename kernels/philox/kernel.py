"""Host side of philox.cu."""

from __future__ import annotations

import torch

from kernels import build

_THREADS = 128


def words(rows: torch.Tensor, lanes: int, step: int | torch.Tensor, purpose: int, key: tuple[int, int]) -> torch.Tensor:
    """int64 [len(rows), lanes]."""
    out = torch.empty(rows.numel(), lanes, dtype=torch.int64, device=rows.device)
    grid = (build.ceil_div(out.numel(), _THREADS),)
    rows = rows.to(torch.int64).contiguous()
    args = (*build.whole(step, rows), purpose, *key, rows.numel(), lanes, out)
    build.launch("philox", "philox_words", grid, (_THREADS,), rows, *args)
    return out


def uniforms(rows: torch.Tensor, step: int | torch.Tensor, purpose: int, key: tuple[int, int]) -> torch.Tensor:
    """float32 [len(rows)]."""
    n, rows = rows.numel(), rows.contiguous()
    out = torch.empty(n, dtype=torch.float32, device=rows.device)
    args = (*build.whole(step, rows), purpose, *key, n, out)
    build.launch("philox", "philox_uniforms", (build.ceil_div(n, _THREADS),), (_THREADS,), rows, *args)
    return out
