"""A batch download's manifest and condition file: what they name is checked, what they warn of is reported."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from foxhunt_assets.contracts.instruments import contract
from foxhunt_assets.errors import BadInput
from foxhunt_assets.market import batch, snapshots
from tests.market import made_dbn as made

T0 = made.ns("2024-03-01T15:00:00")
ES = contract("ES")


def download(folder: Path, **change: object) -> Path:
    """One sound file with its manifest and the condition of its day and the next."""
    path = made.write_mbp(folder / "a.mbp-10.dbn", [made.mbp(T0 + i) for i in range(3)])
    entry = {
        "filename": path.name, "size": path.stat().st_size,
        "hash": "sha256:" + hashlib.sha256(path.read_bytes()).hexdigest(), "urls": {}, **change,
    }  # fmt: skip
    (folder / "manifest.json").write_text(json.dumps({"job_id": "GLBX-1", "files": [entry]}))
    days = [
        {"date": "2024-03-01", "condition": "degraded", "last_modified_date": "2024-03-02"},
        {"date": "2024-03-02", "condition": "missing", "last_modified_date": None},
        {"date": "2024-02-29", "condition": "available", "last_modified_date": "2024-03-02"},
    ]
    (folder / "condition.json").write_text(json.dumps(days))
    return path


def test_a_sound_file_is_decoded_and_its_degraded_day_reported(tmp_path: Path) -> None:
    report = snapshots.decode(download(tmp_path), tmp_path, ES, 0)
    assert report["rows"] == 3
    assert report["bad_days"] == {"2024-03-01": "degraded"}, "the day after is not in the request"
    assert report["warnings"] == ["2024-03-01 is degraded by condition.json"]


def test_without_a_batch_nothing_is_said(tmp_path: Path) -> None:
    path = made.write_mbp(tmp_path / "a.dbn", [made.mbp(T0)])
    assert batch.check(path) is None
    report = snapshots.decode(path, tmp_path, ES, 0)
    assert report["warnings"] == [] and report["bad_days"] == {}


def test_a_changed_byte_and_a_changed_size_are_refused(tmp_path: Path) -> None:
    path = download(tmp_path)
    raw = bytearray(path.read_bytes())
    raw[-1] ^= 1
    path.write_bytes(raw)
    with pytest.raises(BadInput, match=r"a\.mbp-10\.dbn: sha256 .* manifest\.json says .*download it again"):
        snapshots.decode(path, tmp_path, ES, 0)
    path.write_bytes(raw[:-368])
    with pytest.raises(BadInput, match=r"a\.mbp-10\.dbn: \d+ bytes, manifest\.json says \d+"):
        snapshots.decode(path, tmp_path, ES, 0)


def test_a_file_without_its_last_frame_is_seen_only_by_the_manifest(tmp_path: Path) -> None:
    header = made.metadata(made.databento_dbn.Schema.MBP_10)
    frames = [header, made.mbp(T0).tobytes(), made.mbp(T0 + 1).tobytes()]
    path = made.write(tmp_path / "a.dbn.zst", frames)
    whole = path.read_bytes()
    last = made.write(tmp_path / "last.zst", frames[2:]).read_bytes()
    digest = "sha256:" + hashlib.sha256(whole).hexdigest()
    path.write_bytes(whole[: -len(last)])
    assert snapshots.decode(path, tmp_path, ES, 0)["rows"] == 1, "nothing in its bytes tells"
    entry = {"filename": path.name, "size": len(whole), "hash": digest}
    (tmp_path / "manifest.json").write_text(json.dumps({"files": [entry]}))
    with pytest.raises(BadInput, match="it is cut or changed"):
        snapshots.decode(path, tmp_path, ES, 0)


def test_missing_and_unnamed_files_are_warned_of(tmp_path: Path) -> None:
    download(tmp_path)
    other = made.write_mbp(tmp_path / "other.dbn", [made.mbp(T0)])
    (tmp_path / "a.mbp-10.dbn").unlink()
    found = batch.read_batch(tmp_path)
    assert found is not None and found.missing == ["a.mbp-10.dbn"]
    assert snapshots.decode(other, tmp_path, ES, 0)["warnings"][1:] == [
        "manifest.json does not name this file, so nothing vouches for its bytes",
        "manifest.json names files that are not here: a.mbp-10.dbn",
    ]


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("manifest.json", "{", "not JSON"),
        ("manifest.json", "[]", "not the manifest of a batch"),
        ("manifest.json", '{"files": [{"filename": "a", "size": 1}]}', "not the manifest of a batch"),
        ("manifest.json", '{"files": [{"filename": "a", "size": 1, "hash": "md5:1"}]}', "sha256 is expected"),
        ("condition.json", '[{"date": "soon", "condition": "available"}]', "not a condition file"),
        ("condition.json", '{"date": 1}', "not a condition file"),
    ],
)
def test_a_broken_batch_file_is_refused_by_name(tmp_path: Path, name: str, text: str, words: str) -> None:
    path = download(tmp_path)
    (tmp_path / name).write_text(text)
    with pytest.raises(BadInput, match=f"{name}: .*{words}"):
        batch.check(path)


def test_a_link_into_the_download_is_held_to_its_manifest(tmp_path: Path) -> None:
    (tmp_path / "download").mkdir()
    path = download(tmp_path / "download")
    link = tmp_path / "renamed.dbn"
    link.symlink_to(path)
    assert snapshots.decode(link, tmp_path, ES, 0)["warnings"] == ["2024-03-01 is degraded by condition.json"]
    path.write_bytes(path.read_bytes()[:-368])
    with pytest.raises(BadInput, match=r"renamed\.dbn: .* manifest\.json says"):
        batch.check(link)
