"""The norms in float64."""

from __future__ import annotations

from collections.abc import Sequence

import torch


def norms(parts: Sequence[torch.Tensor], total: torch.Tensor | None, gate: torch.Tensor, out: torch.Tensor) -> None:
    """Norms of the parts, then of their sum where it is wanted."""
    squares = [x.double().square().sum() for x in parts]
    if total is not None:
        total.copy_(parts[0])
        for x in parts[1:]:
            total.add_(x)
        squares.append(total.double().square().sum())
    out.copy_(torch.where(gate[0] > 0, torch.stack(squares).sqrt(), out))
