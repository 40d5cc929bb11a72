"""Windows of a table [N, C] that lies on the device whole: they are row numbers, never kept as copies.

Row numbers are the caller's to keep inside the table: nothing here reads them on the host.
"""

from __future__ import annotations

import torch

from kernels import build
from kernels.arguments import check
from kernels.gather import kernel, reference

_TYPES = (torch.float32, torch.int32, torch.int64, torch.float64)


def windows(
    table: torch.Tensor,
    segment_start: torch.Tensor,
    anchors: torch.Tensor,
    steps: int,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """Windows [R, K, C] of K = steps rows ending at anchors int64 [R]; the bits of the table, unchanged.

    table: [N, C] features, say. segment_start: int64 [N], first row of each row's segment; it stands in for the
    rows a window would have before it. out: where to write them, contiguous; new memory by default.
    """
    check("table", table, (None, None), *_TYPES)
    check("segment_start", segment_start, (table.shape[0],), torch.int64)
    check("anchors", anchors, (None,), torch.int64)
    if steps < 1:
        raise ValueError(f"steps: {steps}, expected at least 1")
    if out is None:
        out = torch.empty(anchors.numel(), steps, table.shape[1], dtype=table.dtype, device=table.device)
    check("out", out, (anchors.numel(), steps, table.shape[1]), table.dtype)
    (kernel if build.on_gpu(table) else reference).windows(table, segment_start, anchors, out)
    return out
