"""A consumer reads only what is materialised, checked and unchanged; each way of not being so is refused and named."""

from __future__ import annotations

import dagster as dg
import pytest

from foxhunt_assets import gates
from foxhunt_assets.errors import BadInput, ContractBroken
from tests.assets.fakes import commit, publish, report_check


@pytest.fixture
def instance():
    with dg.DagsterInstance.ephemeral() as made:
        yield made


@pytest.fixture
def folder(tmp_path):
    return commit(tmp_path / "f", {"a.json": "{}"})


def test_current_checked_and_unchanged_is_let_through(instance, folder):
    publish(instance, "fold_spec", "fold_0", folder, "v7")
    now = gates.require(instance, "fold_spec", "fold_0")
    assert (now.folder, now.data_version, now.partition) == (folder, "v7", "fold_0")


def test_the_latest_materialisation_is_current_not_the_newest_folder(instance, folder, tmp_path):
    publish(instance, "fold_spec", "fold_0", folder, "v1")
    commit(tmp_path / "newer", {"a.json": "{}"})
    assert gates.require(instance, "fold_spec", "fold_0").folder == folder


def test_not_materialised(instance, folder):
    publish(instance, "fold_spec", "fold_0", folder)
    with pytest.raises(BadInput, match="fold_spec of fold_1 is not materialised"):
        gates.require(instance, "fold_spec", "fold_1")


def test_checks_that_did_not_run(instance, folder):
    publish(instance, "fold_spec", "fold_0", folder, passed=None)
    with pytest.raises(ContractBroken, match="no_leak has not run"):
        gates.require(instance, "fold_spec", "fold_0")


def test_a_failed_check_of_one_partition_stops_that_partition_only(instance, folder):
    publish(instance, "fold_spec", "fold_0", folder, passed=True)
    publish(instance, "fold_spec", "fold_1", folder, passed=False)
    publish(instance, "fold_spec", "fold_2", folder, passed=True)
    with pytest.raises(ContractBroken, match="no_leak failed"):
        gates.require(instance, "fold_spec", "fold_1")
    for fold in ("fold_0", "fold_2"):
        gates.require(instance, "fold_spec", fold)


@pytest.mark.parametrize("check", gates.BLOCKING["eval_summary"])
def test_every_blocking_check_counts(instance, folder, check):
    publish(instance, "eval_summary", "fold_0|0", folder, passed={check: False})
    with pytest.raises(ContractBroken, match=f"{check} failed"):
        gates.require(instance, "eval_summary", "fold_0|0")


def test_a_pass_of_an_older_version_does_not_vouch_for_this_one(instance, folder):
    publish(instance, "fold_spec", "fold_0", folder, "v1")
    publish(instance, "fold_spec", "fold_0", folder, "v2", passed=None)
    with pytest.raises(ContractBroken, match="another version"):
        gates.require(instance, "fold_spec", "fold_0")
    report_check(instance, "fold_spec", "fold_0", "no_leak", True, "v2")
    assert gates.require(instance, "fold_spec", "fold_0").data_version == "v2"


def test_a_file_changed_after_the_commit(instance, folder):
    publish(instance, "fold_spec", "fold_0", folder)
    (folder / "a.json").write_text("[]")
    with pytest.raises(BadInput, match="changed since it was committed"):
        gates.require(instance, "fold_spec", "fold_0")


def test_a_folder_swapped_for_another_committed_one(instance, folder):
    publish(instance, "fold_spec", "fold_0", folder)
    commit(folder, {"a.json": "{}", "b.json": "{}"})
    with pytest.raises(BadInput, match="another folder"):
        gates.require(instance, "fold_spec", "fold_0")


def test_unpartitioned_and_partitioned_histories_do_not_mix(instance, folder):
    publish(instance, "determinism_verdict", None, folder, passed=False)
    report_check(instance, "determinism_verdict", "fold_0", "same_bits", True, "v1")
    with pytest.raises(ContractBroken, match="same_bits failed"):
        gates.require(instance, "determinism_verdict", None)
