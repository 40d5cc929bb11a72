"""Host side of adamw.cu: the function of reference.py over prepared tables."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from kernels import build

_THREADS = 256
_CHUNK = 1024  # elements of a block


class Tables:
    """What the three launches share: chunks by segment, and room for their sums."""

    def __init__(self, segments: Sequence[slice], device: torch.device) -> None:
        chunks = [
            (at, min(at + _CHUNK, where.stop), s)
            for s, where in enumerate(segments)
            for at in range(where.start, where.stop, _CHUNK)
        ]
        bounds = [sum(1 for *_, of in chunks if of < s) for s in range(len(segments) + 1)]
        self.items = torch.tensor(chunks, dtype=torch.int64, device=device)
        self.bounds = torch.tensor(bounds, dtype=torch.int64, device=device)
        self.n_segments = len(segments)


def step(
    weights: torch.Tensor,
    grads: torch.Tensor,
    m: torch.Tensor,
    v: torch.Tensor,
    t: torch.Tensor,
    rates: torch.Tensor,
    gate: torch.Tensor,
    constants: torch.Tensor,
    tables: Tables,
    stats: torch.Tensor,
) -> None:
    """One update in place where gate is 1, and its statistics."""
    items, n = tables.items, len(tables.items)
    before = torch.empty(n, 4, dtype=torch.float64, device=weights.device)
    after = torch.empty(n, 2, dtype=torch.float64, device=weights.device)
    build.launch("adamw", "adamw_norms", (n,), (_THREADS,), weights, grads, items, before)
    state = (weights, grads, m, v, t, rates, gate, constants)
    build.launch("adamw", "adamw_step", (n,), (_THREADS,), *state, items, n, before, after)
    sums = (before, after, tables.bounds, gate, tables.n_segments, weights.numel(), t, stats)
    build.launch("adamw", "adamw_finish", (tables.n_segments + 1,), (_THREADS,), *sums)
