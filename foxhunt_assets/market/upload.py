"""Pieces of memory-mapped columns on their way into preallocated tensors, several at a time.

Each worker thread takes a piece from its mapped file to its place. On a CPU that is one copy. On a GPU it is a copy
into the worker's own pinned buffer and a transfer from there on the worker's own stream: while one piece travels the
others are being filled, and the host holds WORKERS pieces however long the tape is. One thread cannot fill as fast as
the bus empties; copies and waits hold no interpreter lock, so several can.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Protocol

import numpy as np
import torch

WORKERS = 8  # a core copies 6 to 10 GB/s out of a mapping, a PCIe 5 bus takes 54


def workers() -> int:
    """Threads of an upload on this machine; two at least, so that one fills while the other's piece travels."""
    return min(WORKERS, max(2, os.cpu_count() or 2))


class Fill(Protocol):
    """Writes the whole of `out`, a host array of the target's shape and type."""

    def __call__(self, *, out: np.ndarray) -> object: ...


class Upload:
    """`with Upload(device, piece_bytes) as upload: upload(target, fill)`, as often as there are pieces.

    target: contiguous tensor on `device`, of at most piece_bytes, made before the upload begins. Leaving the block
    waits: then every target is filled, for any stream. The first error of a piece is raised, here or at a later piece.
    """

    def __init__(self, device: str | torch.device, piece_bytes: int):
        self._piece_bytes = piece_bytes
        self._pool = ThreadPoolExecutor(workers(), thread_name_prefix="upload")
        self._ahead = 4 * workers()  # pieces waiting: enough to keep workers busy, few enough to keep few files open
        self._pending: deque[Future[None]] = deque()
        self._lanes = threading.local()
        self._made = _mark(torch.device(device))

    def __call__(self, target: torch.Tensor, fill: Fill) -> None:
        self._pending.append(self._pool.submit(self._send, target, fill))
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

    def _send(self, target: torch.Tensor, fill: Fill) -> None:
        if self._made is None:
            fill(out=target.numpy())
            return
        lane = getattr(self._lanes, "lane", None)
        if lane is None:
            lane = self._lanes.lane = _Lane(target.device, self._piece_bytes, self._made)
        lane.send(target, fill)


class _Lane:
    """A worker's pinned buffer and stream. made: after it the targets' memory is free of earlier work."""

    def __init__(self, device: torch.device, piece_bytes: int, made: torch.cuda.Event):
        torch.cuda.set_device(device)
        torch.cuda.set_stream(torch.cuda.Stream(device))  # both hold for this thread alone
        torch.cuda.current_stream().wait_event(made)
        self._buffer = torch.empty(piece_bytes, dtype=torch.uint8, pin_memory=True)
        self._sent = torch.cuda.Event(blocking=True)  # sleeps where a plain wait would spin on a core others need

    def send(self, target: torch.Tensor, fill: Fill) -> None:
        staged = self._buffer[: target.nbytes].view(target.dtype).view(target.shape)
        fill(out=staged.numpy())
        target.copy_(staged, non_blocking=True)
        self._sent.record()
        self._sent.synchronize()


def _mark(device: torch.device) -> torch.cuda.Event | None:
    """An event behind all work the caller has queued on a GPU; None on a CPU."""
    if device.type == "cpu":
        return None
    event = torch.cuda.Event()
    event.record(torch.cuda.current_stream(device))
    return event
