"""What is fitted on a fold's training rows, and nothing else: frd_labels and feature_norm."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import dagster as dg
import torch

from foxhunt_assets import audits, gates, storage
from foxhunt_assets.assets import pictures
from foxhunt_assets.assets.market import market_code
from foxhunt_assets.assets.metadata import column_schema, folder_metadata
from foxhunt_assets.assets.versions import table_sha256
from foxhunt_assets.contracts.tables import FEATURE_NORM, label_columns
from foxhunt_assets.evaluation import report
from foxhunt_assets.market import features, labels, norm, tape
from foxhunt_assets.market.folds import FoldSpec
from foxhunt_assets.partitions import Partitions
from foxhunt_assets.resources import World, partition_of, step

GROUP = "folds"
Write = Callable[[FoldSpec, Mapping[str, torch.Tensor], Path], dict[str, Any]]
Validate = Callable[[FoldSpec, Path], None]


def label_assets(parts: Partitions, horizons: Sequence[int]) -> list[dg.AssetsDefinition]:
    """frd_labels and feature_norm; horizons name the label columns."""

    @dg.asset(
        partitions_def=parts.folds,
        deps=["fold_spec"],
        group_name=GROUP,
        kinds={"arrow"},
        code_version=market_code(),
        metadata=column_schema(label_columns(horizons)),
        description="Forward-return atom of every tape row and horizon; its sigma comes from the training rows alone.",
    )
    def frd_labels(context: dg.AssetExecutionContext, world: dg.ResourceParam[World]) -> dg.MaterializeResult:
        with step(context, world):
            return make_labels(context, world, partition_of(context))

    @dg.asset(
        partitions_def=parts.folds,
        deps=["fold_spec"],
        group_name=GROUP,
        kinds={"parquet"},
        code_version=market_code(),
        metadata=column_schema(FEATURE_NORM),
        description="Mean and standard deviation of every feature over the training rows.",
    )
    def feature_norm(context: dg.AssetExecutionContext, world: dg.ResourceParam[World]) -> dg.MaterializeResult:
        with step(context, world):
            return make_norm(context, world, partition_of(context))

    return [frd_labels, feature_norm]


def make_labels(context: dg.AssetExecutionContext, world: World, fold: str) -> dg.MaterializeResult:
    """Write folds/<fold>/labels."""
    folder, facts = _fit(context, world, fold, "labels", labels.COLUMNS, labels.write_labels, _valid_labels)
    counts = facts["counts"]
    table, synthetic = audits.read_labels(folder), bool(facts["synthetic"])
    values = {
        "sigma_step_ticks": facts["sigma_step"],
        "horizons": facts["horizons"],
        "labelled": {name: sum(count[1:]) for name, count in counts.items()},
        "unlabelled": {name: count[0] for name, count in counts.items()},
        "dagster/row_count": table.num_rows,
        "labels": pictures.embed(lambda dpi: report.labels_picture(table, fold, synthetic, dpi), "labels a horizon"),
    }
    return dg.MaterializeResult(
        data_version=dg.DataVersion(table_sha256(folder / labels.LABELS_FILE)),
        metadata=folder_metadata(world, folder, values),
    )


def make_norm(context: dg.AssetExecutionContext, world: World, fold: str) -> dg.MaterializeResult:
    """Write folds/<fold>/norm."""
    folder, facts = _fit(context, world, fold, "norm", features.COLUMNS, norm.write_norm, _valid_norm)
    values = {
        "fitted_rows": facts["n_rows"],
        "constant_features": facts["constant"],
        "dagster/row_count": len(features.FEATURES),
    }
    return dg.MaterializeResult(
        data_version=dg.DataVersion(table_sha256(folder / norm.NORM_FILE)),
        metadata=folder_metadata(world, folder, values),
    )


def _fit(
    context: dg.AssetExecutionContext,
    world: World,
    fold: str,
    name: str,
    columns: Sequence[str],
    write: Write,
    validate: Validate,
) -> tuple[Path, dict[str, Any]]:
    """Commit folds/<fold>/<name>, written from the fold's own tape; (folder, what the writer said)."""
    spec_now = gates.require(context.instance, "fold_spec", fold)
    spec = audits.read_fold(spec_now.folder)
    data = tape.read_columns(spec.sources, world.layout.snapshots, columns)
    folder = world.layout.fold(fold) / name
    facts: dict[str, Any] = {"synthetic": spec.synthetic}
    storage.build_folder(
        folder,
        lambda out: facts.update(write(spec, data, out)),
        lambda out: validate(spec, out),
        world.layout.quarantine,
        {"asset": name, "partition": fold, "inputs": {"fold_spec": spec_now.data_version}, "code": market_code()},
        replace=True,
    )
    return folder, facts


def _valid_labels(spec: FoldSpec, out: Path) -> None:
    audits.raise_on(audits.label_faults(out, spec), out)


def _valid_norm(spec: FoldSpec, out: Path) -> None:
    norm.read_norm(out)
