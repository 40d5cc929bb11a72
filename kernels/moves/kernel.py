"""Host side of moves.cu: the function of reference.py."""

from __future__ import annotations

from functools import cache

import torch

from kernels import build
from kernels.moves.reference import BOOKS, GROUP

_THREADS = 512  # as in the source


@cache
def _rate(rate: float, device: torch.device) -> torch.Tensor:
    """float64 [1] on the device: made at the first call and kept, so that a captured graph copies nothing."""
    return torch.tensor([rate], dtype=torch.float64, device=device)


def moves(
    x: torch.Tensor,
    book: tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor],
    now: torch.Tensor,
    after: torch.Tensor,
    absent: int,
    rate: float,
    moments: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor]:
    """(correlation float64 [F], books int64 [ceil(B / GROUP), len(BOOKS)])."""
    accounts, steps, features = x.shape
    groups = build.ceil_div(accounts, GROUP)
    correlation = torch.empty(features, dtype=torch.float64, device=x.device)
    found = torch.empty(groups, len(BOOKS), dtype=torch.int64, device=x.device)
    inputs = (x.contiguous(), *book, now.contiguous(), after.contiguous(), _rate(rate, x.device))
    sizes = (absent, accounts, steps, features, book[0].shape[1])
    build.launch(
        "moves", "moves_measure", (1 + groups,), (_THREADS,), *inputs, *sizes, moments, correlation, found
    )  # fmt: skip
    return correlation, found
