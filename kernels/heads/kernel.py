"""Host side of heads.cu: the function of reference.py."""

from __future__ import annotations

import torch

from kernels import build
from kernels.heads.reference import Outputs, Weights

_ROWS, _THREADS = 4, 256  # of a block
WIDEST = 256  # most units, and most outputs of a head


def acting(h: torch.Tensor, w: Weights, support: torch.Tensor, frd_atoms: torch.Tensor, into: Outputs) -> None:
    rows, units = h.shape
    (actions, atoms), (horizons, bins), hidden = into.q_logits.shape[1:], into.frd_logits.shape[1:], w.frd_b1.numel()
    sizes = {"h": units, "q_w": w.q_b.numel(), "frd_w1": hidden, "frd_w2": w.frd_b2.numel()}
    for name, size in sizes.items():
        if size > WIDEST:
            raise ValueError(f"{name}: {size} values a row, the kernel holds at most {WIDEST}")
    inputs: list[build.Argument] = [x.contiguous() for x in (h, *w, support, frd_atoms)]
    counts = (rows, units, actions, atoms, hidden, horizons, bins)
    build.launch("heads", "heads_acting", (build.ceil_div(rows, _ROWS),), (_THREADS,), *inputs, *counts, *into)
