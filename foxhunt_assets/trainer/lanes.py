"""Independent work side by side: pieces of work in order, some of which need wait only for those they hang on.

On a CUDA device such a piece goes to a stream of its own, which a captured graph keeps as a branch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar

import torch

Work = TypeVar("Work")


class Lanes(Generic[Work]):
    """Use as a context around one run of the work. On a CPU all of it is done in order.

    hangs_on: whether the first piece has to wait for the second, which came before it. It is asked until a piece in
    the main lane waits for the others; from then on a piece beside waits for all of the main lane before it.
    Memory: a piece beside others keeps what it reads until the next piece in the main lane is given, and what it
    allocates belongs to its stream alone, which starts anew only behind what the main lane has read of it.
    """

    def __init__(self, device: torch.device, hangs_on: Callable[[Work, Work], bool]) -> None:
        self._on_device, self._device, self._hangs_on = device.type == "cuda", device, hangs_on
        self._streams: list[torch.cuda.Stream] = []
        self._busy = 0  # streams given work that the main one has not waited for
        self._joined = False  # whether it has waited in this run
        self._past: list[tuple[Work | None, torch.cuda.Event]] = []  # of the main lane; nothing waits for less

    def __enter__(self) -> None:
        if self._on_device:
            self._busy, self._joined = 0, False
            self._past = [(None, torch.cuda.current_stream().record_event())]

    def __exit__(self, fault: type[BaseException] | None, *_: object) -> None:
        if fault is None:  # else what broke is told, and nothing starts behind it
            self._join()

    @contextmanager
    def of(self, work: Work, beside: bool) -> Iterator[None]:
        """What is launched inside is this piece of work."""
        if not self._on_device:
            yield
        elif beside:
            with torch.cuda.stream(self._beside(work)):
                yield
        else:
            self._join()
            yield
            event = torch.cuda.current_stream().record_event()
            self._past = [(None, event)] if self._joined else [*self._past, (work, event)]

    def _beside(self, work: Work) -> torch.cuda.Stream:
        if self._busy == len(self._streams):
            self._streams.append(torch.cuda.Stream(self._device))
        stream = self._streams[self._busy]
        self._busy += 1
        behind = next(event for done, event in self._past[::-1] if done is None or self._hangs_on(work, done))
        stream.wait_event(behind)
        return stream

    def _join(self) -> None:
        """Let the main lane wait for the others."""
        for stream in self._streams[: self._busy]:
            torch.cuda.current_stream().wait_stream(stream)
        self._joined |= self._busy > 0
        self._busy = 0
