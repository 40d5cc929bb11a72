"""Host side of gather.cu: the functions of reference.py."""

from __future__ import annotations

import torch

from kernels import build

_THREADS = 128


def _words(table: torch.Tensor) -> torch.Tensor:
    """The table as int32 [N, words]: the bits of any type whose rows are whole words."""
    return table.contiguous().view(torch.int32)


def windows(table: torch.Tensor, segment_start: torch.Tensor, anchors: torch.Tensor, out: torch.Tensor) -> None:
    """out [R, K, C]."""
    words, found = _words(table), out.view(torch.int32)
    n, steps, width = found.shape
    wide = width % 4 == 0 and words.data_ptr() % 16 == 0 and found.data_ptr() % 16 == 0
    function, loads = ("gather_wide_windows", width // 4) if wide else ("gather_windows", width)
    inputs = (words, segment_start.contiguous(), anchors.contiguous())
    grid = (n, build.ceil_div(steps * loads, _THREADS))
    build.launch("gather", function, grid, (_THREADS,), *inputs, steps, loads, found)
