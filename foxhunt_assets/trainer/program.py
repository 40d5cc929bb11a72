"""The step program: ordered lists of named stages over one registry of named, preallocated buffers.

From the one list come the order of execution, what a checkpoint holds, what a digest covers, what a dump writes
and the audit that every declared read has a writer. A stage touches only what it declares; `Program.audit` runs a
list and proves it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import torch

from foxhunt_assets.contracts.buffers import STATE_GROUPS, BufferSpec
from foxhunt_assets.errors import FoxhuntError
from foxhunt_assets.trainer.lanes import Lanes
from kernels.build import KernelError
from kernels.digest import op as digest


class WiringFault(FoxhuntError):
    """A stage list that does not hold together, or a stage that touched what it did not declare."""

    exit_code = 4


class StageFault(FoxhuntError):
    """The device gave up inside a stage, which is named; the newest checkpoint is kept for the next attempt."""

    exit_code = 4


@dataclass(frozen=True)
class Flags:
    """What changes the launches of a row, known on the host; every number that changes lives in the device's clock.

    closes: the row fills the rollout window. last: the phase ends with this row. drain: the evaluation's last row,
    without an action.
    """

    closes: bool = False
    last: bool = False
    drain: bool = False


@dataclass(frozen=True)
class Stage:
    """One named stage. reads, writes, inouts: buffer names. purposes: random purposes it draws from.

    results: names of what it leaves beside the buffers for later stages to read.
    beside: it need not wait for all before it, only for the last stage that it hangs on by these names, and where
    there is one of the name `behind`, for that one too.
    """

    name: str
    run: Callable[[Flags], None]
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    inouts: tuple[str, ...] = ()
    purposes: tuple[str, ...] = ()
    results: tuple[str, ...] = ()
    beside: bool = False
    behind: str = ""

    def hangs_on(self, earlier: Stage) -> bool:
        """Whether this one has to wait: one of them changes what the other reads or changes, or it says so."""
        mine, others = ({*s.writes, *s.inouts, *s.results} for s in (self, earlier))
        return bool(others & {*mine, *self.reads} or mine & {*earlier.reads}) or earlier.name == self.behind


class Registry(Mapping[str, torch.Tensor]):
    """Named tensors, allocated once. Stages write into them; nobody replaces one."""

    def __init__(self, device: torch.device | str = "cpu") -> None:
        self.device = torch.device(device)
        self.specs: dict[str, BufferSpec] = {}
        self._tensors: dict[str, torch.Tensor] = {}

    def add(self, *specs: BufferSpec) -> None:
        for spec in specs:
            if spec.name in self.specs:
                raise WiringFault(f"buffer {spec.name} is registered twice")
            self.specs[spec.name] = spec
            dtype = getattr(torch, spec.dtype)
            self._tensors[spec.name] = torch.full(spec.shape, spec.fill, dtype=dtype, device=self.device)

    def __getitem__(self, name: str) -> torch.Tensor:
        return self._tensors[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def __len__(self) -> int:
        return len(self._tensors)

    def names(self, *groups: str) -> list[str]:
        """Names of the buffers of these groups, in registry order."""
        return [name for name, spec in self.specs.items() if spec.group in groups]

    def state(self) -> dict[str, torch.Tensor]:
        """Everything that must survive a restart."""
        return {name: self[name] for name in self.names(*sorted(STATE_GROUPS))}

    def load_state(self, state: Mapping[str, torch.Tensor]) -> None:
        """Copy a saved state in; WiringFault names the first buffer that is missing, extra or of another shape."""
        mine = self.state()
        for name in sorted(mine.keys() ^ state.keys()):
            raise WiringFault(f"checkpoint and program disagree on buffer {name}")
        for name, tensor in mine.items():
            saved = state[name]
            if saved.shape != tensor.shape or saved.dtype != tensor.dtype:
                raise WiringFault(f"checkpoint holds {name} as {saved.dtype}{list(saved.shape)}")
            tensor.copy_(saved)

    def digests(self) -> dict[str, int]:
        return {name: digest.digest64(tensor) for name, tensor in self.items()}


@dataclass
class Program:
    """Stage lists by name over one registry."""

    registry: Registry
    lists: dict[str, list[Stage]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._lanes: Lanes[Stage] = Lanes(self.registry.device, Stage.hangs_on)

    def add(self, name: str, stages: Sequence[Stage]) -> None:
        """A list; what its stages read beside the buffers, they or those of lists added before leave as results."""
        known = {result for s in (*self._stages(), *stages) for result in s.results} | self.registry.keys()
        abreast: list[Stage] = []
        for stage in stages:
            for buffer in (*stage.reads, *stage.writes, *stage.inouts):
                if buffer not in known:
                    raise WiringFault(f"stage {name}.{stage.name} names the unknown buffer {buffer}")
            abreast = _joined(f"stage {name}.{stage.name}", stage, abreast)
        self.lists[name] = list(stages)

    def run(self, name: str, flags: Flags, *then: str) -> None:
        """Run the stages of a list, and of those to come after it, in order; StageFault names the one in which the
        device failed. Nothing given to the device later starts before all of them are done."""
        abreast: list[Stage] = []
        with self._lanes:
            for each in (name, *then):
                for stage in self.lists[each]:
                    abreast = _joined(f"stage {each}.{stage.name}", stage, abreast)
                    with self._lanes.of(stage, stage.beside):
                        _run(f"stage {each}.{stage.name}", stage, flags)

    def _stages(self) -> Iterator[Stage]:
        return (stage for stages in self.lists.values() for stage in stages)

    def audit(self, name: str, flags: Flags) -> None:
        """Run a list once, digesting every buffer around every stage; WiringFault names an undeclared write."""
        before = self.registry.digests()
        for stage in self.lists[name]:
            stage.run(flags)
            after = self.registry.digests()
            changed = {b for b in after if after[b] != before[b]}
            if undeclared := sorted(changed - {*stage.writes, *stage.inouts}):
                raise WiringFault(f"stage {name}.{stage.name} wrote {', '.join(undeclared)} without declaring it")
            before = after

    def unwired(self) -> list[str]:
        """Buffers that some stage reads and no stage of any list writes, and those nobody touches."""
        stages = list(self._stages())
        written = {b for s in stages for b in (*s.writes, *s.inouts, *s.results)}
        read = {b for s in stages for b in (*s.reads, *s.inouts)}
        return sorted({b for b in read if b not in written} | {b for b in self.registry if b not in read | written})


def _joined(where: str, stage: Stage, abreast: list[Stage]) -> list[Stage]:
    """The stages that run beside each other once this one was given; WiringFault where it hangs on one of them."""
    if not stage.beside:
        return []
    for other in abreast:
        if stage.hangs_on(other):
            raise WiringFault(f"{where} hangs on {other.name} and runs beside it")
    return [*abreast, stage]


def _run(where: str, stage: Stage, flags: Flags) -> None:
    try:
        stage.run(flags)
    except torch.OutOfMemoryError as error:
        remedy = "lower model.accounts, learning.replay_rows or learning.replay_capacity"
        raise StageFault(f"{where}: out of device memory ({first_line(error)}); {remedy}") from None
    except (torch.AcceleratorError, KernelError) as error:
        raise StageFault(f"{where}: {first_line(error)}") from None


def first_line(error: Exception) -> str:
    """What an error says, in one line."""
    return str(error).strip().splitlines()[0]
