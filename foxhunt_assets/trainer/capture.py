"""Stage lists as CUDA graphs: the first run of a list is eager, the second is captured, every later one replays.

Eager and captured runs launch the same work in the same order, so their bits are equal. Rows whose flags never come
back (a phase's last row) stay eager.
"""

from __future__ import annotations

import torch

from foxhunt_assets.trainer.program import Flags, Program, StageFault, first_line

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
            self._replay(key)
        elif key in self._seen:
            self._graphs[key] = self._capture(names, flags)
            self._replay(key)
        else:
            self._seen.add(key)
            self._eager(names, flags)

    def _replay(self, key: Key) -> None:
        try:
            self._graphs[key].replay()
        except torch.AcceleratorError as error:  # of this graph or of one before: launches answer late
            raise StageFault(f"replay of {', '.join(key[0])}: {first_line(error)}") from None

    def _capture(self, names: tuple[str, ...], flags: Flags) -> torch.cuda.CUDAGraph:
        graph = torch.cuda.CUDAGraph()
        try:
            # Only this thread's calls belong to the graph: the outbox waits for events of its own meanwhile.
            with torch.cuda.graph(graph, capture_error_mode="thread_local"):
                self._eager(names, flags)
        except torch.AcceleratorError as error:
            if isinstance(error.__context__, StageFault):  # the end of a broken capture hides what broke it
                raise error.__context__ from None
            raise StageFault(f"capture of {', '.join(names)}: {first_line(error)}") from None
        return graph

    def _eager(self, names: tuple[str, ...], flags: Flags) -> None:
        self.program.run(names[0], flags, *names[1:])
