"""Every rule between leaves holds on rows that keep it and fails on one change."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from foxhunt_assets.contracts import diag_rules
from foxhunt_assets.contracts.diag import leaves
from foxhunt_assets.contracts.diag_rules import RULES, RuleResult, failures, run_rules
from foxhunt_assets.contracts.rules.base import by_action
from foxhunt_assets.errors import ContractBroken
from tests.contracts.rule_cases import CASES, CONFIG, LEARNING, MONEY, WALK, Case


@pytest.fixture(autouse=True)
def few_live_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cases hold only the leaves of their rule, so no leaf counts as live."""
    monkeypatch.setattr(diag_rules, "live_by_path", dict)


def columns(raw: dict[str, list[Any]] | None) -> dict[str, np.ndarray] | None:
    if raw is None:
        return None
    n = len(next(iter(raw.values()), [0, 0, 0]))
    return {"step": np.arange(n), **{leaf: np.array(values) for leaf, values in raw.items()}}


def judge(case: Case, name: str, broken: bool) -> RuleResult:
    given = {"train": columns(case.train), "eval": columns(case.eval), "trades": columns(case.trades)}
    summary = case.summary
    if broken and case.where == "summary":
        summary = {**(summary or {}), **case.breaks}
    elif broken:
        for leaf, (row, value) in case.breaks.items():
            given[case.where][leaf][row] = value  # type: ignore[index]
    trades = None
    if given["trades"] is not None:
        trades = {"train" if case.eval is None else "eval": given["trades"]}
    config = dataclasses.replace(CONFIG, **case.config)
    results = run_rules(given["train"], given["eval"], config, trades, summary)  # type: ignore[arg-type]
    return next(r for r in results if r.name == name)


def test_every_rule_has_a_case_and_a_name_of_its_own() -> None:
    names = [rule.name for rule in RULES]
    assert len(set(names)) == len(names) == len(WALK) + len(LEARNING) + len(MONEY)
    assert set(names) == set(CASES)


def test_rules_name_leaves_of_the_contract_and_say_what_they_hold() -> None:
    paths = {leaf.path for leaf in leaves()}
    for rule in RULES:
        assert set(rule.leaves + rule.any_of) <= paths, rule.name
        assert rule.text.endswith("."), rule.name


@pytest.mark.parametrize("name", CASES)
def test_rule_holds_on_rows_that_keep_it(name: str) -> None:
    result = judge(CASES[name], name, broken=False)
    assert result.ran and result.passed, result


@pytest.mark.parametrize("name", CASES)
def test_rule_fails_on_one_change_and_says_where(name: str) -> None:
    case = CASES[name]
    result = judge(case, name, broken=True)
    assert result.ran and not result.passed, result
    assert result.detail


def test_detail_names_row_step_values_and_the_row_before() -> None:
    result = judge(CASES["fees_sum"], "fees_sum", broken=True)
    assert result.detail == (
        "train row 2, step 2: trading.fees_usd_cum=6.74 (before 2.25), lob.fees_usd_step=4.5 (before 0.0); 1 of 3 rows"
    )


def test_a_rule_without_its_leaves_waits_and_has_not_passed() -> None:
    result = judge(Case({}, train={"pi.entropy_min": [1.0] * 3}), "entropy_order", broken=False)
    assert result == RuleResult("entropy_order", False, False, "", result.text, ("pi.entropy_mean",)) and not failures(
        [result]
    )


def test_a_rule_without_its_phase_or_trades_says_so() -> None:
    held = judge(Case({}, train=CASES["held_is_held"].train), "held_is_held", broken=False)
    assert held.waits_for == ("eval",)
    counted = judge(Case({}, train=CASES["trades_rows"].train), "trades_rows", broken=False)
    assert counted.waits_for == ("trades",)
    trained = judge(Case({}, eval={"rollout.t": [0], "rollout.windows_cum": [0]}), "window_clock", broken=False)
    assert trained.waits_for == ("rows of train",)


