"""Running moments and the correlations made of them, in plain torch and float64."""

from __future__ import annotations

import torch

from kernels.lob.reference import mid_half_ticks

MOMENTS = 5  # x, y, xx, yy, xy
LEAST = 1e-24  # product of variances under which a feature or the mid does not vary


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
    mid, ok = mid_half_ticks(bid_px[now, 0], ask_px[now, 0], absent)
    mid_after, ok_after = mid_half_ticks(bid_px[after, 0], ask_px[after, 0], absent)
    seen = ok & ok_after & (after > now)
    use = seen.double()[:, None]
    newest, y = x[:, -1].double(), torch.where(seen, mid_after - mid, 0).double()[:, None].expand(-1, x.shape[2])
    terms = (newest, y, newest * newest, y * y, newest * y)
    means = torch.stack([(v * use).sum(0) for v in terms], dim=1) / use.sum().clamp_min(1)
    moved = torch.where((moments != 0).any(), moments + rate * (means - moments), means)
    moments.copy_(torch.where(seen.any(), moved, moments))
    mx, my, xx, yy, xy = moments.unbind(1)
    variance = (xx - mx * mx).clamp_min(0) * (yy - my * my).clamp_min(0)
    correlation = (xy - mx * my) / variance.clamp_min(LEAST).sqrt()
    return torch.where(variance > LEAST, correlation, 0.0).clamp(-1, 1)
