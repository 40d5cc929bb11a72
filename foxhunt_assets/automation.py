"""When things run: jobs, the sensor for new files, the nightly schedule, and what is allowed to start by itself.

Decoding starts by itself: a file dropped into the data folder is registered and decoded once it has stopped growing.
Training never does: the automation conditions of everything after the files are there, and the sensor that acts on
them (`foxhunt_automation`) is stopped until a person starts it in the UI.
"""

import json
from typing import Any

import dagster as dg

from foxhunt_assets import sources
from foxhunt_assets.partitions import Partitions, known_files
from foxhunt_assets.resources import GIT_TAG, SETTINGS_TAG, World, git_identity

# One job a layer, because a job's assets share their partitions. Selecting an asset takes its checks along.
LAYERS: dict[str, tuple[str, ...]] = {
    "snapshots_job": ("es_snapshots",),
    "folds_job": ("fold_spec", "frd_labels", "feature_norm"),
    "train_job": ("checkpoint", "diag", "train_trades"),
    "evaluate_job": ("eval_diag", "eval_summary", "trades", "tier1_5_verdict", "eval_report"),
    "quality_job": ("policy_quality",),
    "determinism_job": ("determinism_verdict",),
}
NIGHTLY_CRON = "0 3 * * *"
ACTIVE = [dg.DagsterRunStatus.QUEUED, dg.DagsterRunStatus.STARTING, dg.DagsterRunStatus.STARTED]

# A plain eager condition walks past a failed check of a dependency; this one waits for the checks of what it reads.
AFTER_CHECKS = dg.AutomationCondition.eager() & dg.AutomationCondition.all_deps_blocking_checks_passed()
# fold_spec takes what is usable and waits for no file: any file that is decoded anew may re-cut it.
ANY_FILE_UPDATED = dg.AutomationCondition.any_deps_updated() & ~dg.AutomationCondition.in_progress()
CONDITIONS: dict[str, dg.AutomationCondition] = {
    "fold_spec": ANY_FILE_UPDATED,
    **{
        name: AFTER_CHECKS
        for job in ("folds_job", "train_job", "evaluate_job", "quality_job")
        for name in LAYERS[job]
        if name != "fold_spec"
    },
}


def with_conditions(assets: list[Any]) -> list[Any]:
    """The assets with their automation conditions; sources and the nightly verdict have none."""

    def conditioned(spec: dg.AssetSpec) -> dg.AssetSpec:
        condition = CONDITIONS.get(spec.key.to_user_string())
        return spec.replace_attributes(automation_condition=condition) if condition else spec

    return [a.map_asset_specs(conditioned) if _has_condition(a) else a for a in assets]


def _has_condition(asset: Any) -> bool:
    is_source = not isinstance(asset, dg.AssetsDefinition)
    return not is_source and any(key.to_user_string() in CONDITIONS for key in asset.keys)


def tags(world: World) -> dict[str, str]:
    """Tags of every run: which settings it was started with, and from which commit."""
    return {SETTINGS_TAG: world.settings.hash, GIT_TAG: git_identity()}


def jobs(world: World) -> list[Any]:
    """One job a layer, each on the in-process executor: a step process of its own would outlive a killed run."""
    made = [
        dg.define_asset_job(
            name, selection=dg.AssetSelection.assets(*keys), executor_def=dg.in_process_executor, tags=tags(world)
        )
        for name, keys in LAYERS.items()
    ]
    observe = dg.define_asset_job("observe_job", dg.AssetSelection.assets("dbn_files"), tags=tags(world))
    return [*made, observe]


def new_files(parts: Partitions, world: World) -> dg.SensorDefinition:
    """Registers and decodes files that have stopped growing. The run key holds the content, so that a file that is
    replaced is decoded again, and one that is only touched is not."""

    @dg.sensor(
        name="new_files",
        job_name="snapshots_job",
        minimum_interval_seconds=60,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Registers Databento files that have stopped growing, and decodes them.",
    )
    def sensor(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        before = json.loads(context.cursor or '{"files": {}, "content": {}}')
        files = world.source_files()
        now = {key: _size_and_time(path) for key, path in files.items()}
        settled = [key for key, state in now.items() if before["files"].get(key) == state]
        content = {key: world.source_sha256(files[key]) for key in settled}
        new = sorted(set(settled) - set(known_files(context.instance)))
        return dg.SensorResult(
            run_requests=[
                dg.RunRequest(run_key=f"{key}-{sha}", partition_key=key, tags=tags(world))
                for key, sha in content.items()
            ],
            dynamic_partitions_requests=[parts.files.build_add_request(new)] if new else [],
            # the new version of a file, so that its snapshots show as out of date until they are decoded
            asset_events=[
                sources.observation(world, key, files[key])
                for key, sha in content.items()
                if before["content"].get(key) != sha
            ],
            cursor=json.dumps({"files": now, "content": {**before["content"], **content}}),
        )

    return sensor


def _size_and_time(path: Any) -> list[int]:
    stat = path.stat()
    return [stat.st_size, stat.st_mtime_ns]


def nightly(world: World) -> dg.ScheduleDefinition:
    """determinism_verdict every night, unless the last one is still running."""

    @dg.schedule(
        name="nightly_determinism",
        job_name="determinism_job",
        cron_schedule=NIGHTLY_CRON,
        default_status=dg.DefaultScheduleStatus.RUNNING,
        description="Two runs of one seed in fresh processes must give the same bits.",
    )
    def schedule(context: dg.ScheduleEvaluationContext) -> dg.RunRequest | dg.SkipReason:
        running = context.instance.get_runs(dg.RunsFilter(job_name="determinism_job", statuses=ACTIVE), limit=1)
        if running:
            return dg.SkipReason(f"run {running[0].run_id} is still going")
        return dg.RunRequest(tags=tags(world))

    return schedule


def automation_sensor() -> dg.AutomationConditionSensorDefinition:
    """Acts on the automation conditions. Stopped until a person starts it: it would train unasked."""
    return dg.AutomationConditionSensorDefinition(
        "foxhunt_automation",
        target=dg.AssetSelection.all(),
        default_status=dg.DefaultSensorStatus.STOPPED,
    )
