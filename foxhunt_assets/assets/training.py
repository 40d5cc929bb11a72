"""The training op: one process on one device gives checkpoint, diag and train_trades, or nothing.

All three are yielded only after the run folder is committed and verified; a trainer that dies, or that leaves
something out, fails the step and materialises nothing. A finished run is not run again.
"""

import dataclasses
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import dagster as dg

from foxhunt_assets import gates, storage
from foxhunt_assets.assets.metadata import column_schema, folder_metadata
from foxhunt_assets.assets.versions import run_version
from foxhunt_assets.audits import read_fold
from foxhunt_assets.contracts.diag import contract_sha256, live_leaves
from foxhunt_assets.contracts.sameness import TRAIN_RUN
from foxhunt_assets.contracts.tables import TRADES
from foxhunt_assets.errors import ContractBroken
from foxhunt_assets.partitions import Partitions, split_run_key
from foxhunt_assets.resources import GPU_POOL, TrainerLauncher, World, partition_of, step
from foxhunt_assets.trainer.config import TrainerConfig
from foxhunt_assets.trainer.run_spec import CODE_PACKAGES, RunSpec, code_hash

GROUP = "training"
FOLD_INPUTS = ("fold_spec", "frd_labels", "feature_norm")
ARTEFACTS = {"checkpoint": "checkpoint.safetensors", "diag": "diag.jsonl", "train_trades": "trades.parquet"}


def training_assets(parts: Partitions) -> list[dg.AssetsDefinition]:
    """checkpoint, diag, train_trades."""
    descriptions = {
        "checkpoint": "Weights and their optimiser state after the last training step.",
        "diag": "One row of measured leaves a training step (diag.jsonl, and diag.parquet derived from it).",
        "train_trades": "Every trade closed in training.",
    }
    schemas: dict[str, dict[str, Any]] = {"train_trades": column_schema(TRADES)}
    kinds = {"checkpoint": {"torch"}, "diag": {"json"}, "train_trades": {"parquet"}}

    @dg.multi_asset(
        name="train",
        specs=run_specs(parts, GROUP, FOLD_INPUTS, descriptions, kinds, schemas),
        pool=GPU_POOL,
    )
    def train(
        context: dg.AssetExecutionContext,
        world: dg.ResourceParam[World],
        launcher: dg.ResourceParam[TrainerLauncher],
    ) -> Iterator[dg.MaterializeResult]:
        with step(context, world):
            results = run_training(context, world, launcher, partition_of(context))
        yield from results

    return [train]


def run_specs(
    parts: Partitions,
    group: str,
    deps: Sequence[str],
    descriptions: dict[str, str],
    kinds: dict[str, set[str]],
    schemas: dict[str, dict[str, Any]],
    packages: tuple[str, ...] = CODE_PACKAGES,
) -> list[dg.AssetSpec]:
    """Specs of one op's outputs. packages: what their code_version covers.

    skippable: else Dagster materialises outputs that the op never yielded.
    """
    return [
        dg.AssetSpec(
            name, deps=list(deps), partitions_def=parts.runs, group_name=group, kinds=kinds[name], skippable=True,
            description=text, metadata=schemas.get(name, {}), code_version=code_hash(packages),
        )
        for name, text in descriptions.items()
    ]  # fmt: skip


def run_training(
    context: dg.AssetExecutionContext, world: World, launcher: TrainerLauncher, key: str
) -> list[dg.MaterializeResult]:
    """Train one fold and seed; every output, or an error."""
    fold, seed = split_run_key(key)
    spec = training_spec(context.instance, world, fold, seed)
    launcher.run(context, world, spec)
    folder = committed(spec.out, [*ARTEFACTS.values(), "train_summary.json"])
    summary = storage.read_json(folder / "train_summary.json")
    same_identity(spec, summary["run_id"])
    if summary["completed_clean"] is not True:
        raise ContractBroken(f"{folder}: train_summary.json does not say completed_clean; train again")
    values = {
        "checkpoint": {"updates": summary["updates"], "losses": summary["losses"]},
        "diag": {
            "dagster/row_count": summary["n_steps"],
            "leaves": len(live_leaves()),
            "contract": contract_sha256(),
            "transitions": summary["transitions"],
        },
        "train_trades": {
            "dagster/row_count": summary["total_trades"],
            "realized_pnl_usd": summary["realized_pnl_usd_cum"],
        },
    }
    return outputs(world, folder, TRAIN_RUN, ARTEFACTS, summary, values)


def committed(out: str, files: Sequence[str]) -> Path:
    """The run folder, proved to be what was committed and to hold every file an output needs."""
    folder = Path(out)
    missing = [name for name in files if name not in storage.verify(folder)["files"]]
    if missing:
        raise ContractBroken(f"{folder}: {missing[0]} was not written; remove the folder and run it again")
    return folder


def same_identity(spec: RunSpec, written: str) -> None:
    """The run that was ordered must be the run that was made: an edit of the sources between the two changes it."""
    if written != spec.run_id:
        raise ContractBroken(f"{spec.out}: ordered as {spec.run_id}, made as {written}: the sources changed meanwhile")


def outputs(
    world: World,
    folder: Path,
    rules: Sequence[Any],
    artefacts: dict[str, str],
    summary: dict[str, Any],
    values: dict[str, dict[str, Any]],
) -> list[dg.MaterializeResult]:
    """One result an artefact of a committed run folder, all made before the first is yielded."""
    shared = {"run_id": summary["run_id"], "synthetic": summary["synthetic"]}
    return [
        dg.MaterializeResult(
            asset_key=name,
            data_version=dg.DataVersion(run_version(folder, rules, file)),
            metadata=folder_metadata(
                world, folder, {"file": dg.MetadataValue.path(str(folder / file)), **shared, **values[name]}
            ),
        )
        for name, file in artefacts.items()
    ]


def training_spec(instance: dg.DagsterInstance, world: World, fold: str, seed: int) -> RunSpec:
    """Orders of one training, from inputs that are current, checked and unchanged."""
    spec = make_spec("train", world, world.config, fold, seed, fold_inputs(instance, fold))
    out = world.layout.run(fold, seed, spec.run_id) / "train"
    return dataclasses.replace(spec, out=str(out), resume=str(world.layout.resume(spec.run_id)))


def fold_inputs(instance: dg.DagsterInstance, fold: str) -> dict[str, str]:
    """Data version of each of a fold's inputs, all of them current, checked and unchanged."""
    return {name: gates.require(instance, name, fold).data_version for name in FOLD_INPUTS}


def make_spec(
    kind: Literal["train", "evaluate"],
    world: World,
    config: TrainerConfig,
    fold: str,
    seed: int,
    inputs: dict[str, str],
) -> RunSpec:
    """A RunSpec with this machine's paths, none of which enters its identity; `out` follows from its run id."""
    layout = world.layout
    sources = read_fold(layout.fold(fold) / "spec").sources
    return RunSpec(
        kind=kind,
        config=config,
        fold=fold,
        seed=seed,
        fold_dir=str(layout.fold(fold)),
        snapshots={s.key: str(layout.snapshots(s.key)) for s in sources},
        inputs=inputs,
        out="",
        quarantine=str(layout.quarantine),
        resume="",
        device=world.device,
        parent=os.getpid(),
        lock=str(world.lock(world.device)),
    )
