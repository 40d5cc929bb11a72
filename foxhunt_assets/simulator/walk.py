"""Where accounts stand: each follows one contiguous stretch of market and jumps only at an episode start, when flat.

A stretch is a range of rows of one segment where accounts may stand. An account on row r moves to row r + 1; it
must be flat there when r + 1 is the stretch's last row, since no further step leaves from it.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from foxhunt_assets.errors import BadInput
from foxhunt_assets.simulator.market_view import MarketView
from foxhunt_assets.simulator.state import Buffers
from kernels.philox import op as philox

Range = tuple[int, int]


class Walk:
    """What both walks share.

    market: the tape. ranges: half-open row ranges in order, each inside one segment. session_end: bool [N] is True
    on the last row of a segment that a session close ended (flat is the rule there: terminated); every other
    stretch end truncates. buffers: holds acct_row, where the accounts stand.
    """

    def __init__(self, market: MarketView, ranges: Sequence[Range], session_end: torch.Tensor, buffers: Buffers):
        self.row = buffers["acct_row"]
        self.stretch_last = _stretch_last(market, ranges)
        self.session_end = session_end.to(market.device)
        self.last_usable_row = max(end for _, end in ranges) - 1
        rows = torch.arange(market.rows, device=market.device)
        self.anchors = rows[self.stretch_last > rows]
        if self.anchors.numel() == 0:
            raise BadInput("walk: no row has a next row inside its range; give it longer ranges")

    @property
    def accounts(self) -> int:
        return self.row.shape[0]

    @property
    def anchor(self) -> torch.Tensor:
        """int64 [B], the row each account stands on."""
        return self.row

    @property
    def next_row(self) -> torch.Tensor:
        """int64 [B], the row each account moves to: anchor + 1."""
        return self.row + 1

    def rows_left(self) -> torch.Tensor:
        """int64 [B], steps until the account must be flat."""
        return self.stretch_last[self.row] - self.row

    def last_of_stretch(self) -> torch.Tensor:
        """bool [B], True where the account must be flat on its next row."""
        return self.rows_left() <= 1

    def ends_session(self) -> torch.Tensor:
        """bool [B], True where the next row is the last of a session."""
        return self.session_end[self.stretch_last[self.row]] & self.last_of_stretch()

    def start(self, step: int) -> None:
        """Put every account on its first row of the phase, for its first step number."""
        raise NotImplementedError

    def advance(self, ended: torch.Tensor, step: int) -> None:
        """After step: accounts whose episode ended (bool [B]) jump to where their next one starts."""
        raise NotImplementedError
