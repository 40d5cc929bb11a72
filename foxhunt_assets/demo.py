"""`foxhunt demo`: the whole lineage on generated data, or on one real file, from an empty FOXHUNT_HOME."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import dagster as dg

from foxhunt_assets import gates, storage
from foxhunt_assets.build import build
from foxhunt_assets.errors import BadInput, FoxhuntError
from foxhunt_assets.lineage import Say, commanding, run_job, say
from foxhunt_assets.market.formats import CSV_SUFFIXES, DBN_SUFFIXES, is_source
from foxhunt_assets.partitions import Partitions, partitions, register_files
from foxhunt_assets.resources import World
from foxhunt_assets.settings import CONFIG_NAME, MAX_FOLDS, Settings, load
from foxhunt_assets.trainer.config import from_profile

SESSIONS, MINUTES = 4, 10.0  # two folds by whole sessions; 2,400 rows of 250 ms each
SYNTHETIC_SEED = 0


def prepare(home: Path, profile: str | None, n_folds: int | None) -> Settings:
    """The settings of a home; foxhunt.toml is written where there is none, and flags never contradict one that is."""
    path = home / CONFIG_NAME
    if not path.exists():
        from_profile(profile or "demo")  # a slip on the command line must not stand in the file
        if n_folds is not None and not 1 <= n_folds <= MAX_FOLDS:
            raise BadInput(f"--folds {n_folds}: 1 to {MAX_FOLDS} folds can be cut")
        storage.write_text(path, _toml(profile or "demo", 2 if n_folds is None else n_folds))
    settings = load()
    for flag, asked, stands in (
        ("--profile", profile, settings.training.profile),
        ("--folds", n_folds, settings.folds.n_folds),
    ):
        if asked is not None and asked != stands:
            raise BadInput(f"{path} says {stands}, {flag} says {asked}; change the file or leave the flag out")
    return settings


def _toml(profile: str, n_folds: int) -> str:
    return (
        "# One file for webserver, daemon and workers. Data lies in ./data unless [data] dir or FOXHUNT_DATA_DIR says\n"
        "# otherwise; every key and its default: foxhunt_assets/settings.py.\n"
        f"[folds]\nn_folds = {n_folds}\nseeds = [0]\n\n[training]\nprofile = {json.dumps(profile)}\n"
    )


def prepare_data(settings: Settings, file: Path | None, tell: Say = say) -> None:
    """Files to work on: the one given, else those in the data folder, else generated ones."""
    folder = settings.data_dir
    there = list(World(settings).source_files().values())
    if file is not None:
        link_file(file, folder, there)
    elif there:
        tell(f"data: {len(there)} files in {folder}")
    elif settings.data.dir:
        raise BadInput(f"{folder}: no Databento file (DBN or CSV); put one there or unset FOXHUNT_DATA_DIR")
    else:
        _generate(folder, tell)


def link_file(file: Path, folder: Path, there: Sequence[Path]) -> None:
    """Link one file into the data folder under its own name, which makes its key the same wherever it lies."""
    if not file.is_file():
        raise BadInput(f"{file}: no such file")
    if not is_source(file):
        raise BadInput(
            f"{file}: not a Databento file by its name; {', '.join(DBN_SUFFIXES + CSV_SUFFIXES)} is expected"
        )
    link = folder / file.name
    others = [p for p in there if p.resolve() != file.resolve()]
    if others:
        raise BadInput(
            f"{folder} holds other files too, e.g. {others[0].name}; use another FOXHUNT_HOME for {file.name}"
        )
    if not link.exists():
        folder.mkdir(parents=True, exist_ok=True)
        link.unlink(missing_ok=True)
        link.symlink_to(file.resolve())


def _generate(folder: Path, tell: Say) -> None:
    from foxhunt_assets.market import synthetic  # numba compiles here

    began = time.perf_counter()
    paths = synthetic.write_files(folder, "planted", SYNTHETIC_SEED, SESSIONS, MINUTES)
    tell(f"generated {len(paths)} sessions of synthetic ES in {folder}  {time.perf_counter() - began:.1f} s")


def run(settings: Settings, file: Path | None, tell: Say = say) -> int:
    """Materialise everything in order; 0 when every fold has its verdict. FoxhuntError says what stopped it."""
    world, parts = World(settings), partitions(settings)
    with commanding(settings) as dagster:
        prepare_data(settings, file, tell)
        defs = build(settings)
        register_files(dagster, list(world.source_files()))
        run_job(defs, dagster, world, "observe_job", None, tell)
        _snapshots(defs, dagster, world, tell)
        for fold in parts.fold_keys:
            run_job(defs, dagster, world, "folds_job", fold, tell)
        for key in parts.run_keys:
            run_job(defs, dagster, world, "train_job", key, tell)
            run_job(defs, dagster, world, "evaluate_job", key, tell)
        run_job(defs, dagster, world, "quality_job", None, tell)
        run_job(defs, dagster, world, "determinism_job", None, tell)
        _conclude(dagster, world, parts, tell)
    return 0


def _snapshots(defs: dg.Definitions, dagster: dg.DagsterInstance, world: World, tell: Say) -> None:
    """Decode every file; one that is refused does not stop the others, unless none is left."""
    refused = []
    for key in world.source_files():
        try:
            run_job(defs, dagster, world, "snapshots_job", key, tell)
        except FoxhuntError as error:
            refused.append(error)
            tell(f"refused: {error}")
    if len(refused) == len(world.source_files()):
        raise refused[0]


def _conclude(dagster: dg.DagsterInstance, world: World, parts: Partitions, tell: Say) -> None:
    rows = [fold_row(dagster, key) for key in parts.run_keys]
    tell("")
    tell(table(rows))
    determinism = gates.current(dagster, "determinism_verdict", None).metadata
    tell(f"determinism: {determinism['verdict']} on {determinism['device']}, twin of demo size")
    if any(row["data"] == "synthetic" for row in rows):
        tell("These numbers come from synthetic data with a planted edge; they say nothing about a real market.")
    for row in rows:
        tell(f"run {row['run']}: {row['folder']}")
    tell(f"home: {world.settings.home}")
    tell("to look at it: FOXHUNT_HOME=" + f"{world.settings.home} foxhunt ui, or make ui")


def fold_row(dagster: dg.DagsterInstance, key: str) -> dict[str, Any]:
    """One line of the fold table, from what is current."""
    summary_now = gates.current(dagster, "eval_summary", key)
    verdict = gates.current(dagster, "tier1_5_verdict", key).metadata
    summary = storage.read_json(summary_now.folder / "eval_summary.json")
    fold = gates.current(dagster, "fold_spec", summary["fold"]).metadata
    return {
        "run": key,
        "data": "synthetic" if summary["synthetic"] else "market",
        "train rows": fold["train_rows"],
        "test rows": fold["test_rows"],
        "trades": summary["n_trades"],
        "pnl USD": f"{summary['total_pnl_usd']:,.2f}",
        "drawdown USD": f"{summary['max_drawdown_usd']:,.2f}",
        "p": verdict["p_value"],
        "verdict": verdict["verdict"],
        "folder": str(summary_now.folder.parent),
    }


def table(rows: Sequence[dict[str, Any]]) -> str:
    """Rows as aligned text, without the folder."""
    names = [name for name in rows[0] if name != "folder"]
    cells = [names, *([str(row[name]) for name in names] for row in rows)]
    widths = [max(len(line[i]) for line in cells) for i in range(len(names))]
    return "\n".join("  ".join(cell.rjust(w) for cell, w in zip(line, widths)) for line in cells)
