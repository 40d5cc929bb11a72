"""Both summaries: a good document passes; each change, and each broken relation, is named."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest

from foxhunt_assets.contracts.diag import contract_sha256
from foxhunt_assets.contracts.summaries import (
    EVAL_SUMMARY,
    TRAIN_SUMMARY,
    Field,
    check_eval_summary,
    check_train_summary,
)

IDENTITY = {
    "fold": "fold_1", "seed": 0, "run_id": "0123456789abcdef", "contract_sha256": contract_sha256(),
    "code": "a" * 64, "config_hash": "b" * 64, "inputs": {"fold_spec": "c" * 64}, "synthetic": True, "accounts": 4,
}  # fmt: skip
# Three trades of 100, 60 and -40 USD: 120 in all, two wins of 80 on average. 6 lots, 2.25 USD a side: 27 USD of
# fees, so the break-even fee is (120 + 27) / 12 = 12.25 USD; slippage 48 USD: (27 + 48) / (6 x 12.50) = 1 tick.
EVAL = {
    **IDENTITY, "eval_id": "fedcba9876543210", "phase": "test", "n_steps": 10, "exploration": "greedy",
    "coverage_share": 0.5, "n_trades": 3, "total_pnl_cents": 12_000, "total_pnl_usd": 120.0, "fees_usd": 27.0,
    "slippage_usd": 48.0, "max_drawdown_usd": 40.0, "win_rate": 2 / 3, "avg_win_usd": 80.0, "avg_loss_usd": 40.0,
    "sharpe_daily": None, "n_trade_dates": 1,
    "per_account": {"min_usd": -40.0, "max_usd": 100.0, "mean_usd": 30.0, "std_usd": 55.5},
    "warmup": {"steps": 1, "pnl_usd": 0.0}, "break_even_fee_usd_per_side": 12.25, "break_even_ticks_per_lot": 1.0,
}  # fmt: skip
TRAIN = {
    **IDENTITY, "completed_clean": True, "n_steps": 20, "updates": 8, "transitions": 80, "windows": 2,
    "total_trades": 3, "realized_pnl_usd_cum": -0.3,
    "losses": {"q": 3.0, "pi": -0.01, "v": 0.5, "frd": 2.9},
}  # fmt: skip
CHECKS: dict[str, tuple[dict[str, Any], Callable[[dict[str, Any]], list[str]], tuple[Field, ...]]] = {
    "eval": (EVAL, check_eval_summary, EVAL_SUMMARY),
    "train": (TRAIN, check_train_summary, TRAIN_SUMMARY),
}


def put(document: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    out = copy.deepcopy(document)
    *parents, name = path.split(".")
    node = out
    for parent in parents:
        node = node[parent]
    node[name] = value
    return out


@pytest.mark.parametrize("which", CHECKS)
def test_a_good_summary_passes_and_survives_json(which: str) -> None:
    document, check, _ = CHECKS[which]
    assert check(document) == []
    assert check(json.loads(json.dumps(document))) == []


@pytest.mark.parametrize("which", CHECKS)
def test_every_field_is_needed_and_typed_and_no_other_may_be_there(which: str) -> None:
    document, check, fields = CHECKS[which]
    for field in fields:
        *parents, name = field.name.split(".")
        without = copy.deepcopy(document)
        node = without
        for parent in parents:
            node = node[parent]
        del node[name]
        assert check(without) == [f"{field.name}: missing"]
        wrong = "x" if field.type in ("int", "float", "bool") else 5
        assert check(put(document, field.name, wrong))[0].startswith(f"{field.name}: ")
        if field.type in ("int", "float"):
            assert check(put(document, field.name, True)) == [f"{field.name}: True is not {field.type}"]
        if field.type == "float":
            assert check(put(document, field.name, float("nan"))) == [f"{field.name}: nan is not finite"]
            assert check(put(document, field.name, float("inf"))) == [f"{field.name}: inf is not finite"]
        if not field.nullable:
            assert check(put(document, field.name, None)) == [f"{field.name}: null"]
    assert check({**document, "extra": 1}) == ["extra: not in the contract"]


@pytest.mark.parametrize(
    ("path", "value", "fault"),
    [
        ("total_pnl_usd", 120.01, "total_pnl_usd: not total_pnl_cents / 100"),
        ("avg_win_usd", 80.5, "win_rate: wins x avg_win - losses x avg_loss is not total_pnl_usd"),
        ("win_rate", 0.6, "win_rate: n_trades x win_rate is not a count"),
        ("win_rate", 1.5, "win_rate: 1.5 is over 1"),
        ("sharpe_daily", 1.2, "sharpe_daily: a number on fewer than 20 trade dates"),
        ("per_account.min_usd", 31.0, "per_account: min, mean and max out of order"),
        ("per_account.mean_usd", 30.1, "per_account: mean x accounts is not total_pnl_usd"),
        ("warmup.steps", 11, "warmup.steps: more than n_steps"),
        ("break_even_ticks_per_lot", None, "break_even: null if and only if there is no trade"),
        ("contract_sha256", "0" * 64, "contract_sha256: another contract than this program's"),
        ("inputs", {}, "inputs: {} is not an object with at least one entry"),
        ("inputs", {"fold_spec": "c"}, "inputs: fold_spec is not a sha256"),
        ("run_id", "0123", "run_id: '0123' does not match [0-9a-f]{16}"),
        ("exploration", "sampled", "exploration: 'sampled' does not match greedy"),
        ("max_drawdown_usd", -1.0, "max_drawdown_usd: -1.0 is under 0"),
    ],
)
def test_eval_summary_faults_are_named(path: str, value: Any, fault: str) -> None:
    assert fault in check_eval_summary(put(EVAL, path, value))


@pytest.mark.parametrize(
    ("path", "value", "fault"),
    [
        ("completed_clean", False, "completed_clean: not true"),
        ("transitions", 79, "transitions: not n_steps x accounts"),
        ("realized_pnl_usd_cum", -0.305, "realized_pnl_usd_cum: not whole cents"),
        ("total_trades", 0, "total_trades: pnl without a trade"),
        ("contract_sha256", "0" * 64, "contract_sha256: another contract than this program's"),
    ],
)
def test_train_summary_faults_are_named(path: str, value: Any, fault: str) -> None:
    assert check_train_summary(put(TRAIN, path, value)) == [fault]


def test_an_evaluation_without_a_trade_has_no_break_even_and_no_pnl() -> None:
    none = {
        "n_trades": 0, "total_pnl_cents": 0, "total_pnl_usd": 0.0, "win_rate": 0.0, "avg_win_usd": 0.0,
        "avg_loss_usd": 0.0, "per_account": dict.fromkeys(EVAL["per_account"], 0.0),
        "break_even_fee_usd_per_side": None, "break_even_ticks_per_lot": None,
    }  # fmt: skip
    assert check_eval_summary({**EVAL, **none}) == []
    paid = {**EVAL, **none, "total_pnl_cents": 100, "total_pnl_usd": 1.0}
    assert "n_trades: pnl without a trade" in check_eval_summary(paid)


def test_a_daily_sharpe_is_allowed_from_twenty_dates() -> None:
    assert check_eval_summary({**EVAL, "sharpe_daily": 0.1, "n_trade_dates": 20}) == []
