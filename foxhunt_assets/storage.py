"""Where things lie under FOXHUNT_HOME, and how a folder becomes visible: written beside, validated, renamed once.

Nothing half-written is ever read: a reader opens only committed folders, and `verify` proves by sha256 that a
committed folder still holds what was committed.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import re
import shutil
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from foxhunt_assets.errors import BadInput, ContractBroken

MANIFEST = "manifest.json"
REPORT = "report.txt"


@dataclass(frozen=True)
class Layout:
    """Every path under FOXHUNT_HOME."""

    home: Path

    @property
    def dagster(self) -> Path:
        return self.home / "dagster"

    @property
    def work(self) -> Path:
        return self.home / "work"

    @property
    def quarantine(self) -> Path:
        return self.home / "quarantine"

    def snapshots(self, key: str) -> Path:
        return self.home / "snapshots" / key

    def fold(self, fold: str) -> Path:
        return self.home / "folds" / fold

    def run(self, fold: str, seed: int, run_id: str) -> Path:
        return self.home / "runs" / fold / str(seed) / run_id

    def resume(self, key: str) -> Path:
        """Checkpoints of a training under way, keyed by configuration and inputs, never part of a run folder."""
        return self.work / "resume" / key


def source_key(relative_path: str) -> str:
    """Partition key of a source file: the slug of its relative path and 8 hex of that path's sha256."""
    slug = re.sub(r"[^A-Za-z0-9]+", "-", relative_path).strip("-").lower()[:80]
    return f"{slug}-{hashlib.sha256(relative_path.encode()).hexdigest()[:8]}"


def file_sha256(path: Path) -> str:
    with path.open("rb") as f:
        return hashlib.file_digest(f, "sha256").hexdigest()


@dataclass(frozen=True)
class Hashed:
    """The sha256 of a file, and the state the file was in: in another state it may hold other bytes."""

    sha256: str
    state: tuple[int, ...]


def file_state(path: Path) -> tuple[int, ...]:
    """Size, both times of change (ns) and inode of a file: a write moves one of them, and nobody can set them all."""
    if not path.is_file():
        raise BadInput(f"{path}: no such file")
    stat = path.stat()
    return stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino


def hashed(path: Path) -> Hashed:
    """The state first, so that a write while the bytes are hashed shows in the next comparison."""
    state = file_state(path)
    return Hashed(file_sha256(path), state)


class HashingFile:
    """A new file whose bytes are hashed as they are written, while they are still in the cache."""

    def __init__(self, path: Path):
        self._path, self._file, self._digest = path, path.open("wb"), hashlib.sha256()

    def write(self, octets: Any) -> int:
        """Bytes of an object with the buffer protocol, all of them."""
        self._digest.update(octets)
        return self._file.write(octets)

    def flush(self) -> None:
        self._file.flush()

    def close(self) -> None:
        self._file.close()

    @property
    def closed(self) -> bool:
        return self._file.closed

    def hashed(self) -> Hashed:
        """Of the closed file."""
        return Hashed(self._digest.hexdigest(), file_state(self._path))


def canonical_json(value: Any) -> str:
    """One spelling for one value: sorted keys, no spaces, NaN refused."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False, ensure_ascii=False)


def write_json(path: Path, value: Any) -> None:
    write_text(path, readable_json(value))


def readable_json(value: Any) -> str:
    """What write_json writes: keys sorted, so that equal values are equal bytes."""
    return json.dumps(value, sort_keys=True, indent=1, allow_nan=False, ensure_ascii=False) + "\n"


def read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise BadInput(f"{path}: no such file") from None
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise BadInput(f"{path}: not JSON: {error}") from None


def write_text(path: Path, text: str) -> None:
    """Write beside, fsync, rename: a reader sees the old file or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}")
    try:
        with beside.open("w", encoding="utf-8") as f:
            f.write(text)
            f.flush()
            os.fsync(f.fileno())
        os.replace(beside, path)
    except OSError as error:
        beside.unlink(missing_ok=True)
        raise _no_space(error, path) from None


