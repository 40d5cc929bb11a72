"""`foxhunt gate`: every check over what is materialised, run again, with an exit code that is the truth.

It runs in a Dagster instance of its own: a shared one would retry, queue, and let a background daemon in. What the
home instance says is current is copied there as plain events; the artefacts themselves are read where they lie.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import dagster as dg

from foxhunt_assets import gates
from foxhunt_assets.build import build
from foxhunt_assets.checks import asset_partitions
from foxhunt_assets.lineage import QUIET, Problem, problems_of
from foxhunt_assets.partitions import known_files, partitions, register_files
from foxhunt_assets.resources import instance, prepare_instance
from foxhunt_assets.settings import Settings

Outcome = Literal["pass", "FAIL", "CRASH", "MISSING"]
# A file that was refused is no fault of the gate: fold_spec lists it as quarantined.
MAY_BE_MISSING = ("es_snapshots",)


@dataclass(frozen=True)
class Line:
    """One check on one partition, or one asset that is not there."""

    outcome: Outcome
    asset: str
    partition: str | None
    check: str
    text: str = ""

    def __str__(self) -> str:
        where = f"{self.asset} {self.partition or ''}".strip()
        return f"{self.outcome:<8}{where:<72} {self.check}{': ' + self.text if self.text else ''}"


def run(settings: Settings) -> list[Line]:
    """Every check of every materialised partition of the configuration, in lineage order."""
    parts = partitions(settings)
    keys = {name: asset_partitions(name, parts) for name in gates.BLOCKING}
    defs = dg.Definitions.merge(build(settings), dg.Definitions(jobs=[_job(name) for name in _checked()]))
    lines: list[Line] = []
    with instance(settings) as home, _scratch() as scratch:
        files = known_files(home)
        register_files(scratch, files)
        wanted = {name: _partition_keys(name, part, files) for name, part in keys.items()}
        there = {(name, key) for name in wanted for key in wanted[name] if _copy(home, scratch, name, key)}
        for name in _checked():
            for key in wanted[name]:
                if (name, key) in there:
                    lines += _run(defs, scratch, name, key)
                elif name not in MAY_BE_MISSING:
                    lines.append(Line("MISSING", name, key, "not materialised"))
    return lines


def exit_code(lines: Sequence[Line]) -> int:
    """0 when checks ran and all passed, 1 when one failed, 2 when something is missing or nothing ran, 4 on a crash."""
    outcomes = {line.outcome for line in lines}
    if "CRASH" in outcomes:
        return 4
    if "FAIL" in outcomes:
        return 1
    return 0 if "pass" in outcomes and "MISSING" not in outcomes else 2


@contextlib.contextmanager
def _scratch() -> Iterator[dg.DagsterInstance]:
    """An instance of our own configuration that nobody else sees and that is gone afterwards."""
    with (
        tempfile.TemporaryDirectory(prefix="foxhunt-gate-") as folder,
        dg.DagsterInstance.from_config(str(prepare_instance(Path(folder)))) as made,
    ):
        yield made


def _checked() -> list[str]:
    return [name for name, checks in gates.BLOCKING.items() if checks]


def _job(asset: str) -> Any:
    checks = [dg.AssetCheckKey(dg.AssetKey(asset), check) for check in gates.BLOCKING[asset]]
    return dg.define_asset_job(f"gate_{asset}", selection=dg.AssetSelection.checks(*checks))


def _partition_keys(name: str, part: dg.PartitionsDefinition | None, files: Sequence[str]) -> Sequence[str | None]:
    if part is None:
        return [None]
    return list(files) if name == "es_snapshots" else [str(k) for k in part.get_partition_keys()]


def _copy(home: dg.DagsterInstance, scratch: dg.DagsterInstance, asset: str, partition: str | None) -> bool:
    """Tell the scratch instance what is current at home; whether there is anything."""
    wanted = dg.AssetRecordsFilter(asset_key=dg.AssetKey(asset), asset_partitions=[partition] if partition else None)
    records = home.fetch_materializations(wanted, limit=1).records
    event = records[0].asset_materialization if records else None
    if event is None:
        return False
    scratch.report_runless_asset_event(event)
    return True


def _run(defs: dg.Definitions, scratch: dg.DagsterInstance, asset: str, partition: str | None) -> Iterator[Line]:
    # The tag, because a job of checks alone takes no partition key.
    tags = {"dagster/partition": partition} if partition else {}
    result = defs.resolve_job_def(f"gate_{asset}").execute_in_process(
        instance=scratch, tags=tags, run_config=QUIET, raise_on_error=False
    )
    evaluations = {e.check_name: e for e in result.get_asset_check_evaluations()}
    problems = {p.step: p for p in problems_of(result)}
    for check in gates.BLOCKING[asset]:
        yield _line(asset, partition, check, evaluations.get(check), problems.get(f"{asset}_{check}"))


def _line(asset: str, partition: str | None, check: str, evaluation: Any, problem: Problem | None) -> Line:
    if evaluation is None:
        return Line("CRASH", asset, partition, check, problem.text if problem else "did not run")
    if evaluation.partition != partition:
        return Line("CRASH", asset, partition, check, f"looked at partition {evaluation.partition}")
    return Line("pass" if evaluation.passed else "FAIL", asset, partition, check, evaluation.description or "")
