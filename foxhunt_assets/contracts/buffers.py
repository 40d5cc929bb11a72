"""The shape of a named buffer. Buffers are what stages read and write, what dumps hold, what digests cover."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Group = Literal[
    "weights", "target", "optimizer", "grads", "carry", "account", "replay", "rollout", "slots", "diag", "transient"
]

# Groups whose content must survive a restart; the rest is written before it is read within a step.
STATE_GROUPS: frozenset[str] = frozenset(
    {"weights", "target", "optimizer", "carry", "account", "replay", "rollout", "slots", "diag"}
)


@dataclass(frozen=True)
class BufferSpec:
    """One preallocated tensor: name, shape, dtype (torch's name, e.g. "int64"), group and axis names.

    fill is the value of every element before step 0 (weights are overwritten by their initialiser).
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    group: Group
    axes: tuple[str, ...] = ()
    fill: float = 0
