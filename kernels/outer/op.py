"""The gradient of a linear layer's weights and bias: sums of outer products over the rows, in a fixed order."""

from __future__ import annotations

import torch

from kernels import build
from kernels.arguments import FLOATS, check
from kernels.outer import kernel, reference


def weight_gradient(slope: torch.Tensor, x: torch.Tensor, into: torch.Tensor) -> None:
    """Write dL/dw = slope' x [O, I], then dL/db, the sum of slope's rows [O], into one flat buffer [O I + O].

    slope: dL/dy [R, O] of y = x w' + b. x: [R, I]. R >= 1.
    """
    check("x", x, (None, None), *FLOATS)
    check("slope", slope, (x.shape[0], None), x.dtype)
    check("into", into, (slope.shape[1] * (x.shape[1] + 1),), x.dtype)
    if x.shape[0] == 0:
        raise ValueError("x: no row to add")
    (kernel if build.on_gpu(x) else reference).weight_gradient(slope, x, into)
