"""Host side of pack.cu."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from kernels import build

TYPES = (torch.float32, torch.float64, torch.int32, torch.int64, torch.int8, torch.uint8, torch.bool)
_THREADS = 128


def table(sources: Sequence[torch.Tensor]) -> torch.Tensor:
    """int64 [numbers, 2]: address and type of every number of the sources, in order."""
    rows = [
        (x.data_ptr() + i * x.element_size(), TYPES.index(x.dtype)) for x in sources for i in range(x.numel())
    ]  # fmt: skip
    return torch.tensor(rows, dtype=torch.int64, device=sources[0].device).view(-1, 2)


def pack(addresses: torch.Tensor, sources: Sequence[torch.Tensor]) -> torch.Tensor:
    """float64 [numbers] of a table."""
    n = addresses.shape[0]
    out = torch.empty(n, dtype=torch.float64, device=addresses.device)
    grid = (build.ceil_div(n, _THREADS),)
    build.launch("pack", "pack_numbers", grid, (_THREADS,), addresses, n, out, through=sources)
    return out
