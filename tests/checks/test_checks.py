"""Each check has an input that makes it fail; a crash stays a crash; what was looked at is recorded."""

from __future__ import annotations

import shutil
from dataclasses import replace

import dagster as dg
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from safetensors.numpy import load_file, save_file

from foxhunt_assets import gates, storage
from foxhunt_assets.checks import folders, models, results, runs
from foxhunt_assets.checks.factory import CheckRule, Found, judge
from foxhunt_assets.contracts.diag import live_leaves
from foxhunt_assets.errors import BadInput, ContractBroken
from foxhunt_assets.resources import World
from foxhunt_assets.trainer import loop
from tests.assets.fakes import commit, publish, tiny_settings
from tests.trainer.fold_by_hand import evaluation_of, make_fold_on_disk, tiny_config


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """(train folder, eval folder) of one real run, as small as one can be."""
    home = tmp_path_factory.mktemp("run")
    spec = make_fold_on_disk(home, tiny_config(run={"n_steps": 36, "n_eval_steps": 6}))
    loop.train(spec, lambda text: None)
    evaluation = evaluation_of(spec)
    loop.evaluate(evaluation, lambda text: None)
    return home / "run" / "train", home / "run" / "eval-0"


@pytest.fixture
def copy(run, tmp_path):
    """A copy of both folders to break."""
    for folder in run:
        shutil.copytree(folder, tmp_path / folder.name)
    return tmp_path / "train", tmp_path / "eval-0"


def edit_json(path, **changes):
    storage.write_json(path, {**storage.read_json(path), **changes})


def edit_lines(path, row, change):
    lines = path.read_text().splitlines()
    lines[row] = change(lines[row])
    path.write_text("\n".join(lines) + "\n")


def edit_column(path, name, row, value):
    table = pq.read_table(path)
    column = table[name].to_pylist()
    column[row] = value
    index = table.schema.get_field_index(name)
    pq.write_table(
        table.set_column(index, table.schema.field(name), pa.array(column, table.schema.field(name).type)), path
    )


def test_an_honest_run_has_no_fault(run):
    train, evaluation = run
    assert folders.train_faults(train, "ES") == []
    assert folders.eval_faults(evaluation, train, "ES") == []
    assert folders.rule_faults(train, evaluation, "ES")[1] >= 10  # rules that ran


def test_a_file_that_is_not_what_was_committed_is_refused(copy):
    train, _ = copy
    edit_json(train / "train_summary.json", updates=1)
    with pytest.raises(BadInput, match="changed since it was committed"):
        folders.train_faults(train, "ES")


def test_a_weight_that_is_not_finite(copy):
    train, _ = copy
    tensors = load_file(train / "checkpoint.safetensors")
    name = next(n for n, t in sorted(tensors.items()) if t.dtype == np.float32 and t.size)
    tensors[name] = tensors[name].copy()
    tensors[name].flat[0] = np.inf
    save_file(tensors, train / "checkpoint.safetensors")
    assert folders.checkpoint_faults(train) == [f"checkpoint.safetensors: {name} is not finite everywhere"]


def test_a_checkpoint_that_says_it_is_of_another_run(copy):
    train, _ = copy
    edit_json(train / "checkpoint.json", code="0" * 64)
    (fault,) = folders.checkpoint_faults(train)
    assert fault.startswith("checkpoint.json: code is '0000") and "train_summary.json says" in fault


def test_a_summary_that_names_another_configuration(copy):
    train, _ = copy
    edit_json(train / "config.json", seed=99)
    assert "config_hash" in folders.summary_faults(train, "train_summary.json")[0]


