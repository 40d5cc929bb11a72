"""Norms of gradients on their way to be added up."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from kernels import build
from kernels.arguments import check
from kernels.norms import kernel, reference


def norms(parts: Sequence[torch.Tensor], total: torch.Tensor | None, gate: torch.Tensor, out: torch.Tensor) -> None:
    """Write the L2 norms of up to eight float32 tensors of one shape to out, float64 [parts] (+ 1 with a total).

    total: takes the sum of the parts, added in their order; its norm is the last. Where gate float32 [1] is 0, out
    stays as it is; the total is written all the same.
    """
    if not 1 <= len(parts) <= kernel.PARTS:
        raise ValueError(f"parts: {len(parts)}, expected 1 to {kernel.PARTS}")
    for i, x in enumerate([*parts, *([] if total is None else [total])]):
        check(f"parts[{i}]" if i < len(parts) else "total", x, tuple(parts[0].shape), torch.float32)
    if total is not None and not total.is_contiguous():
        raise ValueError("total: not contiguous")
    check("gate", gate, (1,), torch.float32)
    check("out", out, (len(parts) + (total is not None),), torch.float64)
    (kernel if build.on_gpu(gate) else reference).norms(parts, total, gate, out)
