"""Replay: a ring of transitions that stores row indices, account state and carry, never windows, and its sum tree.

Sampled windows are encoded again with today's weights; rewards are stored raw and scaled when they are read.
Prioritised replay: Schaul 2016 (1511.05952, sections 3.3 and 3.4).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from foxhunt_assets.contracts.buffers import BufferSpec
from foxhunt_assets.trainer.config import TrainerConfig
from kernels.c51.op import Drawn
from kernels.philox import op as philox
from kernels.ring import op as ring
from kernels.sumtree import op as sumtree

PRIORITY_EPS = 1e-3  # keeps a transition of zero loss drawable (Schaul 2016, section 3.3)

# The columns of one transition; acct and carry are what the encoder needs beside the window.
COLUMNS = (
    "anchor", "action", "reward_raw", "trade_closed", "terminated", "acct", "acct_next", "carry", "carry_next",
    "legal_next", "step",
)  # fmt: skip
INSERTED = tuple(f"replay_{c}" for c in COLUMNS)
TAKEN = (*COLUMNS, "draws")  # what a sampled transition comes with
WRITES = (*INSERTED, "replay_draws", "replay_count", "priority_tree")


def specs(config: TrainerConfig, n_actions: int, n_account: int) -> list[BufferSpec]:
    c, h = config.learning.replay_capacity, config.model.hidden
    shapes: dict[str, tuple[tuple[int, ...], str]] = {
        "anchor": ((c,), "int64"), "action": ((c,), "int64"), "reward_raw": ((c,), "float32"),
        "trade_closed": ((c,), "bool"), "terminated": ((c,), "bool"), "acct": ((c, n_account), "float32"),
        "acct_next": ((c, n_account), "float32"), "carry": ((c, h), "float32"), "carry_next": ((c, h), "float32"),
        "legal_next": ((c, n_actions), "bool"), "step": ((c,), "int64"),
    }  # fmt: skip
    return [
        *(BufferSpec(f"replay_{name}", shape, dtype, "replay") for name, (shape, dtype) in shapes.items()),
        BufferSpec("replay_draws", (c,), "int32", "replay"),
        BufferSpec("replay_count", (1,), "int64", "replay"),
        BufferSpec("priority_tree", (2 * c,), "float32", "replay"),
    ]


class Replay:
    """Operations on the replay buffers of a registry."""

    def __init__(self, buffers: Mapping[str, torch.Tensor], config: TrainerConfig) -> None:
        self.b = buffers
        self.capacity = config.learning.replay_capacity
        self.rows = config.learning.replay_rows
        self.beta = config.learning.per_beta
        self._ring = ring.Ring([*(buffers[name] for name in INSERTED), buffers["replay_draws"]])
        self._row = torch.arange(self.rows, device=buffers["replay_count"].device)

    def insert(self, transition: Mapping[str, torch.Tensor]) -> None:
        """Append one transition an account; new ones receive the largest priority held (1 when none is)."""
        n, count = transition["anchor"].numel(), self.b["replay_count"]
        self._ring.put([*(transition[name] for name in COLUMNS), None], count, n)
        sumtree.append(self.b["priority_tree"], count, n)
        count.add_(n)

    def newest(self, n: int, into: Sequence[torch.Tensor]) -> None:
        """Copy the n transitions inserted last into [n, ...] tensors in the order of TAKEN."""
        self._ring.take_run(self.b["replay_count"], n, offset=-n, into=into)

    def sample(self, seed: int, update: torch.Tensor, into: Sequence[torch.Tensor]) -> Drawn:
        """Stratified draw of `rows` transitions, keyed by the number of the update (0-dim int64).

        They are copied into [rows, ...] tensors in the order of TAKEN.
        """
        tree = self.b["priority_tree"]
        u = philox.uniforms(seed, "replay", update, self._row)
        indices = sumtree.sample(tree, u)
        leaves, weights = sumtree.weigh(tree, indices, self.b["replay_count"], self.beta)
        ring.tally(indices, self.b["replay_draws"])
        self._ring.take(indices, into)
        return Drawn(indices, weights, leaves, u)

    def update(self, indices: torch.Tensor, priorities: torch.Tensor) -> None:
        """New priorities of sampled transitions; the lowest batch row wins a duplicate."""
        sumtree.update(self.b["priority_tree"], indices, priorities)
