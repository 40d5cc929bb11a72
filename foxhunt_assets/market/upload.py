"""Rows read from files into preallocated tensors, several columns at once and several pieces at a time.

A piece is a stretch of rows of every column, so Python runs once a piece and not once a column and batch. Each worker
thread has a piece read to its place. On a CPU that place is the tensor itself. On a GPU it is one of the worker's two
pinned buffers, sent from there on the worker's own stream: while one buffer travels the other is being filled, and the
host holds 2 x WORKERS pieces however long the tape is. One thread cannot read as fast as the bus empties; reads and
waits hold no interpreter lock, so several can.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import accumulate
from types import TracebackType
from typing import Protocol

import numpy as np
import torch

WORKERS = 8  # of 4, 8 and 16 the fastest there: 16 cores copied 19 GB/s out of the page cache, the bus takes 55
PIECE_BYTES = 32 << 20  # a buffer: of 8, 16 and 32 MiB the fastest beside an H200 (docs/step.md)
_ALIGN = 64  # bytes, where a column of a buffer starts


def workers() -> int:
    """Threads of an upload on this machine; two at least, so that one reads while the other's piece travels."""
    return min(WORKERS, max(2, os.cpu_count() or 2))


class Fill(Protocol):
    """Writes a piece. out: bytes of its rows (and room after them) in the stored type, one of each column."""

    def __call__(self, out: Sequence[memoryview]) -> object: ...


class Upload:
    """`with Upload(targets, stored) as upload: upload(first, last, fill)`, as often as there are pieces.

    targets: tensors [n, ...] of one device; stored: the type a fill writes for each of them, widened on the device
    where the target's is another. A piece [first, last) has at most `upload.rows` rows. Leaving the block waits: then
    every target is filled, for any stream. The first error of a piece is raised, here or at a later piece.
    """

    def __init__(self, targets: Sequence[torch.Tensor], stored: Sequence[torch.dtype]):
        self._targets, self._stored = targets, stored
        row = sum(t.shape[1:].numel() * dtype.itemsize for t, dtype in zip(targets, stored))
        room = (PIECE_BYTES - _ALIGN * len(targets)) // max(row, 1)
        self.rows = max(1, min(room, len(targets[0])))
        self._pool = ThreadPoolExecutor(workers(), thread_name_prefix="upload")
        self._ahead = 4 * workers()  # pieces waiting: enough to keep workers busy, few enough to keep few files open
        self._pending: deque[Future[None]] = deque()
        self._mine = threading.local()
        self._lanes: list[_Lane] = []
        self._made = _mark(targets[0].device)

    def __call__(self, first: int, last: int, fill: Fill) -> None:
        self._pending.append(self._pool.submit(self._send, first, last, fill))
        if len(self._pending) > self._ahead:
            self._pending.popleft().result()

    def __enter__(self) -> Upload:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        try:
            while kind is None and self._pending:
                self._pending.popleft().result()
        finally:
            self._pool.shutdown(cancel_futures=True)  # waits for pieces under way: no target is written after this
            for lane in self._lanes:
                lane.wait()

    def _send(self, first: int, last: int, fill: Fill) -> None:
        lane = getattr(self._mine, "lane", None)
        if lane is None:
            lane = self._mine.lane = _Lane(self._targets[0].device, self._made)
            self._lanes.append(lane)
        if len(lane.slots) < lane.depth:
            lane.slots.append(_Slot(self._targets, self._stored, self.rows))
        else:
            lane.slots.rotate(-1)  # the one sent longest ago
        lane.slots[-1].send([target[first:last] for target in self._targets], fill)


class _Lane:
    """A worker's stream and buffers. made: after it the targets' memory is free of earlier work."""

    def __init__(self, device: torch.device, made: torch.cuda.Event | None):
        self.slots: deque[_Slot] = deque()
        self.depth = 1 if made is None else 2
        if made is not None:
            torch.cuda.set_device(device)
            torch.cuda.set_stream(torch.cuda.Stream(device))  # both hold for this thread alone
            torch.cuda.current_stream().wait_event(made)

    def wait(self) -> None:
        for slot in self.slots:
            slot.wait()


class _Slot:
    """A buffer of `rows` rows of the columns that cannot be read into their targets, side by side."""

    def __init__(self, targets: Sequence[torch.Tensor], stored: Sequence[torch.dtype], rows: int):
        self._direct = [
            t.device.type == "cpu" and t.dtype == dtype and t.is_contiguous() for t, dtype in zip(targets, stored)
        ]
        sizes = [
            0 if direct else rows * t.shape[1:].numel() * dtype.itemsize
            for t, dtype, direct in zip(targets, stored, self._direct)
        ]
        starts = [0, *accumulate(-(-size // _ALIGN) * _ALIGN for size in sizes)]
        gpu = targets[0].is_cuda
        buffer = torch.empty(starts[-1], dtype=torch.uint8, pin_memory=gpu)
        parts = [buffer[a : a + size] for a, size in zip(starts, sizes)]
        self._bytes = [part.numpy().data for part in parts]
        self._staged = [part.view(d).view(-1, *t.shape[1:]) for part, d, t in zip(parts, stored, targets)]
        # blocking: it sleeps where a plain wait would spin on a core others need
        self._sent = torch.cuda.Event(blocking=True) if gpu else None

    def wait(self) -> None:
        """Until the device has what was sent last."""
        if self._sent is not None:
            self._sent.synchronize()

    def send(self, targets: Sequence[torch.Tensor], fill: Fill) -> None:
        self.wait()
        fill([
            target.numpy().reshape(-1).view(np.uint8).data if direct else own
            for target, direct, own in zip(targets, self._direct, self._bytes)
        ])  # fmt: skip
        staged = [(t, s[: len(t)]) for t, s, direct in zip(targets, self._staged, self._direct) if not direct]
        if staged:
            there = [s if s.dtype == t.dtype else s.to(t.device, non_blocking=True) for t, s in staged]
            torch._foreach_copy_([t for t, _ in staged], there, non_blocking=True)
        if self._sent is not None:
            self._sent.record()


def _mark(device: torch.device) -> torch.cuda.Event | None:
    """An event behind all work the caller has queued on a GPU; None on a CPU."""
    if device.type == "cpu":
        return None
    event = torch.cuda.Event()
    event.record(torch.cuda.current_stream(device))
    return event
