"""Stage lists as CUDA graphs: the first run of a list is eager, the second is captured, every later one replays.

Eager and captured runs launch the same work in the same order, so their bits are equal. Rows whose flags never come
back (a phase's last row) stay eager.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from foxhunt_assets.trainer.program import Flags, Program

Key = tuple[tuple[str, ...], Flags]


class Runner:
    """Runs lists of a program. captured: as graphs (a CUDA device is needed); otherwise every run is eager.

    What a captured stage leaves on the side for the next one lies in its graph's own memory; the lists of a row are
    therefore captured on one row, in order, and their graphs are kept for the life of the run.
    """

    def __init__(self, program: Program, captured: bool) -> None:
        self.program, self.captured = program, captured
        self._seen: set[Key] = set()
        self._graphs: dict[Key, torch.cuda.CUDAGraph] = {}

    def run(self, flags: Flags, *names: str) -> None:
        """Run lists one after the other; as one graph where captured. StageFault names the stage that failed."""
        key = (names, flags)
        if not self.captured:
            self._eager(names, flags)
        elif key in self._graphs:
            self._graphs[key].replay()
        elif key in self._seen:
            graph = torch.cuda.CUDAGraph()
            with _one_stream(), torch.cuda.graph(graph):
                self._eager(names, flags)
            self._graphs[key] = graph
            graph.replay()
        else:
            self._seen.add(key)
            self._eager(names, flags)

    def _eager(self, names: tuple[str, ...], flags: Flags) -> None:
        for name in names:
            self.program.run(name, flags)


@contextmanager
def _one_stream() -> Iterator[None]:
    """Autograd's backward on the thread that captures: a second thread's launches would not be captured with it."""
    with torch.autograd.set_multithreading_enabled(False):
        yield
