"""Host side of acting.cu: the function of reference.py."""

from __future__ import annotations

from functools import cache

import torch

from kernels import build
from kernels.acting import reference
from kernels.acting.reference import Acted, Heads, History, Paid, Scale

_THREADS, _FOLD_THREADS = 32, 64


@cache
def _entries(actions: int, horizons: int, device: torch.device) -> torch.Tensor:
    """int64 [folds, 3] on the device: made at the first call and kept, so that a captured graph copies nothing."""
    return torch.tensor([entry[1:] for entry in reference.entries(actions, horizons)], device=device)


@cache
def _scale(scale: Scale, device: torch.device) -> torch.Tensor:
    return torch.tensor(scale, dtype=torch.float64, device=device)


def acting(h: Heads, a: Acted, p: Paid, history: History, scale: Scale) -> torch.Tensor:
    """float64 [len(names)]."""
    device = h.legal.device
    (accounts, actions), horizons = h.legal.shape, h.frd_logits.shape[1]
    order, entries = reference.order(actions, horizons), _entries(actions, horizons, device)
    table = torch.empty(len(order), accounts, dtype=torch.float64, device=device)
    row = torch.empty_like(history.rows)
    inputs = [x.detach().contiguous() for x in (*h, *a, *p)]
    sizes = (accounts, actions, h.q_logits.shape[2], horizons, h.frd_logits.shape[2])
    state = (history.shares, history.last_action, history.rows, _scale(scale, device))
    grid = (build.ceil_div(accounts, _THREADS), 3 + horizons)
    build.launch("acting", "acting_quantities", grid, (_THREADS,), *inputs, *state, *sizes, table, row)
    out = torch.empty(len(reference.names(actions, horizons)), dtype=torch.float64, device=device)
    rows = (order.index("pi.executed"), order.index("reward.closed_raw"))
    kept = (len(history.counts), row, history.counts, history.closed_raw, history.rows)
    folds = (table, entries, len(entries), accounts, actions, *rows, *kept, out)
    build.launch("acting", "acting_folds", (len(entries) + actions + 1,), (_FOLD_THREADS,), *folds)
    return out
