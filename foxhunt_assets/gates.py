"""What a consumer asks before it reads: is it materialised, did its blocking checks pass, is the folder unchanged?

A blocking check stops only its own run: a later run, a sensor or a selection without checks walks past it. So each
consumer asks here. "Current" is what the latest materialisation of a partition names, never the newest folder.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dagster as dg
from dagster._core.event_api import PartitionKeyFilter
from dagster._core.storage.asset_check_execution_record import AssetCheckExecutionRecordStatus

from foxhunt_assets import storage
from foxhunt_assets.errors import BadInput, ContractBroken

FOLDER = "folder"  # metadata: the committed folder an asset lies in
MANIFEST_SHA = "manifest_sha256"  # metadata: of its manifest.json
CHECKED = "data_version"  # metadata of a check: what it looked at

# Blocking checks of each asset. A test holds this table equal to the definitions.
BLOCKING: Mapping[str, tuple[str, ...]] = {
    "es_snapshots": ("snapshots_contract", "snapshots_sql", "source_traced"),
    "fold_spec": ("no_leak",),
    "frd_labels": ("labels_contract", "labels_sql", "label_mids"),
    "feature_norm": ("norm_contract",),
    "checkpoint": ("checkpoint_contract",),
    "diag": ("diag_contract", "train_sql"),
    "train_trades": ("train_trades_contract",),
    "eval_diag": ("eval_diag_contract", "train_eval_parity"),
    "eval_summary": ("eval_summary_contract", "cents_reconcile", "eval_sql"),
    "trades": ("trades_contract",),
    "tier1_5_verdict": (),
    "eval_report": (),
    "policy_quality": ("no_fold_missing",),
    "determinism_verdict": ("same_bits",),
}


@dataclass(frozen=True)
class Current:
    """The latest materialisation of one asset partition."""

    asset: str
    partition: str | None
    folder: Path
    data_version: str
    manifest_sha256: str
    metadata: Mapping[str, Any]


def current(instance: dg.DagsterInstance, asset: str, partition: str | None) -> Current:
    """What the latest materialisation names. BadInput where there is none."""
    key = dg.AssetKey(asset)
    wanted = dg.AssetRecordsFilter(asset_key=key, asset_partitions=[partition] if partition else None)
    records = instance.fetch_materializations(wanted, limit=1).records
    event = records[0].asset_materialization if records else None
    if event is None:
        raise BadInput(f"{_name(asset, partition)} is not materialised; materialise it first")
    metadata = {name: value.value for name, value in event.metadata.items()}
    return Current(
        asset, partition, Path(str(metadata[FOLDER])), (event.tags or {})["dagster/data_version"],
        str(metadata[MANIFEST_SHA]), metadata,
    )  # fmt: skip


def gate_fault(instance: dg.DagsterInstance, now: Current) -> str:
    """Why the blocking checks do not vouch for what is current; empty when they do."""
    for check in BLOCKING[now.asset]:
        records = instance.event_log_storage.get_asset_check_execution_history(
            dg.AssetCheckKey(dg.AssetKey(now.asset), check),
            limit=1,
            status={AssetCheckExecutionRecordStatus.SUCCEEDED, AssetCheckExecutionRecordStatus.FAILED},
            partition_filter=PartitionKeyFilter(key=now.partition),
        )
        event = records[0].event if records else None
        evaluation = event.asset_check_evaluation if event else None
        if evaluation is None:
            return f"its check {check} has not run; materialise it with its checks"
        if not evaluation.passed:
            return f"its check {check} failed"
        looked_at = evaluation.metadata.get(CHECKED)
        if looked_at is None or looked_at.value != now.data_version:
            return f"its check {check} looked at another version; run its checks again"
    return ""


def require(instance: dg.DagsterInstance, asset: str, partition: str | None) -> Current:
    """The current materialisation, with its gates passed and its folder proved unchanged."""
    now = current(instance, asset, partition)
    if fault := gate_fault(instance, now):
        raise ContractBroken(f"{_name(asset, partition)} cannot be read: {fault}")
    verify(now)
    return now


def verify(now: Current) -> dict[str, Any]:
    """The manifest of a current folder; BadInput where file, manifest and materialisation do not agree."""
    manifest = storage.verify(now.folder)
    if storage.file_sha256(now.folder / storage.MANIFEST) != now.manifest_sha256:
        raise BadInput(f"{now.folder}: another folder than the one materialised; materialise {now.asset} again")
    return manifest


def _name(asset: str, partition: str | None) -> str:
    return f"{asset} of {partition}" if partition else asset
