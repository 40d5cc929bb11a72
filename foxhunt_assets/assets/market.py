"""Source files -> snapshots -> folds.

Only fold_spec looks over file partitions. It takes those whose checks passed, lists the others as quarantined with
the reason, and waits for none; everything after it depends on the files through it alone.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import dagster as dg
import numpy as np

from foxhunt_assets import audits, gates, sources, storage
from foxhunt_assets.assets import pictures
from foxhunt_assets.assets.metadata import column_schema, folder_metadata
from foxhunt_assets.assets.versions import json_sha256, table_sha256
from foxhunt_assets.contracts.tables import ABSENT_PX, SNAPSHOTS
from foxhunt_assets.errors import BadInput, ContractBroken, FoxhuntError
from foxhunt_assets.market import folds, roll, sessions, snapshots, synthetic, tape
from foxhunt_assets.market.volume import FileVolume, file_volume
from foxhunt_assets.partitions import Partitions, known_files
from foxhunt_assets.resources import World, partition_of, step
from foxhunt_assets.trainer.run_spec import code_hash

GROUP = "market"
# Sources that decide a snapshot's bits; a change of one makes the snapshots stale, a change of the trainer does not.
MARKET_PACKAGES = ("kernels", "foxhunt_assets.contracts", "foxhunt_assets.market")


def market_code() -> str:
    """Code version of what is decoded and cut."""
    return code_hash(MARKET_PACKAGES)


def market_assets(parts: Partitions) -> list[Any]:
    """dbn_files, es_snapshots, fold_spec."""
    # What the observation returns. Its events carry the versions, with what the headers say. Made here, where Dagster's
    # warning that the class is in beta is known and caught.
    nothing_more = dg.DataVersionsByPartition({})

    @dg.observable_source_asset(
        name="dbn_files",
        partitions_def=parts.files,
        group_name=GROUP,
        description="Databento order-book files (MBO or MBP-10) as they lie in the data folder; the version of a file "
        "is the sha256 of its bytes.",
    )
    def dbn_files(context: Any, world: dg.ResourceParam[World]) -> dg.DataVersionsByPartition:
        with step(context, world):
            events = observe_files(context.instance, world)
        for event in events:
            context.log_event(event)
        return nothing_more

    @dg.asset(
        partitions_def=parts.files,
        deps=[dbn_files],
        group_name=GROUP,
        kinds={"arrow"},
        code_version=market_code(),
        metadata=column_schema(SNAPSHOTS),
        description="The ten-level book on the snapshot clock and its segment table, decoded from one file.",
    )
    def es_snapshots(context: dg.AssetExecutionContext, world: dg.ResourceParam[World]) -> dg.MaterializeResult:
        with step(context, world):
            return make_snapshots(context, world, partition_of(context))

    @dg.asset(
        partitions_def=parts.folds,
        deps=[dg.AssetDep(es_snapshots, partition_mapping=dg.AllPartitionMapping())],
        group_name=GROUP,
        kinds={"json"},
        code_version=market_code(),
        description="One walk-forward fold: the rows it trains, validates and tests on, purged; the files it used "
        "and those in quarantine.",
    )
    def fold_spec(context: dg.AssetExecutionContext, world: dg.ResourceParam[World]) -> dg.MaterializeResult:
        with step(context, world):
            return make_fold_spec(context, world, partition_of(context))

    return [dbn_files, es_snapshots, fold_spec]


def observe_files(instance: dg.DagsterInstance, world: World) -> list[dg.AssetObservation]:
    """Version and header facts of each registered file that is there."""
    files = world.source_files()
    return [sources.observation(world, key, files[key]) for key in known_files(instance) if key in files]


def make_snapshots(context: dg.AssetExecutionContext, world: World, key: str) -> dg.MaterializeResult:
    """Decode one file; where the same file was decoded by the same code already, its folder stands.

    One process decodes a file at a time; a second one stops. With instrument_mode `volume` the earlier files' volumes
    decide too, and are part of the identity.
    """
    path = world.source_file(key)
    data = world.settings.data
    told = earlier_volumes(world, path) if data.instrument_mode == roll.VOLUME else []
    source = world.source_hashed(path)
    inputs = {"dbn_files": source.sha256}
    if told:
        inputs["volume"] = json_sha256([volume.to_json() for volume in told])
    identity = {
        "asset": "es_snapshots",
        "partition": key,
        "source": path.relative_to(world.settings.data_dir).as_posix(),
        "inputs": inputs,
        "code": market_code(),
        "clock": {"grid_ms": data.row_ms, "instrument_mode": data.instrument_mode, "root": data.root},
    }
    folder = world.layout.snapshots(key)
    with storage.lock(world.layout.work / "locks" / f"snapshots-{key}.lock", f"the decoding of {path.name}"):
        storage.sweep(folder)
        if not _stands(folder, identity):
            _decode_and_commit(world, key, folder, identity, told, source)
        report = storage.read_json(folder / REPORT_FILE)
        values = {**_report_values(report), "book": _book_picture(folder, key),
                  "sessions": dg.MetadataValue.md(sessions.markdown(sessions.session_table(folder)))}  # fmt: skip
        return dg.MaterializeResult(
            data_version=dg.DataVersion(snapshots_version(folder)), metadata=folder_metadata(world, folder, values)
        )


def _decode_and_commit(
    world: World,
    key: str,
    folder: Path,
    identity: dict[str, Any],
    told: Sequence[FileVolume],
    source: storage.Hashed,
) -> None:
    """Write the folder, or note why the file is in quarantine. A full disk is not the file's fault."""
    path = world.source_file(key)
    written = snapshots.Written()

    def write(out: Path) -> dict[str, storage.Hashed]:
        try:
            _decode(world, path, out, told, source, written)
        except BadInput as error:
            sources.hold(world, key, path, str(error))
            raise
        return written.hashes

    def validate(out: Path) -> None:
        snapshots.validate(out, written)

    try:
        storage.build_folder(folder, write, validate, world.layout.quarantine, identity, replace=True)
    except ContractBroken as error:
        sources.hold(world, key, path, str(error))
        raise
    sources.release(world, key)


