"""What is known of the source files: the version of each, what its header says, and why one is in quarantine.

A file that cannot be decoded stays where it lies; a record under FOXHUNT_HOME/quarantine/sources says why, until a
file of that key is decoded. Folds leave such a key out and name the reason.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dagster as dg

from foxhunt_assets import storage
from foxhunt_assets.errors import FoxhuntError
from foxhunt_assets.market import snapshots
from foxhunt_assets.resources import World

ASSET = "dbn_files"
VERSION_TAG = "dagster/data_version"
_SYMBOLS_SHOWN = 20


def observation(world: World, key: str, path: Path) -> dg.AssetObservation:
    """The version of a source file, with its size, schema and span for a person."""
    sha256 = world.source_sha256(path)
    return dg.AssetObservation(
        ASSET, partition=key, tags={VERSION_TAG: sha256}, metadata={"sha256": sha256, **facts_of(world, path)}
    )


def facts_of(world: World, path: Path) -> dict[str, Any]:
    """Metadata of one file from its header; of one whose header cannot be read, the problem. Reads no record."""
    place = {"file": path.relative_to(world.settings.data_dir).as_posix(), "bytes": path.stat().st_size}
    try:
        facts = snapshots.source_facts(path)
    except FoxhuntError as error:
        return {**place, "problem": str(error)}
    span = {name: dg.MetadataValue.timestamp(facts[name] / 1e9) for name in ("start", "end") if facts[name]}
    symbols = ", ".join(facts["symbols"][:_SYMBOLS_SHOWN])
    shown = {name: facts[name] for name in ("dataset", "version", "synthetic")}
    return {**place, **shown, "schema": facts["schema"] or "mixed", "symbols": symbols, **span}


def hold(world: World, key: str, path: Path, reason: str) -> None:
    """Note why the file of a key cannot be used."""
    record = {"source": path.relative_to(world.settings.data_dir).as_posix(), "reason": reason}
    storage.write_json(_record(world, key), {**record, "sha256": world.source_sha256(path)})


def release(world: World, key: str) -> None:
    """The file of a key was decoded."""
    _record(world, key).unlink(missing_ok=True)


def held(world: World) -> dict[str, str]:
    """Key -> reason of every file in quarantine."""
    records = sorted(_record(world, "x").parent.glob("*.json"))
    return {path.stem: storage.read_json(path)["reason"] for path in records}


def _record(world: World, key: str) -> Path:
    return world.layout.quarantine / "sources" / f"{key}.json"
