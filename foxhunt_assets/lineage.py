"""Running the lineage from the command line: one job and partition at a time, in this process, on the real instance."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dagster as dg
from dagster._core.errors import DagsterExecutionInterruptedError

from foxhunt_assets import automation, storage
from foxhunt_assets.errors import FoxhuntError
from foxhunt_assets.resources import EXIT_CODE, World, instance
from foxhunt_assets.settings import Settings

# Dagster's own console log would bury what a person waits for; the events are in the UI all the same.
QUIET = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}
MAX_LINE = 600

COMMAND_TAG = {"foxhunt/command": "true"}  # on runs of a command's own process, which end with it
_UNFINISHED = [
    dg.DagsterRunStatus.NOT_STARTED, dg.DagsterRunStatus.QUEUED, dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED, dg.DagsterRunStatus.CANCELING,
]  # fmt: skip

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


@contextlib.contextmanager
def commanding(settings: Settings) -> Iterator[dg.DagsterInstance]:
    """The home's instance, for the one command that may materialise in it; a second command stops at the lock.

    Who holds the lock knows that every unfinished run a command started is dead: it is closed here and its pool slot
    freed, else the next run would wait for it for ever (a daemon would free the slot, and a command has none).
    """
    held = storage.lock(command_lock(settings), "this home, in which another foxhunt command materialises,")
    with held, instance(settings) as dagster:
        for run in dagster.get_runs(dg.RunsFilter(tags=COMMAND_TAG, statuses=_UNFINISHED)):
            dagster.report_run_canceled(run, message="the command that started this run is gone")
            dagster.event_log_storage.free_concurrency_slots_for_run(run.run_id)
        yield dagster


def command_lock(settings: Settings) -> Path:
    return storage.Layout(settings.home).work / "locks" / "command.lock"


def run_job(
    defs: dg.Definitions, instance: dg.DagsterInstance, world: World, job: str, partition: str | None, tell: Say = say
) -> None:
    """Run one job on one partition; RunFailed with one line when it does not succeed."""
    began = time.perf_counter()
    result = defs.resolve_job_def(job).execute_in_process(
        instance=instance, partition_key=partition, run_config=QUIET, raise_on_error=False,
        tags=automation.tags(world) | COMMAND_TAG,
    )  # fmt: skip
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