def earlier_volumes(world: World, path: Path) -> list[FileVolume]:
    """What each readable file traded that begins before this one, remembered by content."""
    found = {other: _volume(world, other) for other in world.source_files().values()}
    own = found.pop(path)
    return [v for v in found.values() if v is not None and own is not None and v.first < own.first]


def _volume(world: World, path: Path) -> FileVolume | None:
    place = world.layout.work / "volumes" / f"{world.source_sha256(path)}-{world.settings.data.root}.json"
    if not place.exists():
        try:
            made = file_volume(path, world.facts)
        except BadInput:  # its own partition says why
            return None
        storage.write_json(place, made.to_json() if made else None)
    raw = storage.read_json(place)
    return FileVolume.from_json(raw) if raw else None


REPORT_FILE = "decode.json"


def _decode(
    world: World,
    path: Path,
    out: Path,
    told: Sequence[FileVolume],
    source: storage.Hashed,
    written: snapshots.Written,
) -> None:
    data = world.settings.data
    report = snapshots.decode(
        path, out, world.facts, grid_ms=data.row_ms, instrument_mode=data.instrument_mode, earlier=told,
        known=source, written=written,
        progress=lambda share: print(f"{path.name}: {share:.0%} read", flush=True),
    )  # fmt: skip
    recipe = synthetic.read_recipe(path)
    storage.write_json(out / REPORT_FILE, report | ({"recipe": recipe.to_json()} if recipe else {}))


def _stands(folder: Path, identity: dict[str, Any]) -> bool:
    if not (folder / storage.MANIFEST).exists():
        return False
    try:
        manifest = storage.verify(folder)
    except BadInput:  # a committed file was changed: decode it again
        return False
    return {k: v for k, v in manifest.items() if k != "files"} == identity


def snapshots_version(folder: Path) -> str:
    """sha256 of a snapshots folder's content: every row, and the segment table."""
    stored = tape.Snapshots(folder)
    body = {"rows": stored.sha256(0, stored.n_rows), "segments": table_sha256(folder / tape.SEGMENTS_FILE)}
    return json_sha256(body)


LISTED = ("warnings", "bad_days", "symbols_partial", "symbols_not_found")  # of the report: what speaks against a file
_SHOWN = 20


def _report_values(report: dict[str, Any]) -> dict[str, Any]:
    """Every single value of a decode report, and the first of what speaks against the file with how many there are."""
    shown: dict[str, Any] = {k: v for k, v in report.items() if isinstance(v, (int, float, str, bool))}
    shown["dagster/row_count"] = shown.pop("rows")
    for name in LISTED:
        found = report[name]
        shown[f"n_{name}"] = len(found)
        shown[name] = (
            dict(list(found.items())[:_SHOWN]) if isinstance(found, dict) else [t[:200] for t in found[:_SHOWN]]
        )
    shown["order_errors"] = {name: n for name, n in report["order_errors"].items() if n}
    return shown