def test_each_phase_is_judged_even_when_the_other_holds() -> None:
    case = Case(
        {"act_hist.a2_hold": (1, 3)},
        train={k: v[:1] * 3 for k, v in CASES["act_sum"].train.items()},  # type: ignore[union-attr]
        eval={k: v[:1] * 3 for k, v in CASES["act_sum"].train.items()},  # type: ignore[union-attr]
        where="eval",
    )
    assert judge(case, "act_sum", broken=False).passed
    assert judge(case, "act_sum", broken=True).detail.startswith("eval row 1, step 1: ")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"loss.q": [0.0, np.nan, 0.0]}, "train rows: loss.q is not finite"),
        ({"loss.q": [0.0, np.inf, 0.0]}, "train rows: loss.q is not finite"),
        ({"loss.q": [0.0]}, "train rows: loss.q has 1 rows, step has 3"),
    ],
)
def test_columns_no_rule_could_be_believed_on_are_refused(change: dict[str, list[float]], message: str) -> None:
    rows = {"step": np.arange(3), **{k: np.array(v) for k, v in change.items()}}
    with pytest.raises(ContractBroken, match=message):
        run_rules(rows, None, CONFIG)


def test_no_rows_a_missing_live_leaf_and_unequal_leaf_sets_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ContractBroken, match="neither train nor eval"):
        run_rules(None, None, CONFIG)
    with pytest.raises(ContractBroken, match="train rows: there are none"):
        run_rules({"step": np.arange(0)}, None, CONFIG)
    one, two = {"step": np.arange(3)}, {"step": np.arange(3, 5), "loss.q": np.zeros(2)}
    with pytest.raises(ContractBroken, match=r"hold different leaves: loss\.q"):
        run_rules(one, two, CONFIG)
    monkeypatch.setattr(diag_rules, "live_by_path", lambda: {"loss.q": None})
    with pytest.raises(ContractBroken, match=r"train rows: loss.q: a live leaf is missing"):
        run_rules(one, None, CONFIG)


def test_exact_rules_have_no_tolerance_and_float_rules_the_stated_one() -> None:
    cents = Case(
        {"trading.fees_usd_cum": (2, 0.31)},
        train={"trading.fees_usd_cum": [0.1, 0.2, 0.3], "lob.fees_usd_step": [0.1, 0.1, 0.1]},
    )
    assert judge(cents, "fees_sum", broken=False).passed  # 0.1 + 0.1 + 0.1 is not 0.3 in floats; 10 + 10 + 10 is 30
    assert not judge(cents, "fees_sum", broken=True).passed
    near = Case({"pi.entropy_min": (0, 1.0001)}, train={"pi.entropy_min": [1.000005] * 3, "pi.entropy_mean": [1.0] * 3})
    assert judge(near, "entropy_order", broken=False).passed
    assert not judge(near, "entropy_order", broken=True).passed


def test_window_is_history_forgets_after_256_rows() -> None:
    n = 258
    rows = {leaf: np.zeros(n) for leaf in (*by_action("act_hist"), *by_action("windowed_act_hist"))}
    rows["act_hist.a0_short_large"][0] = 4
    rows["act_hist.a2_hold"][1:] = 4
    age = np.arange(n)
    rows["windowed_act_hist.a0_short_large"] = np.where(age < 256, 1 / np.minimum(age + 1, 256), 0.0)
    rows["windowed_act_hist.a2_hold"] = 1 - rows["windowed_act_hist.a0_short_large"]
    rows["step"] = age
    results = {r.name: r for r in run_rules(rows, None, CONFIG)}
    assert results["window_is_history"].passed
    rows["windowed_act_hist.a0_short_large"][257] = 1 / 258
    rows["windowed_act_hist.a2_hold"][257] = 257 / 258
    failed = {r.name: r for r in run_rules(rows, None, CONFIG)}["window_is_history"]
    assert failed.detail.startswith("train row 257")
