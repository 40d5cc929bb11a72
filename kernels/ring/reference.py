"""Slots as an index: what the kernel does column by column in one launch."""

from __future__ import annotations

from collections.abc import Sequence

import torch


def slots(start: torch.Tensor, scale: int, offset: int, rows: int, capacity: int) -> torch.Tensor:
    """int64 [rows]: (start scale + offset + i) modulo capacity."""
    return (start * scale + offset + torch.arange(rows, device=start.device)) % capacity


def put(columns: Sequence[torch.Tensor], at: torch.Tensor, sources: Sequence[torch.Tensor | None]) -> None:
    """Row i of each source to row at[i] of its column; None writes zeros, one row is written to all."""
    for column, source in zip(columns, sources, strict=True):
        column[at] = torch.zeros_like(column[:1]) if source is None else source


def take(columns: Sequence[torch.Tensor], at: torch.Tensor, outs: Sequence[torch.Tensor]) -> None:
    """Row at[i] of each column to row i of its out."""
    for column, out in zip(columns, outs, strict=True):
        out.copy_(column[at])


def tally(at: torch.Tensor, counts: torch.Tensor) -> None:
    """counts[at[i]] += 1, duplicates included."""
    counts.index_add_(0, at, torch.ones_like(at, dtype=counts.dtype))