def _book_picture(folder: Path, key: str) -> dg.MarkdownMetadataValue:
    """Mid and spread of the instrument with the most rows."""
    stored = tape.Snapshots(folder)
    ids = np.concatenate(list(stored.slices("instrument_id", 0, stored.n_rows)))
    shown = ids == max(np.unique(ids), key=lambda i: int((ids == i).sum()))
    bid, ask = (
        np.concatenate([s[:, 0] for s in stored.slices(name, 0, stored.n_rows)])[shown].astype(np.float64)
        for name in ("bid_px", "ask_px")
    )
    absent = (bid == ABSENT_PX) | (ask == ABSENT_PX)
    bid[absent] = ask[absent] = np.nan
    return pictures.book((bid + ask) / 2, ask - bid, key)


def usable_sources(instance: dg.DagsterInstance, world: World) -> tuple[list[folds.SourceInfo], list[tuple[str, str]]]:
    """(sources whose checks passed, (key, reason) of the registered rest), in key order."""
    used: list[folds.SourceInfo] = []
    left_out: list[tuple[str, str]] = []
    in_quarantine = sources.held(world)
    for key in known_files(instance):
        if key in in_quarantine:
            left_out.append((key, in_quarantine[key]))
            continue
        try:
            now = gates.require(instance, "es_snapshots", key)
            used.append(folds.source_info(key, now.folder))
        except FoxhuntError as error:
            left_out.append((key, str(error)))
    return used, left_out


def make_fold_spec(context: dg.AssetExecutionContext, world: World, fold: str) -> dg.MaterializeResult:
    """Cut one fold out of what is usable now."""
    used, left_out = usable_sources(context.instance, world)
    if not used:
        raise BadInput(_nothing_usable(world, left_out))
    spec = _cut(world, fold, used, left_out)
    version = folds.data_version(spec)
    folder = world.layout.fold(fold) / "spec"
    storage.build_folder(
        folder,
        lambda out: storage.write_json(out / audits.SPEC_FILE, spec.to_json()),
        lambda out: audits.raise_on(audits.fold_faults(audits.read_fold(out)), out),
        world.layout.quarantine,
        {"asset": "fold_spec", "partition": fold, "inputs": {s.key: s.content for s in spec.sources},
         "code": market_code()},
        replace=True,
    )  # fmt: skip
    return dg.MaterializeResult(
        data_version=dg.DataVersion(version), metadata=folder_metadata(world, folder, _fold_values(spec))
    )


def _nothing_usable(world: World, left_out: Sequence[tuple[str, str]]) -> str:
    if not left_out:
        return f"{world.settings.data_dir}: no source file is registered; put Databento files there or run foxhunt demo"
    key, reason = left_out[0]
    return f"none of {len(left_out)} source files can be used; first: {key}: {reason}"


def _cut(
    world: World, fold: str, used: Sequence[folds.SourceInfo], left_out: Sequence[tuple[str, str]]
) -> folds.FoldSpec:
    config, settings = world.config, world.settings
    return folds.make_fold(
        int(fold.removeprefix("fold_")),
        settings.folds.n_folds,
        used,
        root=settings.data.root,
        grid_ms=settings.data.row_ms,
        window=config.model.window,
        latency_steps=config.env.latency_steps,
        horizons=config.labels.horizons,
        embargo_rows=settings.folds.embargo_rows,
        sessions_per_block=settings.folds.sessions_per_block,
        quarantined=left_out,
    )


def _fold_values(spec: folds.FoldSpec) -> dict[str, Any]:
    def rows(ranges: Sequence[folds.Range]) -> int:
        return sum(b - a for a, b in ranges)

    return {
        "dagster/row_count": spec.n_rows,
        "mode": spec.mode,
        "synthetic": spec.synthetic,
        "train_rows": rows(spec.train),
        "validation_rows": rows(spec.validation),
        "test_rows": rows(spec.test),
        "purge_rows": spec.purge_rows,
        "sources": [[s.key, s.row_start, s.row_end] for s in spec.sources[:50]],
        "n_sources": len(spec.sources),
        "quarantined": [list(q) for q in spec.quarantined[:50]],
        "n_quarantined": len(spec.quarantined),
    }
