"""Running the lineage from the command line: one job and partition at a time, in this process, on the real instance."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import dagster as dg
from dagster._core.errors import DagsterExecutionInterruptedError

from foxhunt_assets import automation
from foxhunt_assets.errors import FoxhuntError
from foxhunt_assets.resources import EXIT_CODE, World

# Dagster's own console log would bury what a person waits for; the events are in the UI all the same.
QUIET = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}
MAX_LINE = 600

INTERRUPTED = 130  # as a shell says it

Say = Callable[[str], None]


class RunFailed(FoxhuntError):
    """A job that did not succeed; exit_code is that of what went wrong in it."""

    def __init__(self, text: str, exit_code: int) -> None:
        super().__init__(text)
        self.exit_code = exit_code


@dataclass(frozen=True)
class Problem:
    """Why one step failed. exit_code: 1 a failed check, 2 input, 4 our own error, 130 interrupted."""

    step: str
    text: str
    exit_code: int


def say(text: str) -> None:
    print(text, flush=True)


def run_job(
    defs: dg.Definitions, instance: dg.DagsterInstance, world: World, job: str, partition: str | None, tell: Say = say
) -> None:
    """Run one job on one partition; RunFailed with one line when it does not succeed."""
    began = time.perf_counter()
    result = defs.resolve_job_def(job).execute_in_process(
        instance=instance, partition_key=partition, run_config=QUIET, tags=automation.tags(world), raise_on_error=False
    )
    problems = problems_of(result)
    name = f"{job.removesuffix('_job')} {partition or ''}".strip()
    if problems:
        first = problems[0]
        raise RunFailed(f"{name}: {first.step}: {first.text}", first.exit_code)
    tell(f"{name:<72} {time.perf_counter() - began:7.1f} s  {_checks_line(result)}".rstrip())


def _checks_line(result: Any) -> str:
    """How many checks passed, and the remarks of those that stop nothing."""
    evaluations = result.get_asset_check_evaluations()
    if not evaluations:
        return ""
    remarks = [f"{e.check_name}: {_line(e.description)}" for e in evaluations if not e.passed]
    passed = f"{len(evaluations) - len(remarks)} checks passed"
    return f"{passed}; remark {'; '.join(remarks)}" if remarks else passed


def problems_of(result: Any) -> list[Problem]:
    """Every step of a finished run that failed, a failed check told apart from a crash."""
    failed = {
        f"{e.asset_key.to_user_string()}_{e.check_name}": e
        for e in result.get_asset_check_evaluations()
        if not e.passed and e.severity == dg.AssetCheckSeverity.ERROR
    }
    found = [Problem(name, f"check failed: {e.description or 'see its metadata'}", 1) for name, e in failed.items()]
    for event in result.all_events:
        if event.is_step_failure and event.step_key not in failed:
            found.append(_crash(event))
    return found


def _crash(event: Any) -> Problem:
    data = event.event_specific_data
    said = data.user_failure_data
    if said is not None:  # a dg.Failure: our own words
        code = said.metadata.get(EXIT_CODE)
        return Problem(event.step_key, _line(said.description), int(code.value) if code else 1)
    error = data.error
    if error.cls_name == DagsterExecutionInterruptedError.__name__:
        return Problem(event.step_key, "interrupted; nothing half-written is kept, run the command again", INTERRUPTED)
    cause = error.cause or error
    return Problem(event.step_key, _line(cause.message), 4)


def _line(text: str | None) -> str:
    return " ".join((text or "no message").split())[:MAX_LINE]