@pytest.mark.parametrize("change", ["missing", "renamed", "torn"])
def test_a_diagnostics_row_that_breaks_its_contract_is_a_failed_check_and_names_the_line(copy, change):
    train, _ = copy
    path = train / "diag.jsonl"
    edit = {
        "missing": lambda text: text.replace('"step":', '"stepp":', 1),
        "renamed": lambda text: text.replace('"loss"', '"lozz"', 1),
        "torn": lambda text: text[: len(text) // 2],
    }[change]
    edit_lines(path, 3, edit)
    with pytest.raises(ContractBroken, match="line 4"):
        folders.diag_faults(path, 36)


def test_a_row_that_is_not_there(copy):
    train, _ = copy
    path = train / "diag.jsonl"
    path.write_text("\n".join(path.read_text().splitlines()[:-1]) + "\n")
    assert any("35 rows, 36 steps" in fault for fault in folders.diag_faults(path, 36))


def test_a_cent_moved_in_any_of_the_four_places_is_found(copy):
    _, evaluation = copy
    assert folders.reconcile_faults(evaluation) == []
    summary = storage.read_json(evaluation / "eval_summary.json")
    edit_json(
        evaluation / "eval_summary.json",
        total_pnl_cents=summary["total_pnl_cents"] + 1, total_pnl_usd=(summary["total_pnl_cents"] + 1) / 100,
    )  # fmt: skip
    faults = folders.reconcile_faults(evaluation)
    assert [name in " ".join(faults) for name in ("trades sum", "equity.parquet", "realized_pnl_usd_cum")] == [True] * 3
    storage.write_json(evaluation / "eval_summary.json", summary)
    equity = pq.read_table(evaluation / "equity.parquet")
    last = equity.num_rows - 1
    edit_column(evaluation / "equity.parquet", "equity_cents", last, equity["equity_cents"][last].as_py() + 1)
    assert len(folders.reconcile_faults(evaluation)) == 1


def test_trades_whose_cents_do_not_follow_from_ticks(copy):
    train, _ = copy
    path = train / "trades.parquet"
    assert pq.read_table(path).num_rows > 0
    edit_column(path, "pnl_cents", 0, pq.read_table(path)["pnl_cents"][0].as_py() + 1)
    assert any("pnl is side x" in fault for fault in folders.trade_faults(path, "ES"))
    pq.write_table(pq.read_table(path).drop_columns(["reason"]), path)
    assert folders.trade_faults(path, "ES")


def test_no_trade_is_an_answer_and_no_column_is_not(copy):
    train, _ = copy
    path = train / "trades.parquet"
    pq.write_table(pq.read_table(path).slice(0, 0), path)
    assert folders.trade_faults(path, "ES") == []
    pq.write_table(pq.read_table(path).drop_columns(["reason"]), path)
    assert folders.trade_faults(path, "ES")


def test_equity_that_misses_an_account(copy):
    _, evaluation = copy
    table = pq.read_table(evaluation / "equity.parquet")
    accounts = storage.read_json(evaluation / "eval_summary.json")["accounts"]
    assert folders.equity_faults(evaluation / "equity.parquet", accounts) == []
    pq.write_table(table.slice(1), evaluation / "equity.parquet")
    assert folders.equity_faults(evaluation / "equity.parquet", accounts)


def test_parity_of_leaves_and_of_the_step_axis():
    train = {"step": np.arange(5), "a": np.zeros(5)}
    good = {"step": np.arange(5, 8), "a": np.zeros(3)}
    assert folders.parity_faults(train, good) == []
    assert "b" in folders.parity_faults(train, {**good, "b": np.zeros(3)})[0]
    assert "starts at step 6" in folders.parity_faults(train, {**good, "step": np.arange(6, 9)})[0]
    assert "rise by one" in folders.parity_faults(train, {**good, "step": np.array([5, 6, 8])})[0]


def test_a_rule_between_leaves_that_does_not_hold_is_named(copy):
    train, _ = copy
    edit_json(train / "config.json", model={**storage.read_json(train / "config.json")["model"], "accounts": 7})
    faults, ran = folders.rule_faults(train, None, "ES")
    assert faults and ran


def test_sql_rules_run_over_a_run_and_find_a_broken_one(copy):
    train, _ = copy
    world = World(tiny_settings(train.parent))
    given = runs.train_models(world, train)
    found = models.sql_found(given, runs.TRAIN_MODELS)
    assert found.faults == [] and found.values["tests_run"] >= 10
    path = train / "diag.parquet"
    step = pq.read_table(path)["step"][3].as_py()
    edit_column(path, "step", 3, step + 1)
    assert any("sequential" in fault for fault in models.sql_found(given, runs.TRAIN_MODELS).faults)
    with pytest.raises(BadInput, match="no test reads"):
        models.sql_found(given, ("equity",))


@pytest.fixture
def judged(tmp_path):
    """judge(find) on a published folder."""
    folder = commit(tmp_path / "f", {"a": "1"})
    world = World(tiny_settings(tmp_path))
    with dg.DagsterInstance.ephemeral() as instance:
        publish(instance, "fold_spec", "fold_0", folder, "v1", passed=None)

        def call(find, name="no_leak"):
            return judge(CheckRule("fold_spec", name, "d", find), instance, world, "fold_0")

        call.folder = folder
        yield call


def test_a_check_records_what_it_looked_at(judged):
    result = judged(lambda instance, world, now: Found([], {"rows": 3}))
    assert result.passed and result.severity == dg.AssetCheckSeverity.ERROR
    assert result.metadata[gates.CHECKED].value == "v1" and result.metadata["rows"].value == 3


def test_faults_are_counted_and_bounded(judged):
    result = judged(lambda instance, world, now: Found([f"fault {i} " + "x" * 900 for i in range(500)]))
    assert not result.passed and result.metadata["n_faults"].value == 500
    assert len(result.metadata["faults"].value) == 20 and len(str(result.metadata["faults"].value)) < 12_000


def test_a_broken_contract_is_a_failed_check_and_anything_else_a_crash(judged):
    def raises(error):
        def find(instance, world, now):
            raise error

        return find

    assert not judged(raises(ContractBroken("row 3: no"))).passed
    for crash in (RuntimeError("bug"), BadInput("no such file"), KeyError("x")):
        with pytest.raises(type(crash)):
            judged(raises(crash))


def test_a_folder_changed_after_the_commit_fails_whatever_the_rule_says(judged):
    (judged.folder / "a").write_text("2")
    result = judged(lambda instance, world, now: Found([]))
    assert not result.passed and "changed since" in result.description


def test_a_check_that_is_no_gate_only_warns(judged):
    result = judged(lambda instance, world, now: Found(["poor"]), name="a_remark")
    assert not result.passed and result.severity == dg.AssetCheckSeverity.WARN


def now_with(tmp_path, **metadata):
    return gates.Current("x", None, tmp_path, "v", "m", metadata)


def test_verdicts_are_judged_by_their_word(tmp_path):
    for verdict, fine in (("PASS", True), ("DIVERGED", False), ("INCOMPLETE", False), ("ERROR", False)):
        found = results.same_bits(None, None, now_with(tmp_path, verdict=verdict))
        assert (not found.faults) == fine
    whole = now_with(tmp_path, missing=[], n_expected=2)
    assert results.no_fold_missing(None, None, whole).faults == []
    assert results.no_fold_missing(None, None, replace(whole, metadata={"missing": ["f"], "n_expected": 2})).faults
    believable = now_with(tmp_path, verdict="PASS", reasons=[], p_value=0.01)
    assert results.is_believable(None, None, believable).faults == []
    poor = now_with(tmp_path, verdict="KILL", reasons=["why"], p_value=0.5)
    assert results.is_believable(None, None, poor).faults == ["KILL: why"]


def test_the_live_leaves_are_what_a_run_holds(run):
    assert set(folders.diag_columns(run[0] / "diag.jsonl")) >= {leaf.path for leaf in live_leaves()}
