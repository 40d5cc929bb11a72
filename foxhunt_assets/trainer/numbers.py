"""Numbers on their way from the device to a row: measured in a stage, packed there, read a step late, finished here.

A group of leaves is `measure`, which runs in the stage and never waits for the device, and `finish`, which turns what
was read into leaves by path. Numbers are 0-dim or 1-dim tensors, or host numbers that never change in a run.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from foxhunt_assets.trainer.branches import Branches

Numbers = dict[str, torch.Tensor | int | float | bool]
Read = dict[str, Any]  # what Numbers become on the host: an int or float each, a list for a 1-dim tensor
Row = dict[str, int | float | bool]


def as_they_are(read: Read) -> Row:
    """`finish` of a group whose numbers are leaves by path."""
    return read


@dataclass(frozen=True)
class Group:
    """measure: the numbers, on the device. finish: from the numbers read to leaves."""

    measure: Callable[[], Numbers]
    finish: Callable[[Read], Row] = as_they_are


_DTYPES = {"float": torch.float64, "int": torch.int64}


@dataclass(frozen=True)
class _Slot:
    """Where a number lies in the packed arrays. kind: float, int or host (then value holds it). size None: 0-dim."""

    group: int
    name: str
    kind: str
    at: int = 0
    size: int | None = None
    value: Any = None


class Packing:
    """Places of all numbers of all groups in one float64 and one int64 array; fixed by the first row."""

    def __init__(self, groups: list[Group], device: torch.device) -> None:
        """groups: no one reads what another writes, since on a GPU they are measured side by side."""
        self.groups = groups
        self._branches = Branches(device, len(groups))
        self._slots: list[_Slot] = []
        self.arrays: tuple[torch.Tensor, torch.Tensor] | None = None  # float64, int64: the row measured last

    def measure(self) -> None:
        """Measure every group and pack it into `arrays`, on the device."""
        parts: dict[str, list[torch.Tensor]] = {kind: [] for kind in _DTYPES}
        ends = dict.fromkeys(_DTYPES, 0)
        slots = []
        for number, numbers in enumerate(self._branches.run([group.measure for group in self.groups])):
            for name, x in numbers.items():
                if not isinstance(x, torch.Tensor):
                    slots.append(_Slot(number, name, "host", value=x))
                    continue
                kind = "float" if x.is_floating_point() else "int"
                parts[kind].append(x.detach().to(_DTYPES[kind]).reshape(-1))
                slots.append(_Slot(number, name, kind, ends[kind], None if x.dim() == 0 else x.numel()))
                ends[kind] += x.numel()
        packed = [torch.cat(parts[kind]) if parts[kind] else torch.empty(0, dtype=_DTYPES[kind]) for kind in _DTYPES]
        if self.arrays is None:
            self._slots, self.arrays = slots, (packed[0], packed[1])
        assert slots == self._slots, "the groups measured other numbers than in the first row"
        for fixed, now in zip(self.arrays, packed):
            fixed.copy_(now)

    def finish(self, floats: torch.Tensor, ints: torch.Tensor) -> Row:
        """Leaves of a row from its arrays, read back to the host."""
        values = dict(zip(_DTYPES, (floats.tolist(), ints.tolist())))
        reads: list[Read] = [{} for _ in self.groups]
        for s in self._slots:
            if s.kind == "host":
                reads[s.group][s.name] = s.value
            else:
                packed = values[s.kind]
                reads[s.group][s.name] = packed[s.at] if s.size is None else packed[s.at : s.at + s.size]
        row: Row = {}
        for group, read in zip(self.groups, reads):
            row |= group.finish(read)
        return row


def finished(group: Group) -> Row:
    """Leaves of one group on a CPU, measured and read at once: for whoever looks at a single group."""
    packing = Packing([group], torch.device("cpu"))
    packing.measure()
    assert packing.arrays is not None
    return packing.finish(*packing.arrays)
