"""The runner of dbt_like_checks/, and every rule in it: rows that pass, and one change that fails."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet as pq
import pytest

from foxhunt_assets.checks import sql
from foxhunt_assets.checks.sql import run_tests
from foxhunt_assets.contracts.rules.base import ACTIONS
from foxhunt_assets.contracts.tables import EQUITY, SEGMENTS, TRADES, arrow_schema
from foxhunt_assets.errors import BadInput, ContractBroken

Models = dict[str, dict[str, list[Any]]]


def diag(first: int, phase: int, deltas: list[float], fees: list[float], trades: list[int]) -> dict[str, list[Any]]:
    n = len(deltas)
    return {
        "step": list(range(first, first + n)),
        "run.phase_code": [phase] * n,
        "run.drain_row": [int(phase == 1 and i == n - 1) for i in range(n)],
        **{f"act_hist.{a}": [3 if a == "a2_hold" else int(a == "a6_long_large")] * n for a in ACTIONS},
        "trading.realized_pnl_usd_delta": deltas,
        "trading.realized_pnl_usd_cum": [round(sum(deltas[: i + 1]), 2) for i in range(n)],
        "trading.total_trades": trades,
        "lob.fees_usd_step": fees,
        "trading.fees_usd_cum": [round(sum(fees[: i + 1]), 2) for i in range(n)],
    }


def trades(phase: str, first: int) -> dict[str, list[Any]]:
    """A long of 2 lots up 3 ticks (7500 - 900) and a short of 1 lot up 1 tick (-1250 - 450), the last forced."""
    return {
        "trade": [0, 1], "account": [3, 0], "phase": [phase] * 2, "side": [1, -1], "lots": [2, 1],
        "entry_step": [first, first + 2], "exit_step": [first + 1, first + 2], "entry_ts": [100, 900],
        "exit_ts": [400, 900], "entry_tick_lots": [40_000, 20_000], "exit_tick_lots": [40_006, 20_001],
        "fees_cents": [900, 450], "pnl_cents": [6_600, -1_700], "reason": ["policy", "phase_end"],
        "actions": ["a6>a3", "a1>phase_end"],
    }  # fmt: skip


def good() -> Models:
    """Three train rows, two eval rows and the drain row; 49.00 USD in each phase; cents that floats do not hold."""
    return {
        "diag": diag(0, 0, [0.1, 65.9, -17.0], [9.0, 0.0, 4.5], [0, 1, 2]),
        "eval_diag": diag(3, 1, [0.0, 66.0, -17.0], [9.0, 0.0, 4.5], [0, 1, 2]),
        "trades": trades("train", 0),
        "eval_trades": trades("eval", 3),
        "equity": {
            "step": [3, 3, 5, 5, 5, 5], "account": [0, 1, 0, 1, 2, 3], "ts": [1, 2, 3, 4, 5, 6], "segment": [0] * 6,
            "trade_date": ["2024-01-02"] * 6, "equity_cents": [7, 8, -1_700, 0, 0, 6_600],
            "action": [2, 2, -1, -1, -1, -1],
        },
        "eval_summary": {
            "total_pnl_usd": [49.0], "total_pnl_cents": [4_900], "fees_usd": [13.5], "n_trades": [2], "accounts": [4],
        },
        "train_summary": {
            "realized_pnl_usd_cum": [49.0], "total_trades": [2], "n_steps": [3], "completed_clean": [True],
        },
        "config": {"accounts": [4], "tick_cents": [1250], "frd_atoms": [21]},
        "snapshots": {"ts": [250, 500, 500, 750], "ts_recv": [249, 500, 500, 700], "segment": [0, 0, -1, 1]},
        "segments": {
            "segment": [0, 1], "symbol": ["ESH4"] * 2, "instrument_id": [17] * 2,
            "trade_date": ["2024-01-02", "2024-01-03"], "row_start": [0, 3], "row_end": [2, 4],
            "ended_by": ["session", "file"], "tick": [250_000_000] * 2, "multiplier_cents": [5_000] * 2,
        },
        "labels": {"h8": [0, 20, -1], "h32": [-1, 10, -1]},
    }  # fmt: skip


SCHEMAS = {
    "trades": arrow_schema(TRADES), "eval_trades": arrow_schema(TRADES), "equity": arrow_schema(EQUITY),
    "segments": arrow_schema(SEGMENTS),
}  # fmt: skip


def tables(models: Models) -> dict[str, pa.Table]:
    out = {}
    for name, columns in models.items():
        types = {f.name: f.type for f in SCHEMAS[name]} if name in SCHEMAS else {}
        out[name] = pa.table({k: pa.array(v, types.get(k)) for k, v in columns.items()})
    return out


def cell(model: str, column: str, row: int, value: Any) -> Callable[[Models], None]:
    def change(models: Models) -> None:
        models[model][column][row] = value

    return change


NAN = float("nan")
_CUM, _FEES = "trading.realized_pnl_usd_cum", "trading.fees_usd_cum"
# What fails each test; several where a test guards against several things.
FAILING: dict[str, list[Callable[[Models], None]]] = {
    **{
        test: change
        for model, first, phase, trade in (("diag", 0, 1, "trades"), ("eval_diag", 3, 0, "eval_trades"))
        for test, change in {
            f"{model}_executed_actions_sum_to_accounts": [
                cell(model, "act_hist.a0_short_large", 1, 1), cell("config", "accounts", 0, 5),
            ],
            f"sequential_values_{model}_step": [
                cell(model, "step", 1, first), cell(model, "step", 2, first + 3), cell(model, "step", 0, None),
            ],
            f"accepted_values_{model}_run_phase_code": [
                cell(model, "run.phase_code", 1, phase), cell(model, "run.phase_code", 1, None),
            ],
            f"finite_{model}_trading_realized_pnl_usd_cum": [cell(model, _CUM, 1, NAN), cell(model, _CUM, 1, None)],
            f"cents_running_sum_{model}_trading_realized_pnl_usd_cum": [
                cell(model, _CUM, 1, 66.01), cell(model, _CUM, 1, NAN),
                cell(model, "trading.realized_pnl_usd_delta", 1, NAN),
            ],
            f"last_cents_equal_sum_{model}_trading_realized_pnl_usd_cum": [
                cell(model, _CUM, 2, 49.01), cell(model, _CUM, 2, NAN), cell(trade, "pnl_cents", 0, 6_601),
            ],
            f"finite_{model}_trading_fees_usd_cum": [cell(model, _FEES, 1, float("inf"))],
            f"cents_running_sum_{model}_trading_fees_usd_cum": [cell(model, "lob.fees_usd_step", 1, 0.01)],
            f"last_cents_equal_sum_{model}_trading_fees_usd_cum": [cell(trade, "fees_cents", 1, 451)],
        }.items()
    },
    **{
        test: change
        for model, other in (("trades", "eval"), ("eval_trades", "train"))
        for test, change in {
            f"{model}_enter_before_they_exit": [
                cell(model, "reason", 1, "policy"), cell(model, "exit_ts", 1, 899), cell(model, "exit_step", 0, 0),
            ],
            f"{model}_pnl_is_side_times_move_less_fees": [
                cell(model, "pnl_cents", 0, 6_601), cell(model, "side", 1, 1), cell("config", "tick_cents", 0, 500),
            ],
            f"not_null_{model}_trade": [cell(model, "trade", 1, None)],
            f"unique_{model}_trade": [cell(model, "trade", 1, 0)],
            f"accepted_values_{model}_phase": [cell(model, "phase", 0, other)],
        }.items()
    },
    "non_decreasing_equity_step": [cell("equity", "step", 3, 3)],
    "finite_eval_summary_total_pnl_usd": [
        cell("eval_summary", "total_pnl_usd", 0, NAN), cell("eval_summary", "total_pnl_usd", 0, None),
    ],
    "accepted_values_train_summary_completed_clean": [cell("train_summary", "completed_clean", 0, False)],
    "snapshots_are_known_after_they_were_received": [cell("snapshots", "ts_recv", 3, 751)],
    "non_decreasing_snapshots_ts": [cell("snapshots", "ts", 2, 499), cell("snapshots", "ts", 1, None)],
    "sequential_values_segments_segment": [cell("segments", "segment", 1, 2)],
    "assert_drained_once_on_the_last_row": [
        cell("eval_diag", "run.drain_row", 2, 0), cell("eval_diag", "run.drain_row", 1, 1),
    ],
    "assert_equity_ends_at_total_pnl": [
        cell("equity", "equity_cents", 2, -1_699), cell("equity", "step", 2, 3),
        cell("eval_summary", "total_pnl_cents", 0, None),
    ],
    "assert_eval_continues_train": [
        lambda m: m["eval_diag"].update(step=[2, 3, 4]), lambda m: m["eval_diag"].update(step=[4, 5, 6]),
    ],
    "assert_eval_summary_reconciles": [
        cell("eval_summary", "total_pnl_usd", 0, 49.01), cell("eval_summary", "total_pnl_cents", 0, 4_901),
        cell("eval_summary", "total_pnl_usd", 0, NAN), cell("eval_summary", "fees_usd", 0, 13.51),
        cell("eval_summary", "n_trades", 0, 3), cell("eval_diag", _CUM, 2, 48.99),
        cell("eval_diag", "trading.total_trades", 2, 1), cell("eval_trades", "pnl_cents", 1, -1_699),
    ],
    "assert_evaluation_traded": [cell("eval_summary", "n_trades", 0, 0)],
    "assert_labels_are_atoms": [
        cell("labels", "h8", 1, 21), cell("labels", "h32", 0, -2), cell("labels", "h32", 2, None),
    ],
    "assert_segments_tile_rows": [
        cell("segments", "row_end", 0, 3), cell("segments", "row_start", 1, 2), cell("snapshots", "segment", 2, 1),
        cell("snapshots", "segment", 3, 5), cell("snapshots", "segment", 3, -1),
    ],
    "assert_train_and_eval_have_the_same_leaves": [
        lambda m: m["diag"].update({"loss.q": [0.0] * 3}), lambda m: m["eval_diag"].update(step=[3.0, 4.0, 5.0]),
        lambda m: m["diag"].pop("run.drain_row"),
    ],
    "assert_train_summary_reconciles": [
        cell("train_summary", "realized_pnl_usd_cum", 0, 49.01), cell("train_summary", "total_trades", 0, 1),
        cell("train_summary", "n_steps", 0, 4), cell("trades", "pnl_cents", 0, 6_599),
        cell("diag", "trading.total_trades", 2, 3),
    ],
}  # fmt: skip
NAMES = [name for name, _ in sql.list_tests()]


def test_every_test_has_a_change_that_fails_it() -> None:
    assert set(FAILING) == set(NAMES)


def test_good_artefacts_pass_every_test() -> None:
    results = run_tests(tables(good()))
    assert [r.name for r in results] == NAMES
    assert [r for r in results if not r.passed] == []
    assert {r.name for r in results if r.severity == "warn"} == {"assert_evaluation_traded"}


@pytest.mark.parametrize(("name", "change"), [(name, change) for name in FAILING for change in FAILING[name]])
def test_each_change_fails_its_test(name: str, change: Callable[[Models], None]) -> None:
    models = good()
    change(models)
    (result,) = run_tests(tables(models), select=[name])
    assert not result.passed and result.failures > 0
    assert 0 < len(result.rows) <= sql.SHOWN


def test_every_test_runs_in_one_of_the_checks_and_every_generic_is_used() -> None:
    groups = [set(g) for g in (sql.MARKET_MODELS, sql.LABEL_MODELS, sql.TRAIN_MODELS, sql.EVAL_MODELS)]
    assert all(any(set(refs) <= group for group in groups) for _, refs in sql.list_tests())
    schema = (sql.FOLDER / "schema.yml").read_text()
    assert all(path.stem in schema for path in (sql.FOLDER / "generic").glob("*.sql"))


def test_models_select_the_tests_all_of_whose_refs_are_among_them() -> None:
    chosen = run_tests(tables(good()), select=["snapshots", "segments"])
    assert [r.name for r in chosen] == [
        "snapshots_are_known_after_they_were_received", "non_decreasing_snapshots_ts",
        "sequential_values_segments_segment", "assert_segments_tile_rows",
    ]  # fmt: skip
    only = run_tests({"segments": tables(good())["segments"]}, select=["segments"])
    assert [r.name for r in only] == ["sequential_values_segments_segment"]


def test_an_empty_trades_table_reconciles_with_nothing_and_warns() -> None:
    models = good()
    models["eval_diag"] = diag(3, 1, [0.0] * 3, [0.0] * 3, [0] * 3)
    models["eval_summary"] |= {"total_pnl_usd": [0.0], "total_pnl_cents": [0], "fees_usd": [0.0], "n_trades": [0]}
    models["equity"]["equity_cents"] = [0] * 6
    given = tables(models)
    given["eval_trades"] = given["eval_trades"].slice(0, 0)
    failed = [r for r in run_tests(given, select=sql.EVAL_MODELS) if not r.passed]
    assert [(r.name, r.severity) for r in failed] == [("assert_evaluation_traded", "warn")]


@pytest.mark.parametrize(
    "name", ["diag", "eval_diag", "equity", "eval_summary", "train_summary", "snapshots", "segments"]
)
def test_an_empty_relation_that_may_not_be_empty_is_an_error(name: str) -> None:
    given = tables(good())
    given[name] = given[name].slice(0, 0)
    with pytest.raises(ContractBroken, match=f"{name}: an empty relation"):
        run_tests(given)


def test_failing_rows_are_counted_shown_up_to_the_bound_and_fit_json() -> None:
    models = good()
    models["snapshots"] = {"ts": [0] * 20, "ts_recv": [1] * 20, "segment": [-1] * 20}
    (result,) = run_tests(tables(models), select=["snapshots_are_known_after_they_were_received"])
    assert result.failures == 20 and [row["file_row"] for row in result.rows] == [0, 1, 2, 3, 4]
    models["diag"][_CUM][1] = NAN
    (result,) = run_tests(tables(models), select=["finite_diag_trading_realized_pnl_usd_cum"])
    assert result.rows == ({"file_row": 1, "value": "nan"},)
    assert json.loads(json.dumps(result.rows, allow_nan=False)) == [{"file_row": 1, "value": "nan"}]


def test_files_are_read_by_their_ending(tmp_path: Path) -> None:
    given: dict[str, Any] = tables(good())
    for name in ("diag", "trades"):
        pq.write_table(given[name], tmp_path / f"{name}.parquet")
        given[name] = tmp_path / f"{name}.parquet"
    with pa.OSFile(str(tmp_path / "snapshots.arrow"), "wb") as f, pa.ipc.new_file(f, given["snapshots"].schema) as w:
        w.write_table(given["snapshots"])
    given["snapshots"] = tmp_path / "snapshots.arrow"
    summary = {k: v[0] for k, v in good()["train_summary"].items()}
    (tmp_path / "train_summary.json").write_text(json.dumps({**summary, "losses": {"q": 1.0}, "inputs": {"a": "b"}}))
    given["train_summary"] = tmp_path / "train_summary.json"
    given["config"] = {"accounts": 4, "tick_cents": 1250, "frd_atoms": 21}
    assert all(r.passed for r in run_tests(given))


def test_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    given: dict[str, Any] = tables(good())
    for name, body, message in (
        ("a.parquet", b"not parquet", "a.parquet: "),
        ("a.arrow", b"not arrow", "a.arrow: "),
        ("a.json", b'{"total_pnl_usd": NaN}', "NaN is not JSON"),
        ("a.csv", b"x", "a model is a .parquet, .arrow or .json file"),
    ):
        (tmp_path / name).write_bytes(body)
        with pytest.raises(BadInput, match=message):
            run_tests({**given, "eval_summary": tmp_path / name})
    with pytest.raises(BadInput, match="no such file"):
        run_tests({**given, "eval_summary": tmp_path / "b.json"})


def test_a_column_that_is_not_there_and_a_taken_name_are_errors() -> None:
    models = good()
    del models["diag"]["lob.fees_usd_step"]
    with pytest.raises(BadInput, match=r"cents_running_sum_diag_trading_fees_usd_cum: .*lob\.fees_usd_step"):
        run_tests(tables(models), select=["cents_running_sum_diag_trading_fees_usd_cum"])
    models["segments"]["file_row"] = [0, 1]
    with pytest.raises(BadInput, match="file_row is the runner's own column"):
        run_tests(tables(models), select=["segments"])


def test_what_was_not_given_or_does_not_exist_is_an_error() -> None:
    given = tables(good())
    del given["config"]
    with pytest.raises(BadInput, match="refers to 'config', which was not given"):
        run_tests(given)
    with pytest.raises(BadInput, match="no model 'prices'"):
        run_tests({**tables(good()), "prices": pa.table({"a": [1]})})
    with pytest.raises(BadInput, match="no model or test is called 'diagg'"):
        run_tests(tables(good()), select=["diagg"])
    with pytest.raises(BadInput, match="no test selected by config"):
        run_tests(tables(good()), select=["config"])


# The runner on small projects of its own

ONE = {"m": pa.table({"x": [1, 2, 2]})}
NOT_NULL = (
    "{% test not_null(model, column_name) %}select * from {{ model }} where {{ column_name }} is null{% endtest %}"
)
OVER = "{%- test over(model, column_name, low) -%}select x from {{ model }} where x <= {{ low }}{%- endtest -%}"


def project(folder: Path, schema: str, generic: str = NOT_NULL, **singular: str) -> Path:
    for name in ("generic", "singular"):
        (folder / name).mkdir()
    (folder / "schema.yml").write_text(schema)
    (folder / "generic" / "tests.sql").write_text(generic)
    for name, text in singular.items():
        (folder / "singular" / f"{name}.sql").write_text(text)
    return folder


def one_test(text: str) -> str:
    return f"version: 2\nmodels:\n  - name: m\n    columns:\n      - name: x\n        data_tests:\n          - {text}\n"


BARE = "models: [{name: m}]"


@pytest.mark.parametrize(
    ("schema", "singular", "message"),
    [
        (one_test("nonsense"), "", "m nonsense: no such generic test; known: not_null"),
        (one_test("not_null: {sevrity: warn}"), "", "m not_null: unknown key 'sevrity'"),
        (one_test("not_null: {config: {error_if: '>10'}}"), "", "config unknown key 'error_if'"),
        (one_test("not_null: {config: {severity: fatal}}"), "", "severity is error or warn, not 'fatal'"),
        (one_test("not_null: {config: {limit: 0}}"), "", "limit is an integer of 1 or more"),
        (one_test("not_null: {arguments: {low: 1}}"), "", "takes no keyword argument 'low'"),
        (one_test("{not_null: {}, config: {}}"), "", "one name with its keys under it"),
        (one_test("not_null").replace("data_tests", "tests"), "", "unknown key 'tests'"),
        (BARE + "\nseeds: []", "", "unknown key 'seeds'"),
        ("models: [{description: d}]", "", "a model without a name"),
        ("models: [{name: m}, {name: m}]", "", "two models are called m"),
        ("models: [", "", "schema.yml: not YAML"),
        ("- models", "", "schema.yml: not a mapping"),
        (BARE, "select * from {{ ref('absent') }}", "no model 'absent', which a test refers to"),
        (BARE, "select 1", "refers to no model"),
        (BARE, "{{ config(where='x > 1') }} select * from {{ ref('m') }}", "dbt ignores `where` in a singular test"),
        (BARE, "{{ config(tags='a') }} select * from {{ ref('m') }}", "config unknown key 'tags'"),
        (BARE, "select * from {{ source('m') }}", "'source' is undefined"),
        (BARE, "select * from {{ ref('m') }", "one: "),
        (BARE, "select y from {{ ref('m') }}", "one: Binder Error"),
        (BARE, "select x from {{ ref('m') }}; drop table m", "one: Parser Error"),
        (BARE, "", "no test selected by everything"),
    ],
)
def test_what_dbt_would_pass_over_in_silence_is_an_error(
    tmp_path: Path, schema: str, singular: str, message: str
) -> None:
    folder = project(tmp_path, schema, **({"one": singular} if singular else {}))
    with pytest.raises(BadInput) as error:
        run_tests(ONE, folder=folder)
    assert message in str(error.value)


def test_a_generic_file_without_a_test_and_two_tests_of_one_name_are_errors(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    with pytest.raises(BadInput, match=r"no \{% test %\} block"):
        run_tests(ONE, folder=project(tmp_path / "a", BARE, generic="select 1"))
    folder = project(tmp_path / "b", one_test("not_null"), not_null_m_x="select x from {{ ref('m') }}")
    with pytest.raises(BadInput, match="two tests are called not_null_m_x; give one a name"):
        run_tests(ONE, folder=folder)


def test_arguments_where_severity_and_limit_of_a_generic_test_are_honoured(tmp_path: Path) -> None:
    entry = "over: {name: big, arguments: {low: 2}, config: {where: x > 1, severity: warn, limit: 1}}"
    (result,) = run_tests(ONE, folder=project(tmp_path, one_test(entry), generic=OVER))
    assert result == sql.SqlResult("big", "m", "warn", False, 2, ({"x": 2},))


def test_a_missing_argument_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="parameter 'low' was not provided"):
        run_tests(ONE, folder=project(tmp_path, one_test("over"), generic=OVER))


def test_the_yaml_outranks_the_config_in_the_sql(tmp_path: Path) -> None:
    generic = OVER.replace("select x", "{{ config(severity='warn', limit=1) }}select x")
    entry = "over: {arguments: {low: 2}, config: {severity: error}}"
    (result,) = run_tests(ONE, folder=project(tmp_path, one_test(entry), generic=generic))
    assert (result.severity, result.failures, len(result.rows)) == ("error", 3, 1)
