"""Named float64 numbers in one buffer: what stages measure for the diagnostics and what must outlive a restart."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from foxhunt_assets.contracts.buffers import BufferSpec, Group


class Stats:
    """A fixed set of names over one float64 buffer [len(names)]."""

    def __init__(self, buffer: str, names: tuple[str, ...], group: Group = "diag") -> None:
        self.buffer = buffer
        self.names = names
        self.index = {name: i for i, name in enumerate(names)}
        self.spec = BufferSpec(buffer, (len(names),), "float64", group, ("name",))

    def get(self, buffers: Mapping[str, torch.Tensor], name: str) -> torch.Tensor:
        """0-dim float64 view."""
        return buffers[self.buffer][self.index[name]]
