"""Where accounts stand: each follows one contiguous stretch of market and jumps only at an episode start, when flat.

A stretch is a range of rows of one segment where accounts may stand. An account on row r moves to row r + 1; it
must be flat there when r + 1 is the stretch's last row, since no further step leaves from it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence

import torch

from foxhunt_assets.contracts.tables import NO_SEGMENT
from foxhunt_assets.errors import BadInput
from foxhunt_assets.simulator.market_view import MarketView, segment_bounds
from foxhunt_assets.simulator.state import Buffers
from kernels.philox import op as philox

Range = tuple[int, int]
Step = int | torch.Tensor  # a step number; as a 0-d int64 tensor a captured graph can replay it


def session_end_rows(rows: int, segments: Iterable[tuple[int, str]]) -> torch.Tensor:
    """bool [rows], True on the last row of each segment that a session close ended.

    segments: (one past the last row, ended_by) of every tape segment.
    """
    out = torch.zeros(rows, dtype=torch.bool)
    for row_end, ended_by in segments:
        out[row_end - 1] = ended_by == "session"
    return out


class Walk(ABC):
    """What both walks share.

    market: the tape. ranges: half-open row ranges in order, each inside one segment. session_end: bool [N] of
    `session_end_rows` (flat is the rule there: terminated); every other stretch end truncates. buffers: holds
    acct_row, where the accounts stand. anchors: every row a step may leave from, ascending.
    """

    def __init__(self, market: MarketView, ranges: Sequence[Range], session_end: torch.Tensor, buffers: Buffers):
        self.row = buffers["acct_row"]
        self.stretch_last = _stretch_last(market, ranges)
        self.session_end = session_end.to(market.device)
        self.last_usable_row = int(self.stretch_last.max())
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
        """int64 [B], steps until the stretch ends and the account must be flat."""
        return self.stretch_last[self.row] - self.row

    def last_of_stretch(self) -> torch.Tensor:
        """bool [B], True where the account must be flat on its next row."""
        return self.rows_left() <= 1

    def ends_session(self) -> torch.Tensor:
        """bool [B], True where the next row is the last of a session."""
        return self.session_end[self.stretch_last[self.row]] & self.last_of_stretch()

    @abstractmethod
    def start(self, step: Step) -> None:
        """Put every account on its first row of the phase; step is the phase's first."""

    @abstractmethod
    def advance(self, ended: torch.Tensor, step: Step) -> None:
        """After step: accounts whose episode ended (bool [B]) jump to where their next one starts."""

    @abstractmethod
    def jump(self) -> tuple[dict[str, torch.Tensor], dict[str, int]]:
        """The tensors and numbers that kernels.account needs to do what `advance` does."""


class TrainWalk(Walk):
    """Episodes start on rows drawn by Philox(seed, "episode_start", step, account), window rows behind included."""

    def __init__(
        self,
        market: MarketView,
        ranges: Sequence[Range],
        session_end: torch.Tensor,
        buffers: Buffers,
        seed: int,
        window: int,
    ):
        super().__init__(market, ranges, session_end, buffers)
        first, _ = segment_bounds(market.segment)
        self.seed = seed
        self.starts = self.anchors[self.anchors - first[self.anchors] + 1 >= window]
        if self.starts.numel() == 0:
            raise BadInput(f"walk: no training row has {window} rows of its segment behind it; give it longer ranges")
        self._account = torch.arange(self.accounts, device=market.device)

    def start(self, step: Step) -> None:
        self.row.copy_(self._draw(step))

    def advance(self, ended: torch.Tensor, step: Step) -> None:
        self.row.copy_(torch.where(ended, self._draw(step + 1), self.row))

    def jump(self) -> tuple[dict[str, torch.Tensor], dict[str, int]]:
        key0, key1 = philox.key(self.seed)
        numbers = {"purpose": philox.PURPOSES["episode_start"], "key0": key0, "key1": key1}
        return {"starts": self.starts}, {"n_starts": self.starts.shape[0], **numbers}

    def _draw(self, step: Step) -> torch.Tensor:
        word = philox.words(self.seed, "episode_start", step, self._account, 1)[:, 0]
        return self.starts[(word * self.starts.shape[0]) >> 32]


class EvalWalk(Walk):
    """The evaluation range once, whole, in B contiguous chunks laid end to end in market time.

    The V anchors in market order are dealt to the accounts n at a time, n = V // B, or n_steps. After n steps every
    account stands one row past its last anchor, where the drain row closes what is open. coverage: the share
    B x n / V of the range that is walked.
    """

    def __init__(
        self,
        market: MarketView,
        ranges: Sequence[Range],
        session_end: torch.Tensor,
        buffers: Buffers,
        n_steps: int | None = None,
    ):
        super().__init__(market, ranges, session_end, buffers)
        found = self.anchors.numel()
        self.n_steps = found // self.accounts if n_steps is None else n_steps
        needed = self.accounts * max(self.n_steps, 1)
        if found < needed:
            raise BadInput(
                f"evaluation range: {found} rows to decide on, {needed} are needed for {self.accounts} accounts x "
                f"{max(self.n_steps, 1)} steps; add data or lower run.n_eval_steps or model.accounts"
            )
        self.coverage = needed / found
        dealt = self.anchors[:needed].view(self.accounts, self.n_steps)
        self._first, self._last = dealt[:, 0].contiguous(), dealt[:, -1].contiguous()
        rows = torch.arange(market.rows, device=market.device)
        at_or_after = torch.searchsorted(self.anchors, rows).clamp(max=found - 1)
        self._next_anchor = self.anchors[at_or_after]

    def start(self, step: Step) -> None:
        self.row.copy_(self._first)

    def advance(self, ended: torch.Tensor, step: Step) -> None:
        target = self._next_anchor[self.row]
        # Past its last anchor an account stays where it is: only the drain row follows.
        jumps = ended & (target >= self.row) & (target <= self._last)
        self.row.copy_(torch.where(jumps, target, self.row))

    def jump(self) -> tuple[dict[str, torch.Tensor], dict[str, int]]:
        tables = {"next_anchor": self._next_anchor, "last_anchor": self._last}
        return tables, dict.fromkeys(("n_starts", "purpose", "key0", "key1"), 0)


def _stretch_last(market: MarketView, ranges: Sequence[Range]) -> torch.Tensor:
    """int64 [N]: last row of the stretch a row lies in, -1 outside every range."""
    segment = market.segment.cpu()
    out = torch.full((market.rows,), -1, dtype=torch.int64)
    floor = 0
    for start, end in ranges:
        if not floor <= start < end <= market.rows:
            raise BadInput(f"walk: range [{start}, {end}) is empty, out of order or outside the {market.rows} rows")
        inside = segment[start:end]
        if int(inside[0]) == NO_SEGMENT or bool((inside != inside[0]).any()):
            raise BadInput(f"walk: range [{start}, {end}) does not lie inside one segment; split it at segment ends")
        out[start:end] = end - 1
        floor = end
    return out.to(market.device)