def build_folder(
    target: Path,
    write: Callable[[Path], Mapping[str, Hashed] | None],
    validate: Callable[[Path], None],
    quarantine: Path,
    identity: Mapping[str, Any],
    replace: bool = False,
) -> dict[str, Any]:
    """Fill a folder beside `target`, validate it, add its manifest, fsync it, and rename it into place.

    write(folder) fills it, and may return hashes that it made on the way, by file name; validate(folder) raises
    ContractBroken, after which the folder lies in quarantine with report.txt and the error goes on. Any other error
    leaves nothing; a full disk is BadInput. identity is stored in manifest.json beside the sha256 and size of each
    file. replace: an existing target gives way (else it is an error). Returns the manifest.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    beside = target.with_name(f".{target.name}.{os.getpid()}.{uuid.uuid4().hex[:8]}")
    beside.mkdir()
    try:
        known = write(beside)
        validate(beside)
        return commit(beside, target, identity, replace, known)
    except ContractBroken as error:
        to_quarantine(beside, quarantine, target.name, str(error))
        raise
    except OSError as error:
        raise _no_space(error, target) from None
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def sweep(target: Path) -> None:
    """Remove what a killed build of `target` left beside it. Only its one builder may, under a lock."""
    for left in target.parent.glob(f".{target.name}.*"):
        shutil.rmtree(left, ignore_errors=True)


def _no_space(error: OSError, target: Path) -> Exception:
    """A full disk as the one line a person can act on; any other error as it is."""
    if error.errno not in (errno.ENOSPC, errno.EDQUOT):
        return error
    return BadInput(
        f"{target.parent}: no space left on the disk while {target.name} was written; nothing of it is kept: "
        "free some space or set FOXHUNT_HOME to another disk"
    )


def commit(
    beside: Path,
    target: Path,
    identity: Mapping[str, Any],
    replace: bool = False,
    known: Mapping[str, Hashed] | None = None,
) -> dict[str, Any]:
    """Write manifest.json, fsync every file and the folder, and rename it to `target`.

    known: hashes of files by their name; a file that is no longer in the state it was hashed in is hashed again.
    """
    paths = {str(p.relative_to(beside)): p for p in sorted(beside.rglob("*")) if p.is_file() and p.name != MANIFEST}
    hashes = known or {}
    files = {name: {"sha256": _sha256_of(p, hashes.get(name)), "bytes": p.stat().st_size} for name, p in paths.items()}
    manifest = {"files": files, **identity}
    write_json(beside / MANIFEST, manifest)
    sync(beside)
    if target.exists():
        if not replace:
            raise BadInput(f"{target}: already there; a finished folder is never written again")
        old = target.with_name(f".{target.name}.old.{uuid.uuid4().hex[:8]}")
        os.rename(target, old)
        os.rename(beside, target)
        shutil.rmtree(old, ignore_errors=True)
    else:
        os.rename(beside, target)
    _fsync(target.parent)
    return manifest


def _sha256_of(path: Path, known: Hashed | None) -> str:
    return known.sha256 if known and known.state == file_state(path) else file_sha256(path)


def to_quarantine(folder: Path, quarantine: Path, name: str, report: str) -> Path:
    """Move a folder that broke its contract aside, with the report; it never counts as finished."""
    quarantine.mkdir(parents=True, exist_ok=True)
    place = quarantine / f"{name.strip('.')}-{uuid.uuid4().hex[:8]}"
    os.rename(folder, place)
    write_text(place / REPORT, report.rstrip() + "\n")
    return place


def verify(folder: Path) -> dict[str, Any]:
    """The manifest of a committed folder, proved against its files; BadInput names the first that changed."""
    manifest = read_json(folder / MANIFEST)
    if not _is_manifest(manifest):
        raise BadInput(f"{folder / MANIFEST}: not a manifest; materialise the folder again")
    for name, facts in manifest["files"].items():
        path = folder / name
        if not path.is_file():
            raise BadInput(f"{path}: named in the manifest and not there; materialise it again")
        if path.stat().st_size != facts["bytes"] or file_sha256(path) != facts["sha256"]:
            raise BadInput(f"{path}: changed since it was committed; materialise it again")
    return manifest


def _is_manifest(value: Any) -> bool:
    files = value.get("files") if isinstance(value, dict) else None
    return isinstance(files, dict) and all(
        isinstance(facts, dict) and {"sha256", "bytes"} <= facts.keys() for facts in files.values()
    )


def strangers(folder: Path) -> list[str]:
    """Files of a committed folder that its manifest does not name: nobody validated them."""
    there = {p.relative_to(folder).as_posix() for p in folder.rglob("*") if not p.is_dir()}
    return sorted(there - {MANIFEST, *verify(folder)["files"]})


@contextlib.contextmanager
def lock(path: Path, what: str) -> Iterator[None]:
    """Hold an advisory lock; a second holder stops with the owner's pid instead of waiting."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+") as f:
        try:
            fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            f.seek(0)
            raise BadInput(
                f"{what} is held by process {f.read().strip() or '?'} ({path}); wait for it or stop it"
            ) from None
        f.truncate(0)
        f.write(str(os.getpid()))
        f.flush()
        yield


def sync(folder: Path) -> None:
    """fsync every file below a folder and the folder itself."""
    for path in folder.rglob("*"):
        _fsync(path)
    _fsync(folder)


def _fsync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
