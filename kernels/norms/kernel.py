"""Host side of norms.cu: the function of reference.py."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from kernels import build

PARTS = 8  # buffers of a launch: arguments, so that they may be any tensors, in a captured graph too
_THREADS = 256
_CHUNK = 1024  # elements of a block


def norms(parts: Sequence[torch.Tensor], total: torch.Tensor | None, gate: torch.Tensor, out: torch.Tensor) -> None:
    """Norms of the parts, then of their sum where it is wanted."""
    n, elements = len(parts), parts[0].numel()
    blocks = build.ceil_div(elements, _CHUNK)
    squares = torch.empty(blocks, n + 1, dtype=torch.float64, device=gate.device)
    held = [*(x.contiguous() for x in parts), *[None] * (PARTS - n)]
    build.launch("norms", "norms_squares", (blocks,), (_THREADS,), *held, n, elements, _CHUNK, total, squares)
    build.launch("norms", "norms_finish", (out.numel(),), (_THREADS,), squares, n, blocks, gate, out)
