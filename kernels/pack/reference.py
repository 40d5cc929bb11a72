"""The words one after another."""

from __future__ import annotations

from collections.abc import Sequence

import torch


def words(sources: Sequence[torch.Tensor], out: torch.Tensor) -> None:
    """out int64 [sum of sizes]."""
    if sources:
        torch.cat([_word(x) for x in sources], out=out)


def _word(x: torch.Tensor) -> torch.Tensor:
    flat = x.detach().reshape(-1)
    return flat.to(torch.float64).view(torch.int64) if x.is_floating_point() else flat.to(torch.int64)
