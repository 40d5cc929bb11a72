"""Independent work side by side: each call on a CUDA stream of its own, so that a captured graph has it as branches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import torch

T = TypeVar("T")


class Branches:
    """Streams of a device, made once; on a CPU the calls run one after the other."""

    def __init__(self, device: torch.device, number: int) -> None:
        self._streams = [torch.cuda.Stream(device) for _ in range(number)] if device.type == "cuda" else []

    def run(self, calls: Sequence[Callable[[], T]]) -> list[T]:
        """Results of the calls, none of which may read what another writes.

        A stream starts behind the work given so far and is waited for before this returns. What a call allocated is
        reused by its own stream only, which waits again first.
        """
        if not self._streams:
            return [call() for call in calls]
        main, found = torch.cuda.current_stream(), []
        for stream, call in zip(self._streams, calls, strict=True):
            stream.wait_stream(main)
            with torch.cuda.stream(stream):
                found.append(call())
        for stream in self._streams:
            main.wait_stream(stream)
        return found
