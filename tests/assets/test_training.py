"""The training op yields all three outputs or nothing, whatever the trainer does."""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import dagster as dg
import pytest

from foxhunt_assets import lineage, storage
from foxhunt_assets.assets.training import ARTEFACTS, training_assets, training_spec
from foxhunt_assets.errors import ContractBroken
from foxhunt_assets.partitions import partitions
from foxhunt_assets.resources import SETTINGS_TAG, World, _where, resources
from tests.assets import fakes
from tests.trainer.fold_by_hand import make_fold_on_disk, tiny_config

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return tmp_path_factory.mktemp("home")


@pytest.fixture
def instance(home):
    with dg.DagsterInstance.ephemeral() as made:
        fakes.fold_on_disk(made, World(fakes.tiny_settings(home)))
        yield made


def train(instance, home, mode, seed=0, tags=None, **overrides):
    settings = fakes.tiny_settings(home, seeds=(0, 1, 2, 3, 4, 5), **overrides)
    return dg.materialize(
        training_assets(partitions(settings)),
        partition_key=f"fold_0|{seed}",
        instance=instance,
        resources=resources(settings, fakes.stub_launcher(mode)),
        raise_on_error=False,
        tags=tags or {},
        run_config={"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}},
    )


def materialised(instance):
    found = {}
    for name in ARTEFACTS:
        wanted = dg.AssetRecordsFilter(asset_key=dg.AssetKey(name))
        records = instance.fetch_materializations(wanted, limit=9).records
        if records:
            found[name] = [(r.partition_key, r.asset_materialization.tags["dagster/data_version"]) for r in records]
    return found


def failure(result):
    data = next(e for e in result.all_events if e.is_step_failure).event_specific_data
    return data.user_failure_data.description if data.user_failure_data else data.error.message


def test_a_fine_run_gives_all_three_with_versions_from_content(instance, home):
    result = train(instance, home, "fine")
    assert result.success
    found = materialised(instance)
    assert set(found) == set(ARTEFACTS)
    assert {key for records in found.values() for key, _ in records} == {"fold_0|0"}
    first = {name: records[0][1] for name, records in found.items()}
    assert train(instance, home, "fine").success  # finished: not run again, same versions
    assert {name: records[0][1] for name, records in materialised(instance).items()} == first


@pytest.mark.parametrize(
    ("mode", "seed", "says", "exit_code"),
    [
        ("die", 1, "code -9", 4),
        ("silent", 2, "no such file", 2),
        ("missing", 3, "diag.jsonl", 1),
        ("unclean", 4, "completed_clean", 1),
        ("stranger", 1, "the sources changed", 1),
        ("quarantine", 5, "report.txt", 1),
    ],
)
def test_a_trainer_that_fails_in_any_way_materialises_nothing(instance, home, mode, seed, says, exit_code):
    result = train(instance, home, mode, seed)
    assert not result.success
    assert materialised(instance) == {}
    (problem,) = lineage.problems_of(result)
    assert says in problem.text and problem.exit_code == exit_code


def test_an_older_run_s_report_is_not_shown_for_this_one(instance, home, tmp_path):
    spec = training_spec(instance, World(fakes.tiny_settings(home)), "fold_0", 0)
    spec = dataclasses.replace(spec, quarantine=str(tmp_path))  # the home is shared with tests that fill it
    old = tmp_path / "train-0a0a0a0a" / storage.REPORT
    storage.write_text(old, "another run's")
    os.utime(old, (1e9, 1e9))
    assert "output of this step" in _where(spec, began=2e9)
    assert _where(spec, began=1e9) == f"see {old}"


def test_inputs_that_failed_their_check_are_refused_before_the_trainer_starts(instance, home):
    fakes.report_check(instance, "frd_labels", "fold_0", "labels_contract", False, "b" * 64)
    result = train(instance, home, "fine")
    assert not result.success and "labels_contract failed" in failure(result)
    assert materialised(instance) == {}


def test_another_data_version_is_another_run(instance, home):
    world = World(fakes.tiny_settings(home))
    spec = training_spec(instance, world, "fold_0", 0)
    assert Path(spec.out) == home / "runs" / "fold_0" / "0" / spec.run_id / "train"
    assert spec.inputs == {"fold_spec": "a" * 64, "frd_labels": "b" * 64, "feature_norm": "c" * 64}
    assert spec.lock.endswith("locks/cpu.lock") and set(spec.snapshots) <= set(fakes.KEYS)
    folder = home / "folds" / "fold_0" / "norm"
    fakes.publish(instance, "feature_norm", "fold_0", folder, "d" * 64)
    assert training_spec(instance, world, "fold_0", 0).run_id != spec.run_id
    assert training_spec(instance, world, "fold_0", 1).run_id != spec.run_id
    fakes.publish(instance, "feature_norm", "fold_0", folder, "e" * 64, passed=False)
    with pytest.raises(ContractBroken, match="norm_contract failed"):
        training_spec(instance, world, "fold_0", 0)


def test_a_worker_with_other_settings_than_the_run_stops(instance, home):
    result = train(instance, home, "fine", tags={SETTINGS_TAG: "0" * 64})
    assert not result.success and "this worker reads" in failure(result)
    assert train(
        instance, home, "fine", tags={SETTINGS_TAG: fakes.tiny_settings(home, seeds=(0, 1, 2, 3, 4, 5)).hash}
    ).success


def test_a_run_without_a_partition_is_refused(home):
    settings = fakes.tiny_settings(home)
    with dg.DagsterInstance.ephemeral() as instance:
        fakes.fold_on_disk(instance, World(settings))
        defs = dg.Definitions(
            training_assets(partitions(settings)),
            resources=resources(settings, fakes.stub_launcher("fine")),
            jobs=[dg.define_asset_job("train_job")],
        )
        result = defs.resolve_job_def("train_job").execute_in_process(instance=instance, raise_on_error=False)
        assert not result.success and "names no partition" in failure(result)
        assert materialised(instance) == {}


def test_the_op_runs_one_at_a_time_on_the_device(home):
    (asset,) = training_assets(partitions(fakes.tiny_settings(home)))
    assert asset.op.pool == "gpu"
    assert all(spec.skippable for spec in asset.specs)
    assert not asset.can_subset


def test_a_killed_step_takes_its_trainer_along(home):
    """The real trainer, started by the real launcher from a process that is then killed."""
    pid_file = home / "step.pid"
    code = (
        "import os, sys, time, subprocess, pathlib\n"
        f"pathlib.Path({str(pid_file)!r}).write_text(str(os.getpid()))\n"
        "orders = pathlib.Path(sys.argv[1])\n"
        "import json\n"
        "body = json.loads(orders.read_text()); body['parent'] = os.getpid(); orders.write_text(json.dumps(body))\n"
        "subprocess.run([sys.executable, '-m', 'foxhunt_assets.trainer', 'train', str(orders)])\n"
    )
    spec = make_fold_on_disk(home / "kill", tiny_config(run={"n_steps": 100_000}))
    orders = home / "orders.json"
    storage.write_json(orders, spec.to_json())
    step = subprocess.Popen([sys.executable, "-c", code, str(orders)], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert step.stdout is not None
    line = step.stdout.readline()  # the trainer talks: it is past its imports
    assert line
    children = subprocess.run(["pgrep", "-P", str(step.pid)], capture_output=True, text=True, check=True).stdout.split()
    os.kill(step.pid, signal.SIGKILL)
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline and any(Path(f"/proc/{pid}").exists() and _alive(pid) for pid in children):
        time.sleep(0.2)
    assert children and not any(_alive(pid) for pid in children)
    assert not Path(spec.out).exists()


def _alive(pid: str) -> bool:
    try:
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return False
