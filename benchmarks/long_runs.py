"""Long trainings of one seed, held together bit for bit: twice, eager against captured, stopped against uninterrupted.

    python -m benchmarks.long_runs                        2,000 steps on a generated fold, 128 accounts
    python -m benchmarks.long_runs --steps 200 --run RUN.json   the orders of another training; its fold must lie here

On a GPU if there is one. Exit code 0 if every pair is PASS, 1 if not, 2 if nothing was run.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import torch

from foxhunt_assets.determinism.compare import compare_runs
from foxhunt_assets.trainer import loop
from foxhunt_assets.trainer.artefacts import TRAIN_DIAG
from foxhunt_assets.trainer.assemble import Assembly, assemble
from foxhunt_assets.trainer.capture import Runner
from foxhunt_assets.trainer.checkpoint import Resume
from foxhunt_assets.trainer.config import from_profile
from foxhunt_assets.trainer.run_spec import RunSpec
from tests.trainer.fold_by_hand import make_fold_on_disk

EAGER_STEPS = 160  # launch by launch a step takes twenty times as long


class Stopped(Exception):
    """Where a run was to be interrupted."""


def generated(home: Path, steps: int) -> RunSpec:
    """A training of 128 accounts on a generated fold."""
    config = from_profile("quick", {"run": {"n_steps": steps, "checkpoint_every": max(1, steps // 10)}})
    return make_fold_on_disk(home, config, sessions=4, rows=20_000)


def arm(spec: RunSpec, home: Path, name: str, steps: int) -> RunSpec:
    """The same training with folders of its own."""
    run = dataclasses.replace(spec.config.run, n_steps=steps)
    return dataclasses.replace(
        spec, config=dataclasses.replace(spec.config, run=run), out=str(home / name / "train"),
        quarantine=str(home / name / "quarantine"), resume=str(home / name / "work"),
        lock=str(home / name / "lock"), parent=0, device="cuda" if torch.cuda.is_available() else "cpu",
    )  # fmt: skip


@contextmanager
def eagerly() -> Iterator[None]:
    def launch_by_launch(spec: RunSpec, held: Any = None) -> Assembly:
        run = assemble(spec, held)
        run.runner = Runner(run.program, captured=False)
        return run

    with mock.patch.object(loop, "assemble", launch_by_launch):
        yield


@contextmanager
def stopping(at: int) -> Iterator[None]:
    """Interrupts behind the first checkpoint of step `at` or later."""

    class Stopping(Resume):
        def save(self, world: Any, trades: torch.Tensor, meta: dict[str, Any]) -> None:
            super().save(world, trades, meta)
            if meta["step"] >= at:
                raise Stopped

    with mock.patch.object(loop, "Resume", Stopping):
        yield


def train(spec: RunSpec) -> float:
    """Seconds of a training; silent."""
    begin = time.perf_counter()
    loop.train(spec, lambda _: None)
    return time.perf_counter() - begin


def losses_finite(spec: RunSpec) -> bool:
    """Whether every number of every row is finite."""
    rows = (Path(spec.out) / TRAIN_DIAG).read_text(encoding="utf-8").splitlines()
    return all(math.isfinite(x) for x in _numbers([json.loads(row) for row in rows]))


def _numbers(tree: Any) -> Iterator[float]:
    if isinstance(tree, dict | list):
        for part in tree.values() if isinstance(tree, dict) else tree:
            yield from _numbers(part)
    elif isinstance(tree, int | float):
        yield tree


def pairs(spec: RunSpec, home: Path, steps: int) -> Iterator[tuple[str, RunSpec, RunSpec]]:
    """Trains both of a pair, then names it."""
    first, second, stopped = (arm(spec, home, name, steps) for name in ("first", "second", "stopped"))
    print(f"{steps} steps in {train(first):.1f} s; every number finite: {losses_finite(first)}", flush=True)
    train(second)
    yield f"two runs of {steps} steps", first, second
    short, eager = (arm(spec, home, name, min(steps, EAGER_STEPS)) for name in ("short", "eager"))
    train(short)
    with eagerly():
        train(eager)
    yield f"{short.config.run.n_steps} steps captured and eager", short, eager
    try:
        with stopping(steps // 2):
            train(stopped)
    except Stopped:
        train(stopped)
        yield "stopped half way and resumed, and uninterrupted", first, stopped


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--steps", type=int, help="2,000 on a GPU; without one it must be said")
    parser.add_argument("--run", type=Path, help="orders of a training (run.json)")
    args = parser.parse_args(argv)
    if not args.steps and not torch.cuda.is_available():
        print("no NVIDIA GPU: 2,000 steps would take hours; ask for --steps N to run fewer on the CPU")
        return 2
    steps, verdicts = args.steps or 2000, []
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        spec = RunSpec.read(args.run) if args.run else generated(home, steps)
        for name, a, b in pairs(spec, home, steps):
            found = compare_runs(Path(a.out).parent / "train", Path(b.out).parent / "train")
            verdicts.append(found.verdict)
            print(f"{found.verdict:8s} {name}: {len(found.files)} artefacts", flush=True)
            for finding in found.findings:
                print(f"         {finding.text}")
            if found.culprit:
                print(f"         {found.culprit.text}")
    return 0 if verdicts == ["PASS"] * 3 else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
