"""A twin of two tiny arms: equal ones pass, and every fault planted in one arm is found and named."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from foxhunt_assets.determinism import twin
from foxhunt_assets.errors import BadInput
from foxhunt_assets.storage import Layout
from tests.determinism import fake_run as fake

REPO = Path(__file__).parents[2]
ENV = {**os.environ, "PYTHONPATH": str(REPO)}
SCRIPT = str(Path(fake.__file__))


def commands(folder, fault="", phases=("train", "evaluate")):
    return [[sys.executable, SCRIPT, str(folder), phase, "--fault", fault] for phase in phases]


COPY = "import shutil, sys; shutil.copytree(sys.argv[1], sys.argv[2])"


def run_copies(tmp_path, *changes):
    """A twin whose arms write runs prepared here (quicker than two interpreters that load pyarrow)."""
    a, b = twin.arm_folders(Layout(tmp_path), "key")
    made = [fake.commit(tmp_path / f"made{i}", "train", change).parent for i, change in enumerate(changes)]
    arms = [[[sys.executable, "-S", "-c", COPY, str(run), str(folder)]] for run, folder in zip(made, (a, b))]
    return twin.run_twin(arms, [a, b], 60, ENV)


def run(tmp_path, fault_b="", fault_a="", phases=("train",), timeout_s=60):
    a, b = twin.arm_folders(Layout(tmp_path), "key")
    return twin.run_twin([commands(a, fault_a, phases), commands(b, fault_b, phases)], [a, b], timeout_s, ENV)


def test_equal_arms_pass_with_coverage_and_exposure(tmp_path):
    verdict = run(tmp_path, phases=("train", "evaluate"))
    assert (verdict["verdict"], verdict["exit_code"]) == ("PASS", 0)
    assert verdict["totals"] == {"artefacts": 11, "diag_rows": 8, "leaves": 7, "tensors": 3, "table_rows": 6}
    assert [(arm["exit_codes"], arm["hash_seed"]) for arm in verdict["arms"]] == [((0, 0), "1"), ((0, 0), "2")]
    assert verdict["arms"][0]["folder"] == str(tmp_path / "work/determinism/key/a")
    assert "1 trades (train/trades.parquet)" in verdict["exposure"] and "one pair of runs" in verdict["text"]
    json.dumps(verdict, allow_nan=False)


@pytest.mark.parametrize(
    ("fault", "expected", "named"),
    [
        ("tensor_bit", "DIVERGED", "checkpoint.safetensors"),
        ("one_leaf", "DIVERGED", "train/diag.jsonl step 2 (compared from step 0), pi.logits_digest32, stage heads"),
        ("trade_cent", "DIVERGED", "pnl_cents: 1 of 1 rows differ, first row 0 (6600 / 6601)"),
        ("missing_file", "INCOMPLETE", "train/trades.parquet: missing in B"),
        ("extra_file", "INCOMPLETE", "train/step_0_new.bin: unknown file"),
    ],
)
def test_a_fault_in_one_arm_is_found(tmp_path, fault, expected, named):
    verdict = run_copies(tmp_path, lambda folder: None, fake.FAULTS[fault])
    assert verdict["verdict"] == expected and named in verdict["text"]


def test_bits_that_follow_the_hash_seed_are_found_though_both_arms_run_the_same_code(tmp_path):
    verdict = run(tmp_path, "hash_seed", "hash_seed")
    assert verdict["verdict"] == "DIVERGED" and verdict["culprit"]["file"] == "train/checkpoint.json"


@pytest.mark.parametrize(("fault_a", "fault_b", "arm"), [("exit_1", "", "a"), ("", "exit_1", "b")])
def test_an_arm_that_fails_is_an_error_and_no_verdict_on_bits(tmp_path, fault_a, fault_b, arm):
    verdict = run(tmp_path, fault_b, fault_a, phases=("train", "evaluate"))
    assert (verdict["verdict"], verdict["exit_code"], verdict["files"]) == ("ERROR", 4, [])
    assert f"arm {arm}, command 1 of 2" in verdict["text"] and "exit 1" in verdict["text"]
    assert "no such device" in verdict["text"]  # the arm's own words
    assert len(verdict["arms"]) == (1 if arm == "a" else 2)  # nothing is started after a failure


def test_an_arm_over_its_time_is_stopped(tmp_path):
    verdict = run(tmp_path, fault_a="sleep", timeout_s=5)
    assert verdict["verdict"] == "ERROR" and "ran over 5 s" in verdict["text"]
    assert _gone(int((tmp_path / "work/determinism/key/a/pid").read_text()))


def test_an_arm_dies_with_its_parent(tmp_path):
    parent = (
        "import sys; from foxhunt_assets.determinism import twin; from foxhunt_assets.storage import Layout\n"
        "from pathlib import Path\n"
        f"a, b = twin.arm_folders(Layout(Path({str(tmp_path)!r})), 'key')\n"
        f"arm = lambda f: [[sys.executable, {SCRIPT!r}, str(f), 'train', '--fault', 'sleep']]\n"
        "twin.run_twin([arm(a), arm(b)], [a, b], 100)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", parent], env=ENV)
    pid_file = tmp_path / "work/determinism/key/a/pid"
    for _ in range(600):
        if pid_file.exists() and pid_file.read_text():
            break
        time.sleep(0.05)
    pid = int(pid_file.read_text())
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert _gone(pid)


def test_an_old_run_is_never_taken_for_an_arm(tmp_path):
    a, b = twin.arm_folders(Layout(tmp_path), "key")
    fake.commit(a, "train")
    with pytest.raises(BadInput, match="an arm must start without a folder"):
        twin.run_twin([commands(a), commands(b)], [a, b], 60, ENV)
    a, b = twin.arm_folders(Layout(tmp_path), "key")  # a fresh pair of the same key
    assert not a.exists() and not b.exists()


def test_arms_of_unequal_commands_are_refused(tmp_path):
    with pytest.raises(BadInput, match="equally many commands"):
        twin.run_twin([commands("x"), commands("y")[:1]], [tmp_path / "x", tmp_path / "y"], 60, ENV)


def _gone(pid: int) -> bool:
    for _ in range(100):
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
        except FileNotFoundError:
            return True
        if state == "Z":
            return True
        time.sleep(0.05)
    return False
