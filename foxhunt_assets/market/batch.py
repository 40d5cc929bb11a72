"""A Databento batch download: its manifest.json says what each file must hash to, condition.json which days are bad."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path
from typing import Any

from foxhunt_assets.errors import BadInput
from foxhunt_assets.market.dbn import DAY_NS
from foxhunt_assets.storage import file_sha256

MANIFEST_NAME, CONDITION_NAME = "manifest.json", "condition.json"
GOOD = "available"  # the other conditions are degraded, pending and missing
_PREFIX = "sha256:"


@dataclass(frozen=True)
class Batch:
    """files: name -> (sha256, bytes) as the manifest says. conditions: UTC date -> condition, of every day given."""

    folder: Path
    files: dict[str, tuple[str, int]]
    conditions: dict[str, str]

    @property
    def missing(self) -> list[str]:
        """Files that the manifest names and the folder lacks."""
        return [name for name in self.files if not (self.folder / name).is_file()]

    def bad_days(self, start_ns: int, end_ns: int) -> dict[str, str]:
        """Days of [start_ns, end_ns) UTC whose condition is not `available`."""
        first, last = (_day(ns) for ns in (start_ns, max(end_ns - 1, start_ns)))
        return {d: c for d, c in self.conditions.items() if c != GOOD and first <= date.fromisoformat(d) <= last}


def read_batch(folder: Path) -> Batch | None:
    """The batch a folder holds; None where it has neither of the two files."""
    manifest, condition = folder / MANIFEST_NAME, folder / CONDITION_NAME
    if not manifest.is_file() and not condition.is_file():
        return None
    files = _files(manifest) if manifest.is_file() else {}
    conditions = _conditions(condition) if condition.is_file() else {}
    return Batch(folder, files, conditions)


def check(path: Path, sha256: str | None = None) -> Batch | None:
    """Hold a file to the manifest beside it; returns the batch of its folder, None where there is none.

    sha256: of the file, if it is known already. BadInput where it is another file than the manifest says.
    """
    real = path.resolve()  # a link into a download folder
    batch = read_batch(real.parent)
    if batch is None or real.name not in batch.files:
        return batch
    want, size = batch.files[real.name]
    there = path.stat().st_size
    if there != size:
        raise BadInput(f"{path}: {there} bytes, {MANIFEST_NAME} says {size}; it is cut or changed: download it again")
    got = sha256 or file_sha256(path)
    if got != want:
        raise BadInput(
            f"{path}: sha256 {got[:12]}..., {MANIFEST_NAME} says {want[:12]}...; it is damaged or changed: "
            "download it again"
        )
    return batch


def warnings(batch: Batch | None, path: Path, start_ns: int, end_ns: int) -> list[str]:
    """What a reader of the file should know from its batch folder."""
    if batch is None:
        return []
    said = [f"{day} is {condition} by {CONDITION_NAME}" for day, condition in batch.bad_days(start_ns, end_ns).items()]
    if batch.files and path.resolve().name not in batch.files:
        said.append(f"{MANIFEST_NAME} does not name this file, so nothing vouches for its bytes")
    if batch.missing:
        more = " ..." if len(batch.missing) > 3 else ""
        said.append(f"{MANIFEST_NAME} names files that are not here: {', '.join(batch.missing[:3])}{more}")
    return said


def _day(ns: int) -> date:
    return date(1970, 1, 1) + timedelta(days=ns // DAY_NS)


def _read(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise BadInput(f"{path}: not JSON ({error}); download it again") from None


def _files(path: Path) -> dict[str, tuple[str, int]]:
    try:
        listed = {f["filename"]: (f["hash"], int(f["size"])) for f in _read(path)["files"]}
    except (KeyError, TypeError, ValueError) as error:
        raise BadInput(f"{path}: not the manifest of a batch ({error!r}); download it again or move it away") from None
    for name, (digest, _) in listed.items():
        if not str(digest).startswith(_PREFIX):
            raise BadInput(f"{path}: the hash of {name} is {digest!r}, sha256 is expected; download it again")
    return {name: (digest[len(_PREFIX) :], size) for name, (digest, size) in listed.items()}


def _conditions(path: Path) -> dict[str, str]:
    try:
        days = {str(row["date"]): str(row["condition"]) for row in _read(path)}
        for day in days:
            date.fromisoformat(day)
    except (KeyError, TypeError, ValueError) as error:
        raise BadInput(f"{path}: not a condition file ({error!r}); download it again or move it away") from None
    return dict(sorted(days.items()))
