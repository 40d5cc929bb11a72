"""The graph as a whole: it loads, its checks are partitioned as their assets, its gates are those consumers ask for."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import dagster as dg
import pytest

from foxhunt_assets import automation, gates, resources
from foxhunt_assets.assets.metadata import MAX_BYTES, weight
from foxhunt_assets.build import build
from foxhunt_assets.checks import RULES
from foxhunt_assets.partitions import partitions
from foxhunt_assets.settings import DataSettings, Settings
from foxhunt_assets.trainer.run_spec import EVALUATION_PACKAGES, code_hash
from tests.assets.fakes import tiny_settings

ROOT = Path(__file__).resolve().parent.parent
LINEAGE = {
    "dbn_files", "es_snapshots", "fold_spec", "frd_labels", "feature_norm", "checkpoint", "diag", "train_trades",
    "eval_diag", "eval_summary", "trades", "tier1_5_verdict", "eval_report", "policy_quality", "determinism_verdict",
}  # fmt: skip


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def defs(home):
    return build(tiny_settings(home))


def specs(defs):
    return {spec.key.to_user_string(): spec for spec in defs.resolve_all_asset_specs()}


def test_the_definitions_load_and_hold_the_lineage(defs):
    dg.Definitions.validate_loadable(defs)
    assert set(specs(defs)) == LINEAGE


def test_every_check_has_its_asset_s_partitions(defs):
    assets = specs(defs)
    checks = [check for group in defs.asset_checks for check in group.check_specs]
    assert len(checks) == len(RULES)
    for check in checks:
        assert check.partitions_def == assets[check.asset_key.to_user_string()].partitions_def, check.name


def test_the_gates_consumers_ask_for_are_the_blocking_checks(defs):
    blocking: dict[str, set[str]] = {name: set() for name in gates.BLOCKING}
    for group in defs.asset_checks:
        for check in group.check_specs:
            if check.blocking:
                blocking[check.asset_key.to_user_string()].add(check.name)
    assert blocking == {name: set(checks) for name, checks in gates.BLOCKING.items()}
    assert set(gates.BLOCKING) == LINEAGE - {"dbn_files"}


def test_everything_after_fold_spec_reaches_the_files_through_it_alone(defs):
    assets = specs(defs)
    deps = {name: {d.asset_key.to_user_string() for d in spec.deps} for name, spec in assets.items()}
    readers = {name for name, names in deps.items() if "es_snapshots" in names}
    assert readers == {"fold_spec"}


def test_every_asset_says_what_it_is(defs):
    for name, spec in specs(defs).items():
        assert spec.description and spec.group_name != "default", name


def test_trained_assets_carry_the_trainer_s_code_version(defs):
    assets = specs(defs)
    for name in ("checkpoint", "diag", "train_trades"):
        assert assets[name].code_version == code_hash(), name
    for name in ("eval_diag", "eval_summary", "trades"):
        assert assets[name].code_version == code_hash(EVALUATION_PACKAGES), name
    assert assets["es_snapshots"].code_version != code_hash()


def test_definition_metadata_stays_small(defs):
    for name, spec in specs(defs).items():
        assert weight(spec.metadata)[0] <= MAX_BYTES, name


def test_jobs_run_in_one_process_and_carry_the_settings(defs, home):
    names = {job.name for job in defs.resolve_all_job_defs()} - {"__ASSET_JOB"}
    assert names == {*automation.LAYERS, "observe_job"}
    for name in names:
        job = defs.resolve_job_def(name)
        assert job.tags[resources.SETTINGS_TAG] == tiny_settings(home).hash
        assert job.executor_def.name == "in_process"


def test_nightly_runs_by_default_and_the_automation_sensor_does_not(defs):
    assert defs.resolve_schedule_def("nightly_determinism").default_status == dg.DefaultScheduleStatus.RUNNING
    assert defs.resolve_sensor_def("foxhunt_automation").default_status == dg.DefaultSensorStatus.STOPPED
    assert defs.resolve_sensor_def("new_files").default_status == dg.DefaultSensorStatus.RUNNING


def test_the_nightly_waits_for_the_last_one(defs):
    with dg.DagsterInstance.local_temp() as instance:
        schedule = defs.resolve_schedule_def("nightly_determinism")
        context = dg.build_schedule_context(instance=instance)
        assert len(schedule.evaluate_tick(context).run_requests) == 1
        run = instance.create_run_for_job(defs.resolve_job_def("determinism_job"), status=dg.DagsterRunStatus.STARTED)
        ticked = schedule.evaluate_tick(context)
        assert not ticked.run_requests and run.run_id in ticked.skip_message


def sensor_tick(defs, instance, cursor):
    sensor = defs.resolve_sensor_def("new_files")
    context = dg.build_sensor_context(instance=instance, cursor=cursor, definitions=defs)
    return sensor(context)  # evaluate_tick would also need the instance of a running daemon


def test_the_sensor_takes_a_file_once_it_has_stopped_growing_and_again_when_replaced(tmp_path):
    data = tmp_path / "data"
    data.mkdir()
    file = data / "es.dbn"
    file.write_bytes(b"half")
    (data / "notes.txt").write_text("not a market file")
    defs = build(Settings(home=tmp_path, data=DataSettings(dir=str(data))))
    with dg.DagsterInstance.local_temp() as instance:
        one = sensor_tick(defs, instance, None)
        assert not one.run_requests and not one.dynamic_partitions_requests
        file.write_bytes(b"half and more")  # still growing
        two = sensor_tick(defs, instance, one.cursor)
        assert not two.run_requests
        three = sensor_tick(defs, instance, two.cursor)
        (request,) = three.run_requests
        assert three.dynamic_partitions_requests[0].partition_keys == [request.partition_key]
        (seen,) = three.asset_events
        assert (seen.partition, seen.tags["dagster/data_version"]) == (request.partition_key, request.run_key[-64:])
        instance.add_dynamic_partitions("source_files", [request.partition_key])
        four = sensor_tick(defs, instance, three.cursor)
        assert [r.run_key for r in four.run_requests] == [request.run_key]  # the same key: not launched again
        assert not four.dynamic_partitions_requests and not four.asset_events
        file.write_bytes(b"another file altogether")
        five = sensor_tick(defs, instance, sensor_tick(defs, instance, four.cursor).cursor)
        (again,) = five.run_requests
        assert again.partition_key == request.partition_key and again.run_key != request.run_key


def test_the_instance_frees_slots_and_never_retries_a_failed_check(tmp_path):
    settings = Settings(home=tmp_path)
    with resources.instance(settings) as instance:
        assert instance.root_directory == str(tmp_path / "dagster")
        assert instance.run_monitoring_settings["free_slots_after_run_end_seconds"] == 60
        assert instance.run_retries_enabled and not instance.run_retries_retry_on_asset_or_op_failure
        assert instance.event_log_storage.supports_global_concurrency_limits
    yaml = tmp_path / "dagster" / "dagster.yaml"
    yaml.write_text(yaml.read_text() + "# mine\n")
    resources.prepare_instance(tmp_path)
    assert yaml.read_text().endswith("# mine\n")


def test_partitions_follow_the_settings(home):
    parts = partitions(tiny_settings(home, n_folds=3, seeds=(1, 2)))
    assert len(parts.run_keys) == 6 and parts.runs.get_num_partitions() == 6


@pytest.mark.slow
@pytest.mark.parametrize(
    "command",
    [
        [sys.executable, "-m", "dagster", "definitions", "validate", "-m", "definitions"],
        ["dg", "list", "defs", "--json"],
        ["dg", "check", "defs"],
    ],
)
def test_the_command_lines_of_dagster_find_the_definitions(command, tmp_path):
    env = {**os.environ, "FOXHUNT_HOME": str(tmp_path), "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    if command[1] == "list":
        assert all(f'"{name}"' in done.stdout for name in LINEAGE - {"dbn_files"})
