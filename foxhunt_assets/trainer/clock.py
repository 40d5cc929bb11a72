"""The run's counters on the device: what a captured graph reads anew each time it is replayed."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from foxhunt_assets.contracts.buffers import BufferSpec

NAMES = ("step", "update", "minibatch")
SPEC = BufferSpec("clock", (len(NAMES),), "int64", "slots", ("counter",))


class Clock:
    """0-dim views of the counters.

    step: on the axis shared by train and evaluation. update: learning minibatches done since the run began.
    minibatch: number within the window, epoch after epoch.
    """

    def __init__(self, buffers: Mapping[str, torch.Tensor]) -> None:
        self._all = buffers[SPEC.name]
        self.step, self.update, self.minibatch = self._all.unbind()

    def set(self, **values: int) -> None:
        """From the host, before the first row."""
        for name, value in values.items():
            self._all[NAMES.index(name)].fill_(value)

    def row_done(self) -> None:
        """The row was measured and left behind."""
        self.step.add_(1)

    def minibatch_done(self, in_window: int) -> None:
        """A learning minibatch of the `in_window` of a window."""
        self.update.add_(1)
        self.minibatch.add_(1).remainder_(in_window)
