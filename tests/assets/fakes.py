"""A home on disk and an instance that says what is current in it, without decoding and without training."""

from __future__ import annotations

import sys
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import dagster as dg
from dagster._core.events import DagsterEvent, DagsterEventType

from foxhunt_assets import gates, storage
from foxhunt_assets.market import folds
from foxhunt_assets.resources import TrainerLauncher, World
from foxhunt_assets.settings import FoldSettings, Settings, TrainingSettings
from tests.trainer.fold_by_hand import TINY, write_snapshots

STUB = Path(__file__).with_name("stub_trainer.py")
KEYS = [f"s{i}-synthetic-0000000{i}" for i in range(4)]  # source keys of four generated sessions


def tiny_settings(home: Path, n_folds: int = 2, seeds: tuple[int, ...] = (0,), **training: Any) -> Settings:
    overrides = {**TINY, **training}
    return Settings(
        home=home,
        folds=FoldSettings(n_folds=n_folds, seeds=seeds),
        training=TrainingSettings(profile="demo", device="cpu", overrides=overrides),
    )


def stub_launcher(mode: str) -> TrainerLauncher:
    """A trainer that behaves as `mode` says; see stub_trainer.py."""
    return TrainerLauncher((sys.executable, str(STUB), mode))


def commit(folder: Path, files: Mapping[str, str], identity: Mapping[str, Any] | None = None) -> Path:
    def write(out: Path) -> None:
        for name, text in files.items():
            storage.write_text(out / name, text)

    storage.build_folder(folder, write, lambda out: None, folder.parent / "quarantine", identity or {}, replace=True)
    return folder


def publish(
    instance: dg.DagsterInstance,
    asset: str,
    partition: str | None,
    folder: Path,
    version: str = "v1",
    passed: Mapping[str, bool] | bool | None = True,
    **metadata: Any,
) -> None:
    """Record a materialisation of a committed folder, and its blocking checks. passed=None: the checks did not run."""
    instance.report_runless_asset_event(
        dg.AssetMaterialization(
            asset,
            partition=partition,
            metadata={
                gates.FOLDER: dg.MetadataValue.path(str(folder)),
                gates.MANIFEST_SHA: storage.file_sha256(folder / storage.MANIFEST),
                **metadata,
            },
            tags={"dagster/data_version": version},
        )
    )
    for check in gates.BLOCKING[asset] if passed is not None else ():
        fine = passed if isinstance(passed, bool) else passed.get(check, True)
        report_check(instance, asset, partition, check, bool(fine), version)


def report_check(
    instance: dg.DagsterInstance, asset: str, partition: str | None, check: str, passed: bool, version: str
) -> None:
    evaluation = dg.AssetCheckEvaluation(
        asset_key=dg.AssetKey(asset), check_name=check, passed=passed, partition=partition,
        metadata={gates.CHECKED: version},
    )  # fmt: skip
    event = DagsterEvent(DagsterEventType.ASSET_CHECK_EVALUATION.value, "made_by_hand", event_specific_data=evaluation)
    instance.report_dagster_event(event, run_id=str(uuid.uuid4()))  # one evaluation a run and partition is stored


def snapshots(home: Path, key: str, session: int, rows: int = 160) -> Path:
    """A committed snapshots folder of one session."""
    folder = home / "snapshots" / key
    storage.build_folder(
        folder, lambda out: _write(out, rows, session), lambda out: None, home / "quarantine", {"asset": "es_snapshots"}
    )
    return folder


def _write(out: Path, rows: int, session: int) -> None:
    out.rmdir()  # write_snapshots makes its own folder
    write_snapshots(out, rows, session, seed=0)


def fold_on_disk(instance: dg.DagsterInstance, world: World, fold: str = "fold_0") -> None:
    """A fold with its three inputs current and checked; labels and norm are only files with a manifest."""
    home = world.settings.home
    for i, key in enumerate(KEYS):
        if not (home / "snapshots" / key).exists():
            snapshots(home, key, i)
    config = world.config
    spec = folds.make_fold(
        int(fold[-1]), world.settings.folds.n_folds, [folds.source_info(k, home / "snapshots" / k) for k in KEYS],
        root="ES", grid_ms=250, window=config.model.window, latency_steps=1, horizons=config.labels.horizons,
    )  # fmt: skip
    text = storage.canonical_json(spec.to_json())
    publish(instance, "fold_spec", fold, commit(home / "folds" / fold / "spec", {"fold_spec.json": text}), "a" * 64)
    publish(instance, "frd_labels", fold, commit(home / "folds" / fold / "labels", {"frd_labels.arrow": "x"}), "b" * 64)
    publish(instance, "feature_norm", fold, commit(home / "folds" / fold / "norm", {"n.parquet": "y"}), "c" * 64)
