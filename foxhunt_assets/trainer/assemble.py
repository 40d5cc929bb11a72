"""Put a world, its stage lists and its diagnostics together; the one place that knows them all."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import torch

from foxhunt_assets.errors import BadInput
from foxhunt_assets.market import folds
from foxhunt_assets.simulator import measure as simulator_measure
from foxhunt_assets.trainer import collect, learn, measure, measure_learning
from foxhunt_assets.trainer.capture import Runner
from foxhunt_assets.trainer.collect import Collector
from foxhunt_assets.trainer.diag import DiagBuilder
from foxhunt_assets.trainer.learn import Learner
from foxhunt_assets.trainer.numbers import Row
from foxhunt_assets.trainer.program import Program
from foxhunt_assets.trainer.run_spec import RunSpec
from foxhunt_assets.trainer.tape import load_tape
from foxhunt_assets.trainer.world import World


@dataclass
class Assembly:
    """A run ready to step: the program's lists are collect, shuffle and learn (training only), measure, advance."""

    world: World
    program: Program
    runner: Runner
    diag: DiagBuilder
    collector: Collector


def assemble(spec: RunSpec, held: Row | None = None) -> Assembly:
    """Load the fold and build everything. held: the last training row, for an evaluation."""
    device = pick_device(spec.device)
    pin_bits(spec.config.run.threads, spec.config.run.deterministic)
    tape = load_tape(Path(spec.fold_dir), spec.snapshots, spec.config, device)
    _same_fold(spec, folds.data_version(tape.spec))
    world = World(spec.config, spec.seed, tape, torch.device(device), spec.kind == "evaluate")
    b, c = world.buffers, spec.config
    b.add(*collect.specs(world), *measure.specs(world), *measure_learning.specs(world))
    b.add(*simulator_measure.specs())
    program = Program(b)
    if not world.evaluating:
        b.add(*learn.specs(_shapes(world)))
    collector = Collector(world)
    program.add("collect", collector.stages())
    program.add("advance", collector.advance_stages())
    if not world.evaluating:
        learner = Learner(world)
        program.add("shuffle", learner.epoch_stages())
        program.add("learn", learner.stages())
    counters = simulator_measure.Counters(c.env, c.model.accounts, tape.market.tick_cents, b)
    counters.reset()
    world.initialise()
    b["birth_weights"].copy_(b["weights"])
    for name in measure_learning.SPECTRAL:
        u = b[f"spectral_u.{name}"]
        u.div_(u.norm())
    diag = DiagBuilder(world, collector, counters, held)
    program.add("measure", diag.stages())
    return Assembly(world, program, Runner(program, captured=device == "cuda"), diag, collector)


def _same_fold(spec: RunSpec, found: str) -> None:
    """The fold on disk must be the one the run is named after: it may have been made anew since the order was given."""
    if found != spec.inputs.get("fold_spec"):
        raise BadInput(f"{spec.fold_dir}: not the fold_spec this run was ordered with; materialise the run again")


def _shapes(world: World) -> learn.Shapes:
    c = world.config
    rows = c.learning.window_rows * c.model.accounts // c.learning.window_minibatches
    width = world.tape.features.shape[1]
    return learn.Shapes(rows, c.learning.replay_rows, c.model.window, width, c.model.hidden)


def pick_device(device: str) -> str:
    if device == "cuda" and not torch.cuda.is_available():
        raise BadInput("device cuda asked for and no CUDA device is visible; set training.device to cpu or auto")
    return device


def pin_bits(threads: int, deterministic: int) -> None:
    """Fix what moves sums: thread count, precision of float32 matrix products, deterministic variants.

    deterministic: RunConfig's. Only mode 1 pins workspaces and refuses variants whose bits may move.
    """
    torch.set_num_threads(threads)
    torch.set_float32_matmul_precision("high" if deterministic == 0 else "highest")
    # it hides reads of memory nobody wrote
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    if deterministic != 1:
        torch.set_deterministic_debug_mode("default")
        return
    # cuBLAS is reproducible only with workspaces of its own (its documentation, "Results reproducibility"), and torch
    # refuses matrix products in its deterministic mode without them; read when CUDA is first used.
    os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
    torch.set_deterministic_debug_mode("error")  # the other call imports the whole compiler: seconds a process
