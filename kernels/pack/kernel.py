"""Host side of pack.cu: the function of reference.py."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import torch

from kernels import build

# In the order of the source's numbers for them.
TYPES = (torch.float32, torch.float64, torch.int32, torch.int64, torch.int8, torch.uint8, torch.bool)
_SOURCES = 8  # of a launch: arguments, so that they may be any tensors, in a captured graph too
_THREADS = 128


def words(sources: Sequence[torch.Tensor], out: torch.Tensor) -> None:
    """out int64 [sum of sizes]."""
    done = 0
    for first in range(0, len(sources), _SOURCES):
        part = sources[first : first + _SOURCES]
        ends = list(accumulate(x.numel() for x in part))
        n, unused = ends[-1], _SOURCES - len(part)
        spans = [end * 8 + TYPES.index(x.dtype) for end, x in zip(ends, part)]
        args = (
            *(x.detach().contiguous().view(-1).view(torch.uint8) for x in part),
            *[None] * unused,
            *spans,
            *[n * 8] * unused,
        )
        grid = (build.ceil_div(n, _THREADS),)
        build.launch("pack", "pack_words", grid, (_THREADS,), *args, out[done : done + n])
        done += n
