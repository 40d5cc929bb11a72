"""The twin: the same commands in two fresh processes, in two folders, and every artefact of both compared.

Each arm gets another PYTHONHASHSEED, so that bits which follow the order of a set or a dict of objects are found.
The arms run one after the other: sharing the device would be another experiment.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from foxhunt_assets import storage
from foxhunt_assets.contracts.diag import flatten
from foxhunt_assets.determinism import arm as arm_program
from foxhunt_assets.determinism.compare import compare_runs
from foxhunt_assets.determinism.verdict import Comparison, Finding
from foxhunt_assets.errors import BadInput

Command = Sequence[str]
_HASH_SEEDS = ("1", "2")  # of arm a and arm b
_LOG_TAIL = 5  # lines of a failed arm's log that the verdict quotes


@dataclass(frozen=True)
class ArmRun:
    """What became of one arm. exit_codes: of the commands that ran, in order. log: their output."""

    name: str
    folder: Path
    hash_seed: str
    exit_codes: tuple[int, ...]
    log: Path
    failure: str = ""


def arm_folders(layout: storage.Layout, key: str) -> tuple[Path, Path]:
    """Folders of a fresh pair of arms, work/determinism/<key>/{a,b}; an earlier pair of that key is removed."""
    root = layout.work / "determinism" / key
    if root.exists():
        shutil.rmtree(root)
    root.mkdir(parents=True)
    return root / "a", root / "b"


def run_twin(
    commands: Sequence[Sequence[Command]],
    folders: Sequence[Path],
    timeout_s: float,
    env: Mapping[str, str] = os.environ,
) -> dict[str, Any]:
    """Run both arms and judge them.

    commands: for arm a and for arm b the command lines in order (train, evaluate), which must write `train` and
    `eval-<id>` under folders[0] and folders[1]. timeout_s: for one command. The arms die with this process.
    Returns Comparison.to_json with `arms`, `totals`, `exposure` and `text` added. An arm that fails makes the
    verdict ERROR: it says nothing about bits.
    """
    _check_arms(commands, folders)
    runs: list[ArmRun] = []
    for name, lines, folder, seed in zip("ab", commands, folders, _HASH_SEEDS):
        runs.append(_run_arm(name, lines, folder, {**env, "PYTHONHASHSEED": seed}, timeout_s))
        if runs[-1].failure:
            break
    failed = [Finding("ERROR", run.failure) for run in runs if run.failure]
    a, b = folders
    result = Comparison(str(a), str(b), findings=tuple(failed)) if failed else compare_runs(a, b)
    exposure = _exposure(result)
    return {
        **result.to_json(),
        "arms": [{**vars(run), "folder": str(run.folder), "log": str(run.log)} for run in runs],
        "totals": _totals(result),
        "exposure": exposure,
        "text": f"{result.text()}\n  {exposure}",
    }


def _check_arms(commands: Sequence[Sequence[Command]], folders: Sequence[Path]) -> None:
    if len(commands) != 2 or len(folders) != 2 or len(commands[0]) != len(commands[1]) or not commands[0]:
        raise BadInput("twin: two arms of equally many commands, one or more, and two folders are needed")
    for folder in folders:
        if folder.exists():
            raise BadInput(f"{folder}: an arm must start without a folder, or an old run would be compared; remove it")


def _run_arm(name: str, commands: Sequence[Command], folder: Path, env: Mapping[str, str], timeout_s: float) -> ArmRun:
    folder.parent.mkdir(parents=True, exist_ok=True)
    log = folder.parent / f"{folder.name}.log"
    codes: list[int] = []
    failure = ""
    for i, command in enumerate(commands):
        with log.open("ab") as out:
            codes.append(_run(command, env, out, timeout_s))
        if codes[-1]:
            why = f"ran over {timeout_s:g} s" if codes[-1] == _TIMED_OUT else f"exit {codes[-1]}"
            failure = f"arm {name}, command {i + 1} of {len(commands)} ({shlex.join(command)}): {why}; {_tail(log)}"
            break
    return ArmRun(name, folder, env["PYTHONHASHSEED"], tuple(codes), log, failure)


_TIMED_OUT = 124  # as timeout(1) exits


def _run(command: Command, env: Mapping[str, str], out: Any, timeout_s: float) -> int:
    stub = [sys.executable, str(Path(arm_program.__file__)), str(os.getpid())]
    process = subprocess.Popen(
        [*stub, *command], env=dict(env), stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True
    )
    try:
        return process.wait(timeout_s)
    except subprocess.TimeoutExpired:
        return _TIMED_OUT
    finally:  # also where this process is interrupted: the arm's whole session goes
        if process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _tail(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").split("\n")
    kept = [line.strip() for line in lines if line.strip()][-_LOG_TAIL:]
    return f"{log} ends: {' | '.join(kept) or '(nothing)'}"


def _totals(result: Comparison) -> dict[str, int]:
    """How much was compared: artefacts, rows and leaves of diagnostics, tensors, rows of tables."""
    by_judge = {j: [f for f in result.compared if f.judge == j] for j in ("json_lines", "tensors", "table")}
    return {
        "artefacts": len(result.compared),
        "diag_rows": sum(f.compared for f in by_judge["json_lines"]),
        "leaves": max((f.detail["leaves"] for f in by_judge["json_lines"]), default=0),
        "tensors": sum(f.compared for f in by_judge["tensors"]),
        "table_rows": sum(f.compared for f in by_judge["table"]),
    }


def _exposure(result: Comparison) -> str:
    """What this one pair of runs can and cannot have seen."""
    if not result.compared:
        return "exposure: nothing was compared"
    totals = _totals(result)
    return (
        f"exposure: one pair of runs on this machine, {totals['artefacts']} artefacts, {totals['diag_rows']} rows of "
        f"{totals['leaves']} leaves, {totals['tensors']} tensors, {totals['table_rows']} table rows; events reached: "
        f"{_events(result)}. One equal pair excludes only faults that strike over 95 % of pairs; other devices, more "
        "steps and events not reached are outside it"
    )


def _events(result: Comparison) -> str:
    """Facts of arm a that tell which code ran: an equal pair in which nothing traded proves nothing about trading."""
    found = []
    for file in result.compared:
        path = Path(result.a) / file.file
        if path.name == "trades.parquet":
            found.append(f"{file.compared} trades ({file.file})")
        elif path.name == "train_summary.json":
            updates = storage.read_json(path).get("updates")
            found += [] if updates is None else [f"{updates} optimiser updates"]
        elif file.judge == "json_lines":
            last = flatten(json.loads(path.read_bytes().splitlines()[-1]))
            reached = last.get("audit.events_reached")
            found += [] if reached is None else [f"{reached} of 16 event kinds ({file.file})"]
    return ", ".join(found) or "none recorded"
