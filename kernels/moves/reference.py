"""Books at the decision, moves of the mid, and running correlations of inputs with them, in plain torch."""

from __future__ import annotations

import torch

from kernels.lob.reference import mid_half_ticks

MOMENTS = 5  # means of x, y, xx, yy, xy
BOOKS = ("unchanged", "mid", "two_sided", "moved_abs", "moved_square", "both")
GROUP = 32  # accounts whose numbers of the books are added up
LEAST = 1e-24  # product of variances under which an input or the mid does not vary


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
    bid_px, ask_px = book[:2]
    mid, ok = mid_half_ticks(bid_px[now, 0], ask_px[now, 0], absent)
    mid_after, ok_after = mid_half_ticks(bid_px[after, 0], ask_px[after, 0], absent)
    moved = torch.where(ok & ok_after, mid_after - mid, 0)
    before = (now - 1).clamp_min(0)
    same = torch.stack([(side[now] == side[before]).all(dim=1) for side in book]).all(0)
    each = torch.stack([same.long(), mid, ok.long(), moved.abs(), moved * moved, (ok & ok_after).long()], dim=1)
    padded = torch.cat([each, each.new_zeros(-len(each) % GROUP, len(BOOKS))])
    seen = ok & ok_after & (after > now)
    return _correlate(x[:, -1].double(), moved.double(), seen, rate, moments), padded.view(-1, GROUP, len(BOOKS)).sum(1)


def _correlate(
    x: torch.Tensor, moved: torch.Tensor, seen: torch.Tensor, rate: float, moments: torch.Tensor
) -> torch.Tensor:
    """float64 [F]; the moments move on."""
    use, y = seen.double()[:, None], moved[:, None].expand_as(x)
    means = torch.stack([(v * use).sum(0) for v in (x, y, x * x, y * y, x * y)], dim=1) / use.sum().clamp_min(1)
    moved_on = torch.where((moments != 0).any(), moments + rate * (means - moments), means)
    moments.copy_(torch.where(seen.any(), moved_on, moments))
    mx, my, xx, yy, xy = moments.unbind(1)
    variance = (xx - mx * mx).clamp_min(0) * (yy - my * my).clamp_min(0)
    correlation = (xy - mx * my) / variance.clamp_min(LEAST).sqrt()
    return torch.where(variance > LEAST, correlation, 0.0).clamp(-1, 1)
