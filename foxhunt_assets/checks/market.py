"""Checks of snapshots, folds, labels and scaling."""

from __future__ import annotations

import dagster as dg
import numpy as np
import pyarrow.parquet as pq

from foxhunt_assets import audits, gates
from foxhunt_assets.checks import sql
from foxhunt_assets.checks.factory import CheckRule, Found
from foxhunt_assets.checks.models import config_model, sql_found
from foxhunt_assets.contracts import pandera_schemas
from foxhunt_assets.gates import Current
from foxhunt_assets.market import labels, norm, snapshot_folder, tape
from foxhunt_assets.market.features import FEATURES
from foxhunt_assets.resources import World

SAMPLE_ROWS = 20_000  # pandera takes a second for these; the numpy rules look at every row


def snapshots_contract(instance: dg.DagsterInstance, world: World, now: Current) -> Found:
    """Every row by the numpy rules; pandera on the first and last rows and on an even spread between."""
    snapshot_folder.validate(now.folder)
    rows = snapshot_folder.open_snapshots(now.folder)
    index = np.unique(np.linspace(0, rows.num_rows - 1, SAMPLE_ROWS).astype(np.int64))
    faults = pandera_schemas.faults(pandera_schemas.snapshots_schema(), pandera_schemas.frame(rows.take(index)))
    segments = pandera_schemas.frame(snapshot_folder.open_segments(now.folder))
    faults += pandera_schemas.faults(pandera_schemas.segments_schema(), segments)
    return Found(faults, {"rows": rows.num_rows, "rows_by_pandera": len(index)})


def snapshots_sql(instance: dg.DagsterInstance, world: World, now: Current) -> Found:
    models: dict[str, sql.Source] = {
        "snapshots": now.folder / snapshot_folder.SNAPSHOTS_NAME,
        "segments": now.folder / snapshot_folder.SEGMENTS_NAME,
    }
    return sql_found(models, tuple(models))


def no_leak(instance: dg.DagsterInstance, world: World, now: Current) -> Found:
    spec = audits.read_fold(now.folder)
    faults = audits.fold_faults(spec)
    for source in spec.sources:
        current = gates.current(instance, "es_snapshots", source.key)
        content = tape.Snapshots(current.folder).sha256(source.row_start, source.row_end)
        if content != source.content:
            rows = f"{source.row_start}..{source.row_end}"
            faults.append(f"{source.key}: rows {rows} are not those the fold was cut from")
    return Found(faults, {"mode": spec.mode, "sources": len(spec.sources), "quarantined": len(spec.quarantined)})


def labels_contract(instance: dg.DagsterInstance, world: World, now: Current) -> Found:
    """Shape, range and reach; and sigma, computed again from the training rows alone, must be the stored one."""
    spec = audits.read_fold(gates.current(instance, "fold_spec", now.partition).folder)
    faults = audits.label_faults(now.folder, spec)
    atoms = pandera_schemas.frame(audits.read_labels(now.folder))
    faults += pandera_schemas.faults(pandera_schemas.labels_schema(spec.horizons, labels.ATOMS), atoms)
    data = tape.read_columns(spec.sources, world.layout.snapshots, labels.COLUMNS)
    sigma = labels.sigma_step(data["bid_px"][:, 0], data["ask_px"][:, 0], spec.train)
    stored = now.metadata["sigma_step_ticks"]
    if sigma != stored:
        faults.append(f"sigma_step is {stored}, the training rows alone give {sigma}")
    return Found(faults, {"rows": spec.n_rows, "sigma_step_ticks": sigma})


def labels_sql(instance: dg.DagsterInstance, world: World, now: Current) -> Found:
    return sql_found({"labels": now.folder / labels.LABELS_FILE, "config": config_model(world)}, ("labels",))


def norm_contract(instance: dg.DagsterInstance, world: World, now: Current) -> Found:
    norm.read_norm(now.folder)
    names = [f.name for f in FEATURES]
    table = pandera_schemas.frame(pq.read_table(now.folder / norm.NORM_FILE))
    return Found(pandera_schemas.faults(pandera_schemas.norm_schema(names), table), {"features": len(names)})


RULES = (
    CheckRule(
        "es_snapshots", "snapshots_contract",
        "Columns, times, books and segments of the file's snapshots are what the contract says.", snapshots_contract,
    ),
    CheckRule("es_snapshots", "snapshots_sql", "The rules of dbt_like_checks/ over snapshots and segments.",
              snapshots_sql),
    CheckRule(
        "fold_spec", "no_leak",
        "Train, validation and test are in order, purged, inside segments, and cut from the rows that are there now.",
        no_leak, also_reads=("es_snapshots",),
    ),
    CheckRule(
        "frd_labels", "labels_contract",
        "Row for row with the tape, no label out of its segment, sigma from the training rows alone.",
        labels_contract, also_reads=("fold_spec",),
    ),
    CheckRule("frd_labels", "labels_sql", "The rules of dbt_like_checks/ over labels.", labels_sql),
    CheckRule("feature_norm", "norm_contract", "Every feature has a finite mean and a positive scale.", norm_contract),
)  # fmt: skip
