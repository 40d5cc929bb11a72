"""Host side of lookahead.cu: the function of reference.py."""

from __future__ import annotations

from functools import cache

import torch

from kernels import build

_BLOCK = (32, 16)  # as in the source


@cache
def _rate(rate: float, device: torch.device) -> torch.Tensor:
    """float64 [1] on the device: made at the first call and kept, so that a captured graph copies nothing."""
    return torch.tensor([rate], dtype=torch.float64, device=device)


def correlate(
    x: torch.Tensor,
    bid_px: torch.Tensor,
    ask_px: torch.Tensor,
    now: torch.Tensor,
    after: torch.Tensor,
    absent: int,
    rate: float,
    moments: torch.Tensor,
) -> torch.Tensor:
    """float64 [F]."""
    accounts, steps, features = x.shape
    out = torch.empty(features, dtype=torch.float64, device=x.device)
    inputs = (x.contiguous(), bid_px, ask_px, now.contiguous(), after.contiguous(), _rate(rate, x.device))
    sizes = (absent, accounts, steps, features, bid_px.shape[1])
    build.launch("lookahead", "lookahead_correlate", (1,), _BLOCK, *inputs, *sizes, moments, out)
    return out
