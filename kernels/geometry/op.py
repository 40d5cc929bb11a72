"""Health of a hidden state over a batch: are its rows alike, how many directions do they use, how far did they move."""

from __future__ import annotations

import torch

from kernels import build
from kernels.arguments import FLOATS, check
from kernels.geometry import kernel, reference
from kernels.geometry.reference import NUMBERS

__all__ = ["NUMBERS", "geometry"]


def geometry(h: torch.Tensor, before: torch.Tensor, left_out: torch.Tensor) -> torch.Tensor:
    """float64 [5], by NUMBERS, of h [R, H]:

    unit_sum_square: |sum of the rows scaled to length 1|^2, so that the mean cosine of two rows is
    (unit_sum_square - R) / (R (R - 1)). trace, square: tr C and tr C^2 of the biased covariance of the H units, whose
    participation ratio is trace^2 / square. moved: sum of |h - before| over the rows that are not
    left out. counted: their number. before: [R, H]. left_out: bool [R].
    """
    check("h", h, (None, None), *FLOATS)
    check("before", before, tuple(h.shape), h.dtype)
    check("left_out", left_out, (h.shape[0],), torch.bool)
    if not h.numel():
        raise ValueError("h: no element")
    return (kernel if build.on_gpu(h) else reference).geometry(h, before, left_out)
