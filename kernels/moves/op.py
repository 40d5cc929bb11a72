"""Did the book move, did the mid, and does an input know? A correlation near 1 says that a feature looks ahead."""

from __future__ import annotations

import torch

from kernels import build
from kernels.arguments import FLOATS, check
from kernels.lob.op import ABSENT
from kernels.moves import kernel, reference
from kernels.moves.reference import BOOKS, MOMENTS

__all__ = ["BOOKS", "MOMENTS", "moves"]


def moves(
    x: torch.Tensor,
    book: tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor],
    now: torch.Tensor,
    after: torch.Tensor,
    rate: float,
    moments: torch.Tensor,
    absent: int = ABSENT,
) -> tuple[torch.Tensor, torch.Tensor]:
    """(correlation, books): of each newest input with the change of the mid, and counts and sums over the accounts.

    x: [B, K, F] windows, the newest row last. book: bid_px, ask_px in ticks, bid_sz, ask_sz in lots, int32 [rows, L] of
    the tape. now, after: int64 [B], rows of the decision and of the next state. moments: float64 [F, MOMENTS], means of
    x, y, xx, yy, xy, all 0 before the first observation; moved in place by `rate` towards the means of this batch, if
    anybody moved. An account that stayed, or lacks one of the two mids, is no observation.
    correlation: float64 [F] in [-1, 1], 0 where one of the two never varies.
    books: int64 [groups, len(BOOKS)], to be added up over the groups: accounts whose book is that of the row before;
    sum of the mids in half-ticks and their number; sums of the changes of the mid, absolute and squared, where both
    rows have one, and their number.
    """
    check("x", x, (None, None, None), *FLOATS)
    for name, side in zip(("bid_px", "ask_px", "bid_sz", "ask_sz"), book, strict=True):
        check(name, side, (book[0].shape[0], None) if name == "bid_px" else tuple(book[0].shape), torch.int32)
    check("now", now, (x.shape[0],), torch.int64)
    check("after", after, (x.shape[0],), torch.int64)
    check("moments", moments, (x.shape[2], MOMENTS), torch.float64)
    return (kernel if build.on_gpu(x) else reference).moves(x, book, now, after, absent, rate, moments)
