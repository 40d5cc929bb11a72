"""Numbers on their way from the device to a row: measured in a stage, packed there, read a step late, finished here.

A group of leaves is `measure`, which runs in a stage and never waits for the device, and `finish`, which turns what
was read into leaves by path. Numbers are 0-dim or 1-dim tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from kernels.pack import op as pack

Numbers = dict[str, torch.Tensor]
Read = dict[str, Any]  # what Numbers become on the host: an int or float each, a list for a 1-dim tensor
Row = dict[str, int | float | bool]


def as_they_are(read: Read) -> Row:
    """`finish` of a group whose numbers are leaves by path."""
    return read


@dataclass(frozen=True)
class Group:
    """measure: the numbers, on the device. finish: from the numbers read to leaves.

    reads, inouts: what measuring hangs on and what it changes, as a stage declares them. No group may hang on what
    another changes, since on a GPU they are measured side by side.
    """

    name: str
    measure: Callable[[], Numbers]
    finish: Callable[[Read], Row] = as_they_are
    reads: tuple[str, ...] = ()
    inouts: tuple[str, ...] = ()


class _Place(NamedTuple):
    """Where a number lies in the packed words."""

    name: str
    floating: bool
    at: int | slice  # an index for a 0-dim one
    shape: tuple[int, ...]


class Packing:
    """The numbers of all groups, and tables behind them, as words of 64 bits; their places are fixed by the first row.

    A group writes its own words, so that they are there when the last one is done.
    """

    def __init__(self, groups: Sequence[Group]) -> None:
        self.groups = groups
        self.words: torch.Tensor | None = None  # int64: the row measured last, on the device
        self._found: list[Numbers] = [{} for _ in (*groups, "tables")]
        self._places: list[list[_Place]] = []
        self._spans: list[slice] = []

    def measure(self, number: int) -> None:
        """Measure a group, on the device."""
        self._take(number, self.groups[number].measure())

    def keep(self, tables: Numbers) -> None:
        """Take tensors of any shape that `tables` gives back."""
        self._take(len(self.groups), tables)

    def lay_out(self) -> None:
        """Fix the places, once everything was measured for the first time; later nothing."""
        if self.words is not None:
            return
        end = 0
        for numbers in self._found:
            begin, places = end, []
            for name, x in numbers.items():
                at = slice(end, end + x.numel()) if x.dim() else end
                places.append(_Place(name, x.is_floating_point(), at, tuple(x.shape)))
                end += x.numel()
            self._places.append(places)
            self._spans.append(slice(begin, end))
        self.words = next(iter(self._found[0].values())).new_empty(end, dtype=torch.int64)
        for number in range(len(self._found)):
            self._write(number)

    def _take(self, number: int, measured: Numbers) -> None:
        self._found[number] = measured
        if self.words is not None:
            self._write(number)

    def _write(self, number: int) -> None:
        assert self.words is not None
        found = self._found[number]
        now = [(name, x.is_floating_point(), tuple(x.shape)) for name, x in found.items()]
        then = [(p.name, p.floating, p.shape) for p in self._places[number]]
        assert now == then, "a group measured other numbers than in the first row"
        pack.words(list(found.values()), self.words[self._spans[number]])

    def finish(self, words: torch.Tensor) -> Row:
        """Leaves of a row from its words, read back to the host."""
        numbers = words[: self._spans[-1].start].numpy()
        values = (numbers.tolist(), numbers.view("float64").tolist())
        found = [
            group.finish({name: values[floating][at] for name, floating, at, _ in places})
            for group, places in zip(self.groups, self._places)
        ]
        row: Row = {}
        for leaves in found:
            row |= leaves
        assert len(row) == sum(map(len, found)), "two groups measured the same leaf"
        return row

    def tables(self, words: torch.Tensor) -> dict[str, torch.Tensor]:
        """The tables of a row, views of its words on the host."""
        return {place.name: words[place.at].view(place.shape) for place in self._places[-1]}


def finished(group: Group) -> Row:
    """Leaves of one group on a CPU, measured and read at once: for whoever looks at a single group."""
    packing = Packing([group])
    packing.measure(0)
    packing.lay_out()
    assert packing.words is not None
    return packing.finish(packing.words)
