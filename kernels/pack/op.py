"""Numbers of tensors of any type, side by side as words of eight bytes."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from kernels import build
from kernels.arguments import check
from kernels.pack import kernel, reference


def words(sources: Sequence[torch.Tensor], out: torch.Tensor) -> None:
    """Write the numbers of the sources, any shapes, one after another to out int64 [sum of sizes].

    Whole numbers and flags come as int64; floats come as float64, whose bits out holds: out[a:b].view(torch.float64).
    A launch for every eight sources.
    """
    for i, x in enumerate(sources):
        check(f"sources[{i}]", x, tuple(x.shape), *kernel.TYPES)
    check("out", out, (sum(x.numel() for x in sources),), torch.int64)
    (kernel if build.on_gpu(out) else reference).words(sources, out)
