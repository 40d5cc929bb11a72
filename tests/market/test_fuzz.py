"""A seeded part of the fuzz run of broken files, and proof that its judge sees what it is there to see."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from foxhunt_assets.market import snapshots
from tests.market import fuzz


def test_no_mutant_crashes_hangs_or_passes_as_a_shorter_file(tmp_path: Path) -> None:
    counts, failed = fuzz.run(tmp_path, files=100, seed=7)
    assert not failed, "\n".join(failed)
    assert sum(counts.values()) == 100 and {kind for kind, _ in counts} == set(fuzz.KINDS)
    assert {verdict for _, verdict in counts} == {"decoded", "refused"}


def test_whole_originals_decode(tmp_path: Path) -> None:
    files = fuzz.originals(tmp_path)
    assert {fuzz.judge(path, tmp_path) for path in files} == {("decoded", "60 records"), ("decoded", "200 records")}
    assert len(files) == 12


def test_the_judge_fails_an_inspection_that_says_another_thing(tmp_path: Path, monkeypatch: Any) -> None:
    path = fuzz.originals(tmp_path)[0]
    monkeypatch.setattr(fuzz.inspect, "inspect", lambda _: {"usable": False, "verdict": "no"})
    assert fuzz.judge(path, tmp_path) == ("FAILED", "decoded (60 records), but inspect says: no")
    monkeypatch.setattr(fuzz.inspect, "inspect", lambda _: {}["usable"])
    verdict, why = fuzz.judge(path, tmp_path)
    assert verdict == "FAILED" and "KeyError" in why


@pytest.mark.parametrize(
    ("decode", "words"),
    [
        (lambda *_: {"records": 59, "actions": {"A": 59}}, "a silent short read: 59 records reported, 60 in the file"),
        (lambda *_: {"records": 60, "actions": {"A": 58}}, "58 records by action, 60 in the file"),
        (lambda *_: [][0], "IndexError"),
        (lambda *_: fuzz.signal.pause(), "more than 1 s"),
    ],
)
def test_the_judge_fails_a_bad_reader(tmp_path: Path, monkeypatch: Any, decode: Any, words: str) -> None:
    path = fuzz.originals(tmp_path)[0]
    monkeypatch.setattr(fuzz, "SECONDS", 1)
    monkeypatch.setattr(snapshots, "decode", decode)
    verdict, why = fuzz.judge(path, tmp_path)
    assert verdict == "FAILED" and words in why
