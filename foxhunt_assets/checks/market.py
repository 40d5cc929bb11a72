"""Checks of snapshots, folds, labels and scaling."""

from __future__ import annotations

import dagster as dg
import numpy as np
import pyarrow.parquet as pq

from foxhunt_assets import audits, gates, storage
from foxhunt_assets.checks import sql
from foxhunt_assets.checks.factory import CheckRule, Found
from foxhunt_assets.checks.models import config_model, sql_found
from foxhunt_assets.contracts import pandera_schemas
from foxhunt_assets.gates import Current
from foxhunt_assets.market import labels, norm, snapshot_folder, tape, trace
from foxhunt_assets.market.features import FEATURES
from foxhunt_assets.resources import World

TRACED_ROWS = 2_000
CROWDED_ATOM, CROWDED_ENDS = 0.5, 0.25  # a Gaussian walk has 0.12 in its largest atom and 0.004 in the outermost two
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


def ts_recv_rises(instance: dg.DagsterInstance, world: World, now: Current) -> Found:
    """Capture times of one instrument never step back. Only these are promised to rise; the order of the file holds
    all the same, so this is a remark on the file."""
    table = snapshot_folder.open_snapshots(now.folder)
    recv, ids = (table[name].to_numpy() for name in ("ts_recv", "instrument_id"))
    back = np.flatnonzero((np.diff(recv) < 0) & (ids[1:] == ids[:-1])) + 1
    faults = [f"row {back[0]}: ts_recv steps back ({len(back)} such rows)"] if len(back) else []
    return Found(faults, {"rows": len(recv)})


def source_traced(instance: dg.DagsterInstance, world: World, now: Current) -> Found:
    """Rows against the records that they name, prices to the tick, in the file that was decoded."""
    path = world.source_file(str(now.partition))
    decoded = storage.read_json(now.folder / storage.MANIFEST)["inputs"]["dbn_files"]
    if world.source_sha256(path) != decoded:
        return Found([f"{path.name} is another file than the one that was decoded; materialise es_snapshots again"])
    faults, looked_at = trace.trace_faults(path, now.folder, world.facts, TRACED_ROWS)
    return Found(faults, {"rows_traced": looked_at})


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


def label_mids(instance: dg.DagsterInstance, world: World, now: Current) -> Found:
    """A row has a label exactly where it and the row a horizon on lie in one segment and both have a mid: two-sided
    and not crossed or locked."""
    spec = audits.read_fold(gates.current(instance, "fold_spec", now.partition).folder)
    data = tape.read_columns(spec.sources, world.layout.snapshots, labels.COLUMNS)
    bid, ask = (data[name][:, 0].numpy().astype(np.int64) for name in labels.COLUMNS)
    return Found(audits.label_mid_faults(now.folder, spec, bid, ask), {"rows": spec.n_rows})


def atom_balance(instance: dg.DagsterInstance, world: World, now: Current) -> Found:
    """A remark where a horizon's labels crowd: into one atom (a market that stands still, a sigma too large) or into
    the two outermost (a sigma too small)."""
    spec = audits.read_fold(gates.current(instance, "fold_spec", now.partition).folder)
    table = audits.read_labels(now.folder)
    faults: list[str] = []
    shown: dict[str, float] = {}
    for h in spec.horizons:
        atoms = table[f"h{h}"].to_numpy()
        share = np.bincount(atoms[atoms >= 0], minlength=labels.ATOMS) / max(1, int((atoms >= 0).sum()))
        outer, most = float(share[0] + share[-1]), float(share.max())
        shown |= {f"h{h}_outermost": round(outer, 4), f"h{h}_largest": round(most, 4)}
        if most > CROWDED_ATOM:
            faults.append(f"h{h}: {most:.0%} of the labels are atom {int(share.argmax())}")
        if outer > CROWDED_ENDS:
            faults.append(f"h{h}: {outer:.0%} of the labels are beyond {labels.RANGE_SIGMA} sigma")
    return Found(faults, shown)


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
    CheckRule("es_snapshots", "source_traced",
              "A sample of rows, price for price, against the records of the file that they came from.", source_traced),
    CheckRule("es_snapshots", "ts_recv_rises", "Capture times of an instrument never step back.", ts_recv_rises),
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
    CheckRule("frd_labels", "label_mids", "A label exactly where its segment and two sound mids allow one.", label_mids,
              also_reads=("fold_spec",)),
    CheckRule("frd_labels", "atom_balance", "Labels crowd into no atom and not into the ends.", atom_balance,
              also_reads=("fold_spec",)),
    CheckRule("feature_norm", "norm_contract", "Every feature has a finite mean and a positive scale.", norm_contract),
)  # fmt: skip
