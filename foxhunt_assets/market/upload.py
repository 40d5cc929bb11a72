"""Rows read from files into preallocated tensors, several columns at once and several pieces at a time.

A piece is a stretch of rows of every column. Each worker thread has one after another read to its place. On a CPU that
place is the tensor itself. On a GPU it is the worker's pinned buffer, column behind column; from there it goes to a
buffer of the device in one copy, on the worker's own stream, and is taken apart there. So the host holds WORKERS
pieces however long the tape is; together they fit a server's last cache, where a copy out of the page cache is twice as
fast as to memory. One thread cannot read as fast as the bus empties; reads and waits hold no interpreter lock, so
several can. Each call that lets go of the lock must get it back from the others, so a piece makes as few as it can.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import accumulate
from typing import NamedTuple, Protocol

import torch

WORKERS = 12
PIECE_BYTES = 16 << 20  # a worker's buffer
_ALIGN = 64  # bytes, where a column of a buffer starts


def workers() -> int:
    """Threads of an upload on this machine; two at least, so that one reads while the other's piece travels."""
    return min(WORKERS, max(2, os.cpu_count() or 2))


class Fill(Protocol):
    """Writes a piece. out: bytes of its rows (and room after them) in the stored type, one of each column."""

    def __call__(self, out: Sequence[memoryview]) -> object: ...


Piece = tuple[int, int, Fill]  # first row of the targets, one past the last, what writes them


class Upload:
    """Fills targets, tensors [n, ...] of one device, piece by piece.

    stored: the type a fill writes for each of them, widened on the device where the target's is another. A piece has
    at most `rows` rows.
    """

    def __init__(self, targets: Sequence[torch.Tensor], stored: Sequence[torch.dtype]):
        self._device = targets[0].device
        self._columns = [_Column(target, dtype) for target, dtype in zip(targets, stored)]
        room = (PIECE_BYTES - _ALIGN * len(targets)) // max(sum(c.width for c in self._columns), 1)
        self.rows = max(1, min(room, len(targets[0])))
        self._made = _mark(self._device)

    def run(self, pieces: Iterable[Piece]) -> None:
        """Every piece to its place, which all streams then see. Raises what a fill or the iteration raised; no piece is
        begun after that, and none is under way when it comes out."""
        queue = _Queue(pieces)
        with ThreadPoolExecutor(workers(), thread_name_prefix="upload") as pool:
            try:
                for work in [pool.submit(self._work, queue) for _ in range(workers())]:
                    work.result()
            finally:
                queue.close()

    def _work(self, queue: _Queue) -> None:
        lane = None
        try:
            while (piece := queue.take()) is not None:
                lane = lane or _Lane(self._columns, self._device, self.rows, self._made)
                lane.send(*piece)
        finally:
            queue.close()  # it is empty, or a piece failed
            if lane is not None:
                lane.wait()


class _Queue:
    """Pieces for whichever worker asks next, made one by one."""

    def __init__(self, pieces: Iterable[Piece]):
        self._pieces, self._lock, self._closed = iter(pieces), threading.Lock(), False

    def take(self) -> Piece | None:
        with self._lock:
            return None if self._closed else next(self._pieces, None)

    def close(self) -> None:
        self._closed = True


class _Column:
    """A target and what a fill writes for it. width: bytes of a stored row.

    Where both have the same bytes, rows are taken as bytes: then all columns are of one type, and one launch copies
    them.
    """

    def __init__(self, target: torch.Tensor, stored: torch.dtype):
        self.width = target.shape[1:].numel() * stored.itemsize
        same = target.dtype == stored and target.is_contiguous()
        self.flat = target.view(-1).view(torch.uint8) if same else target
        self.step = self.width if same else 1  # of `flat`, a row
        self._as = None if same else (stored, (-1, *target.shape[1:]))
        # the target's own memory, where a fill can write it
        self.memory = self.flat.numpy().data if same and target.device.type == "cpu" else None

    def staged(self, part: torch.Tensor) -> torch.Tensor:
        """Bytes as a fill wrote them, as rows that can be copied to those of `flat`."""
        return part if self._as is None else part.view(self._as[0]).view(self._as[1])


class _Layout(NamedTuple):
    """Where the columns of a piece of so many rows lie in a lane's buffers."""

    here: list[memoryview]  # what a fill writes of each column; empty where it writes the target itself
    staged: list[torch.Tensor]  # the others, where they are copied from
    size: int  # bytes in all


class _Lane:
    """A worker's buffers, for pieces of at most `rows` rows, and on a GPU its stream.

    made: after it the targets' memory is free of earlier work; None on a CPU.
    """

    def __init__(self, columns: Sequence[_Column], device: torch.device, rows: int, made: torch.cuda.Event | None):
        self._columns = columns
        self._staged = [column for column in columns if column.memory is None]
        size = sum(-(-rows * column.width // _ALIGN) * _ALIGN for column in self._staged)
        self._here = torch.empty(size, dtype=torch.uint8, pin_memory=made is not None)
        self._there = self._here
        self._sent: torch.cuda.Event | None = None
        self._layouts: dict[int, _Layout] = {}  # by rows: nearly all pieces have as many
        if made is not None:
            torch.cuda.set_device(device)
            torch.cuda.set_stream(torch.cuda.Stream(device))  # both hold for this thread alone
            torch.cuda.current_stream().wait_event(made)
            self._there = torch.empty(size, dtype=torch.uint8, device=device)
            # blocking: it sleeps where a plain wait would spin on a core others need
            self._sent = torch.cuda.Event(blocking=True)

    def wait(self) -> None:
        """Until the targets have what was sent last."""
        if self._sent is not None:
            self._sent.synchronize()

    def send(self, first: int, last: int, fill: Fill) -> None:
        layout = self._layouts.get(last - first) or self._lay_out(last - first)
        targets = [c.flat[first * c.step : last * c.step] for c in self._staged]
        self.wait()
        fill([
            own if c.memory is None else c.memory[first * c.width : last * c.width]
            for c, own in zip(self._columns, layout.here)
        ])  # fmt: skip
        if self._sent is not None:
            self._there[: layout.size].copy_(self._here[: layout.size], non_blocking=True)
        if targets:
            torch._foreach_copy_(targets, layout.staged)
        if self._sent is not None:
            self._sent.record()

    def _lay_out(self, rows: int) -> _Layout:
        sizes = [0 if column.memory is not None else rows * column.width for column in self._columns]
        starts = [0, *accumulate(-(-size // _ALIGN) * _ALIGN for size in sizes)]
        here = [self._here[a : a + size].numpy().data for a, size in zip(starts, sizes)]
        staged = [
            column.staged(self._there[a : a + size])
            for column, a, size in zip(self._columns, starts, sizes)
            if column.memory is None
        ]
        found = self._layouts[rows] = _Layout(here, staged, starts[-1])
        return found


def _mark(device: torch.device) -> torch.cuda.Event | None:
    """An event behind all work the caller has queued on a GPU; None on a CPU."""
    if device.type == "cpu":
        return None
    event = torch.cuda.Event()
    event.record(torch.cuda.current_stream(device))
    return event
