"""Does an input know the next move of the mid? Correlations near 1 say that a feature looks ahead."""

from __future__ import annotations

import torch

from kernels import build
from kernels.arguments import FLOATS, check
from kernels.lob.op import ABSENT
from kernels.lookahead import kernel, reference
from kernels.lookahead.reference import MOMENTS

__all__ = ["MOMENTS", "correlate"]


def correlate(
    x: torch.Tensor,
    bid_px: torch.Tensor,
    ask_px: torch.Tensor,
    now: torch.Tensor,
    after: torch.Tensor,
    rate: float,
    moments: torch.Tensor,
    absent: int = ABSENT,
) -> torch.Tensor:
    """float64 [F] in [-1, 1]: correlation of each newest input with the change of the mid; 0 where one never varies.

    x: [B, K, F] windows, the newest row last. bid_px, ask_px: int32 [rows, L] ticks of the tape. now, after: int64 [B],
    rows of the decision and of the next state; an account that stayed, or lacks one of the two mids, is no observation.
    moments: float64 [F, MOMENTS], means of x, y, xx, yy, xy, all 0 before the first observation; moved in place by
    `rate` towards the means of this batch, if anybody moved.
    """
    check("x", x, (None, None, None), *FLOATS)
    check("bid_px", bid_px, (None, None), torch.int32)
    check("ask_px", ask_px, tuple(bid_px.shape), torch.int32)
    check("now", now, (x.shape[0],), torch.int64)
    check("after", after, (x.shape[0],), torch.int64)
    check("moments", moments, (x.shape[2], MOMENTS), torch.float64)
    return (kernel if build.on_gpu(x) else reference).correlate(x, bid_px, ask_px, now, after, absent, rate, moments)
