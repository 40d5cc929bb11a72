"""determinism_verdict: two trainings and evaluations of one seed in fresh processes must give the same bits.

It runs nightly at demo size on the first fold's inputs, and is keyed by what it covers: code and kernels,
configuration, data and device.
"""

import dataclasses
import sys
from pathlib import Path
from typing import Any

import dagster as dg

from foxhunt_assets import storage
from foxhunt_assets.assets.metadata import folder_metadata
from foxhunt_assets.assets.training import FOLD_INPUTS, fold_inputs, make_spec
from foxhunt_assets.assets.versions import json_sha256
from foxhunt_assets.audits import read_fold
from foxhunt_assets.determinism.twin import arm_folders, run_twin
from foxhunt_assets.partitions import Partitions
from foxhunt_assets.resources import GPU_POOL, World, step
from foxhunt_assets.trainer.config import TrainerConfig, from_profile
from foxhunt_assets.trainer.run_spec import EVALUATION_PACKAGES, RunSpec, code_hash

GROUP = "determinism"
VERDICT_FILE = "verdict.json"
TWIN_WINDOWS = 3  # rollout windows that an arm learns from
TWIN_EVAL_STEPS = 24
ARM_TIMEOUT_S = 3_600.0  # of one process; a demo-size run takes a minute


def determinism_assets(parts: Partitions) -> list[dg.AssetsDefinition]:
    """determinism_verdict, on the first fold."""
    first = parts.fold_keys[0]

    @dg.asset(
        deps=[
            dg.AssetDep(name, partition_mapping=dg.SpecificPartitionsPartitionMapping([first])) for name in FOLD_INPUTS
        ],
        group_name=GROUP,
        kinds={"json"},
        pool=GPU_POOL,
        code_version=code_hash(EVALUATION_PACKAGES),
        description="Whether two runs of one seed, in two fresh processes, agree on every bit the contract names; "
        "a PASS says what it covered.",
    )
    def determinism_verdict(context: dg.AssetExecutionContext, world: dg.ResourceParam[World]) -> dg.MaterializeResult:
        with step(context, world):
            return make_verdict(context.instance, world, first)

    return [determinism_verdict]


def twin_config(world: World, test_rows: int) -> TrainerConfig:
    """Demo size, with the horizons, window and latency that the fold was cut for; short, yet long enough to learn
    from full windows, to write a resumable checkpoint, and to evaluate and drain. A test range of few rows, not all of
    which can be decided on, is evaluated whole, so that the twin never asks for more data than the run itself."""
    config = world.config
    if config.profile != "demo":
        cut_for = {
            "labels": {"horizons": config.labels.horizons},
            "model": {"window": config.model.window},
            "env": {"latency_steps": config.env.latency_steps},
        }
        config = from_profile("demo", cut_for)
    windows = TWIN_WINDOWS * config.learning.rollout_steps
    plenty = test_rows >= 4 * TWIN_EVAL_STEPS * config.model.accounts
    n_eval_steps = min(config.run.n_eval_steps or TWIN_EVAL_STEPS, TWIN_EVAL_STEPS) if plenty else None
    run = dataclasses.replace(
        config.run,
        n_steps=min(config.run.n_steps, max(windows, config.run.checkpoint_every + 1)),
        n_eval_steps=n_eval_steps,
    )
    return dataclasses.replace(config, run=run)


def make_verdict(instance: dg.DagsterInstance, world: World, fold: str) -> dg.MaterializeResult:
    """Run the twin and commit verdicts/determinism/<key>."""
    spec = read_fold(world.layout.fold(fold) / "spec")
    config, seed = twin_config(world, sum(b - a for a, b in spec.test)), world.settings.folds.seeds[0]
    train = make_spec("train", world, config, fold, seed, fold_inputs(instance, fold))
    evaluate = make_spec("evaluate", world, config, fold, seed, train.inputs)
    key = f"{train.run_id}-{world.device}"
    folders = arm_folders(world.layout, key)
    verdict = run_twin([_commands(train, evaluate, arm) for arm in folders], folders, ARM_TIMEOUT_S)
    covers = {
        "code": code_hash(EVALUATION_PACKAGES), "config": config.hash, "inputs": train.inputs,
        "device": world.device, "fold": fold, "seed": seed,
    }  # fmt: skip
    folder = world.verdicts / "determinism" / key
    storage.build_folder(
        folder,
        lambda out: _write(out, verdict, covers),
        lambda out: None,  # a verdict of any kind is a result; the check same_bits judges it
        world.layout.quarantine,
        {"asset": "determinism_verdict", "inputs": train.inputs, "code": code_hash(EVALUATION_PACKAGES)},
        replace=True,
    )
    return dg.MaterializeResult(
        data_version=dg.DataVersion(json_sha256({"verdict": verdict["verdict"], "covers": covers})),
        metadata=folder_metadata(world, folder, _values(verdict, covers)),
    )


def _commands(train: RunSpec, evaluate: RunSpec, arm: Path) -> list[list[str]]:
    """Command lines of one arm: its own folders, the same identity."""
    train = dataclasses.replace(train, out=str(arm / "train"), resume=str(arm.with_name(f"{arm.name}.resume")))
    evaluate = dataclasses.replace(
        evaluate, out=str(arm / f"eval-{evaluate.run_id}"), train_dir=train.out, resume=train.resume
    )
    commands = []
    for spec in (train, evaluate):
        orders = arm.with_name(f"{arm.name}.{spec.kind}.json")
        storage.write_json(orders, spec.to_json())
        commands.append([sys.executable, "-m", "foxhunt_assets.trainer", spec.kind, str(orders)])
    return commands


def _write(out: Path, verdict: dict[str, Any], covers: dict[str, Any]) -> None:
    storage.write_json(out / VERDICT_FILE, {**verdict, "covers": covers})
    storage.write_text(out / "verdict.txt", verdict["text"] + "\n")


def _values(verdict: dict[str, Any], covers: dict[str, Any]) -> dict[str, Any]:
    return {
        "verdict": verdict["verdict"],
        **verdict["totals"],
        "device": covers["device"],
        "covers": {k: v for k, v in covers.items() if k != "device"},
        "text": dg.MetadataValue.md(f"```\n{verdict['text'][:8_000]}\n```"),
    }
