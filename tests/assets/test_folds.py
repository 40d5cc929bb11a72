"""fold_spec, labels and scaling on real jobs: what a failed check stops, now, in the next run and by automation."""

from __future__ import annotations

import dagster as dg
import numpy as np
import pyarrow as pa
import pytest

from foxhunt_assets import audits, gates, lineage, storage
from foxhunt_assets.build import build
from foxhunt_assets.checks import RULES
from foxhunt_assets.checks.factory import judge
from foxhunt_assets.checks.market import labels_contract
from foxhunt_assets.partitions import register_files
from foxhunt_assets.resources import World
from tests.assets import fakes

EXTRA = "s8-synthetic-00000008"  # a registered file that was never decoded
BAD = "s9-synthetic-00000009"  # one whose check failed


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Definitions and an instance whose snapshots are four good files, a bad one and one never decoded."""
    home = tmp_path_factory.mktemp("home")
    settings = fakes.tiny_settings(home, n_folds=2)
    with dg.DagsterInstance.local_temp() as instance:
        register_files(instance, [*fakes.KEYS, BAD, EXTRA])
        for i, key in enumerate([*fakes.KEYS, BAD]):
            folder = fakes.snapshots(home, key, 20 if key == BAD else i)
            fakes.publish(instance, "es_snapshots", key, folder, passed=key != BAD)
        yield build(settings), instance, World(settings)


def run(made, partition, job="folds_job"):
    defs, instance, _ = made
    return defs.resolve_job_def(job).execute_in_process(
        instance=instance, partition_key=partition, run_config=lineage.QUIET, raise_on_error=False
    )


def steps(result):
    return {e.step_key for e in result.all_events if e.is_step_start}


def test_a_fold_lists_what_it_used_and_what_is_in_quarantine_and_waits_for_neither(made):
    _, instance, world = made
    result = run(made, "fold_0")
    assert result.success, [p.text for p in lineage.problems_of(result)]
    spec = audits.read_fold(world.layout.fold("fold_0") / "spec")
    reasons = dict(spec.quarantined)
    assert set(reasons) == {BAD, EXTRA}
    assert "failed" in reasons[BAD] and "not materialised" in reasons[EXTRA]
    assert {s.key for s in spec.sources} <= set(fakes.KEYS) and spec.synthetic
    checks = {e.check_name: (e.passed, e.partition) for e in result.get_asset_check_evaluations()}
    assert checks == dict.fromkeys(
        ("no_leak", "labels_contract", "labels_sql", "label_mids", "atom_balance", "norm_contract"), (True, "fold_0")
    )
    for name in ("fold_spec", "frd_labels", "feature_norm"):
        gates.require(instance, name, "fold_0")
    again = run(made, "fold_0")  # same content, same versions
    assert again.success
    for name in ("fold_spec", "frd_labels", "feature_norm"):
        wanted = dg.AssetRecordsFilter(asset_key=dg.AssetKey(name), asset_partitions=["fold_0"])
        records = instance.fetch_materializations(wanted, limit=2).records
        assert len({r.asset_materialization.tags["dagster/data_version"] for r in records}) == 1


def test_a_new_file_in_quarantine_does_not_change_a_fold_s_version(made):
    _, instance, _ = made
    before = gates.current(instance, "fold_spec", "fold_0").data_version
    register_files(instance, ["s7-synthetic-00000007"])
    assert run(made, "fold_0").success
    assert gates.current(instance, "fold_spec", "fold_0").data_version == before


def test_a_failed_blocking_check_stops_what_is_after_it_now_later_and_by_automation(made, monkeypatch):
    defs, instance, _ = made
    first = dg.evaluate_automation_conditions(defs, instance)
    real, calls = audits.fold_faults, []

    def leaky(spec):
        calls.append(spec.fold)
        return real(spec) if len(calls) == 1 else ["train reaches into test"]  # the check, not the asset

    with monkeypatch.context() as patch:
        patch.setattr(audits, "fold_faults", leaky)
        result = run(made, "fold_1")
    assert not result.success and calls == ["fold_1", "fold_1"]
    assert "frd_labels" not in steps(result) and "feature_norm" not in steps(result)
    (problem,) = lineage.problems_of(result)
    assert (problem.step, problem.exit_code) == ("fold_spec_no_leak", 1) and "reaches into test" in problem.text
    # the asset is materialised all the same, and a later run without the check walks up to it
    later = dg.materialize(
        [*defs.assets], selection=dg.AssetSelection.assets("frd_labels").without_checks(), partition_key="fold_1",
        instance=instance, resources=dict(defs.resources), raise_on_error=False, run_config=lineage.QUIET,
    )  # fmt: skip
    assert not later.success
    assert "no_leak failed" in lineage.problems_of(later)[0].text
    good = dg.materialize(
        [*defs.assets, *defs.asset_checks], selection=dg.AssetSelection.assets("fold_spec"), partition_key="fold_0",
        instance=instance, resources=dict(defs.resources), run_config=lineage.QUIET,
    )  # fmt: skip
    assert [e.passed for e in good.get_asset_check_evaluations()] == [True]
    second = dg.evaluate_automation_conditions(defs, instance, cursor=first.cursor)
    assert second.get_requested_partitions(dg.AssetKey("frd_labels")) == {"fold_0"}


def test_a_check_that_crashes_is_not_a_failed_check(made, monkeypatch):
    def broken(spec):
        raise RuntimeError("a bug of ours")

    real, calls = audits.fold_faults, []
    monkeypatch.setattr(
        audits, "fold_faults", lambda spec: calls.append(1) or (real if len(calls) == 1 else broken)(spec)
    )
    result = run(made, "fold_0")
    assert not result.success and "frd_labels" not in steps(result)
    assert "no_leak" not in {e.check_name for e in result.get_asset_check_evaluations()}
    (problem,) = lineage.problems_of(result)
    assert problem.exit_code == 4 and "a bug of ours" in problem.text


def test_labels_fitted_on_other_rows_than_training_are_found(made):
    """sigma of all rows in place of that of the training rows: the check computes it again and refuses."""
    _, instance, world = made
    assert run(made, "fold_0").success
    now = gates.current(instance, "frd_labels", "fold_0")
    assert labels_contract(instance, world, now).faults == []
    leaked = dict(now.metadata, sigma_step_ticks=now.metadata["sigma_step_ticks"] * 1.01)
    found = labels_contract(instance, world, type(now)(**{**vars(now), "metadata": leaked}))
    assert len(found.faults) == 1 and "the training rows alone give" in found.faults[0]


def test_no_usable_file_is_one_line_that_says_so(tmp_path):
    settings = fakes.tiny_settings(tmp_path)
    defs = build(settings)
    with dg.DagsterInstance.local_temp() as instance:
        for registered, says in (([], "no source file is registered"), ([EXTRA], "none of 1 source files")):
            register_files(instance, registered)
            result = run((defs, instance, None), "fold_0")
            (problem,) = lineage.problems_of(result)
            assert says in problem.text and problem.exit_code == 2


def spec_with(spec, **changes):
    return type(spec)(**{**{f: getattr(spec, f) for f in spec.__dataclass_fields__}, **changes})


def test_every_kind_of_leak_is_named(made):
    _, _, world = made
    assert run(made, "fold_0").success
    spec = audits.read_fold(world.layout.fold("fold_0") / "spec")
    assert audits.fold_faults(spec) == []
    (a, b), (c, d) = spec.validation[0], spec.test[0]
    end = spec.train[-1][1]
    broken = {
        "the purge is": spec_with(spec, validation=((end + spec.purge_rows - 1, b),)),
        "train: no rows": spec_with(spec, train=()),
        "not inside one segment": spec_with(spec, test=((c, spec.n_rows + 1),)),
        "overlap": spec_with(spec, test=((c, d - 10), (d - 11, d))),
        "n_rows is": spec_with(spec, n_rows=spec.n_rows + 1),
        "not the longest horizon": spec_with(spec, purge_rows=spec.purge_rows - 1),
        "empty": spec_with(spec, validation=((a, a),)),
    }
    for text, wrong in broken.items():
        assert any(text in fault for fault in audits.fold_faults(wrong)), text


def test_labels_that_reach_out_of_their_segment_are_named(made, tmp_path):
    _, _, world = made
    assert run(made, "fold_0").success
    spec = audits.read_fold(world.layout.fold("fold_0") / "spec")
    table = audits.read_labels(world.layout.fold("fold_0") / "labels")
    assert audits.label_faults(world.layout.fold("fold_0") / "labels", spec) == []
    h = spec.horizons[0]
    for row, atom, says in (
        (spec.segments[0].row_end - 1, 10, "out of its segment"),
        (0, 21, "atoms"),
        (0, -2, "atoms"),
    ):
        column = table[f"h{h}"].to_numpy().copy()
        column[row] = atom
        write_labels(tmp_path / "x", table.set_column(0, table.schema.field(0), pa.array(column)))
        faults = audits.label_faults(tmp_path / "x", spec)
        assert len(faults) == 1 and says in faults[0]
    write_labels(tmp_path / "x", table.slice(1))
    assert "rows for a tape of" in audits.label_faults(tmp_path / "x", spec)[0]
    none = pa.array(np.full(table.num_rows, -1, np.int8))
    write_labels(tmp_path / "x", table.set_column(0, table.schema.field(0), none))
    assert "no row has a label" in audits.label_faults(tmp_path / "x", spec)[0]


def write_labels(folder, table):
    folder.mkdir(exist_ok=True)
    with pa.OSFile(str(folder / "frd_labels.arrow"), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)


def test_a_folder_edited_by_hand_fails_its_check_and_its_readers(made):
    _, instance, world = made
    assert run(made, "fold_0").success
    path = world.layout.fold("fold_0") / "spec" / "fold_spec.json"
    text = path.read_text()
    storage.write_text(path, text.replace('"window": 8', '"window": 9'))
    rule = next(r for r in RULES if r.name == "no_leak")
    assert not judge(rule, instance, world, "fold_0").passed
    storage.write_text(path, text)
    assert judge(rule, instance, world, "fold_0").passed
