"""The numbers one after another."""

from __future__ import annotations

from collections.abc import Sequence

import torch


def pack(sources: Sequence[torch.Tensor]) -> torch.Tensor:
    """float64 [sum of sizes]."""
    return torch.cat([x.detach().reshape(-1).to(torch.float64) for x in sources])
