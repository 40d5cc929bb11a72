"""Argument checks shared by the ops: shape and type only, which cost no device synchronisation."""

from __future__ import annotations

import torch

FLOATS = (torch.float32, torch.float64)


def check(name: str, x: torch.Tensor, shape: tuple[int | None, ...], *dtypes: torch.dtype) -> None:
    """Raise ValueError naming the argument unless x has this shape (None: any size) and one of these types."""
    if len(x.shape) != len(shape) or any(w is not None and n != w for n, w in zip(x.shape, shape)):
        wanted = ", ".join("any" if w is None else str(w) for w in shape)
        raise ValueError(f"{name}: shape {list(x.shape)}, expected [{wanted}]")
    if x.dtype not in dtypes:
        raise ValueError(f"{name}: type {x.dtype}, expected {' or '.join(str(d) for d in dtypes)}")


def check_scalar(name: str, x: torch.Tensor | float) -> None:
    """Raise ValueError naming the argument unless x is a number or a 0-dim tensor."""
    if isinstance(x, torch.Tensor) and x.dim() != 0:
        raise ValueError(f"{name}: shape {list(x.shape)}, expected a number or a 0-dim tensor")


def check_wide(name: str, x: torch.Tensor, columns: int) -> None:
    """Raise ValueError naming the argument unless x has at least so many columns."""
    if x.shape[-1] < columns:
        raise ValueError(f"{name}: {x.shape[-1]} columns, expected at least {columns}")
