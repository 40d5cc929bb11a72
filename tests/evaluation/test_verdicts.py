"""Verdicts whose every signal can be made to fail."""

import json

import pyarrow as pa
import pytest

from foxhunt_assets.contracts.tables import TRADES, arrow_schema
from foxhunt_assets.errors import BadInput, ContractBroken
from foxhunt_assets.evaluation import verdicts
from foxhunt_assets.evaluation.surrogate import SurrogateResult

EQUITY = [0.0, 12.5, 7.5, 20.0, 66.0]


def rows(rewards=(0.0, 1.1, -0.4, 1.0, 4.0), last_cum=66.0):
    out = [
        {"rewards.sum": r, "trading.equity_usd": e, "trading.realized_pnl_usd_cum": 0.0}
        for r, e in zip(rewards, EQUITY)
    ]
    out[-1]["trading.realized_pnl_usd_cum"] = last_cum
    return out


def summary(cents=6_600, n_trades=2, **more):
    return {
        "fold": "fold_0", "seed": 0, "eval_id": "0" * 16, "synthetic": True, "total_pnl_cents": cents,
        "total_pnl_usd": cents / 100, "n_trades": n_trades, "max_drawdown_usd": 5.0, **more,
    }  # fmt: skip


def trades(*cents, phase="eval"):
    row = {c.name: "" if c.type == "string" else 0 for c in TRADES}
    return pa.Table.from_pylist([{**row, "phase": phase, "pnl_cents": c} for c in cents], schema=arrow_schema(TRADES))


def gate(trained=6_600, exceed=4, n=199):
    return SurrogateResult("permutation", trained, (trained,) * exceed + (trained - 1,) * (n - exceed))


def judge(**changed):
    sound = {"rows": rows(), "summary": summary(), "trades": trades(7_000, -400), "gate": gate()}
    given = {**sound, **changed}
    return verdicts.tier1_5_verdict(given.pop("rows"), **given)


def test_a_sound_and_profitable_evaluation_passes():
    verdict = judge(matched_marginal=SurrogateResult("matched_marginal", 6_600, (9_000,) * 30))
    assert verdict["verdict"] == "PASS" and verdict["reasons"] == []
    assert verdict["signals"]["signal_surrogate"]["value"] == 5 / 200
    assert verdict["matched_marginal"]["passed"] is False  # reported, not gating
    assert verdict["signals"]["signal_consistency"]["value"] == 0.0
    json.dumps(verdict, allow_nan=False)


@pytest.mark.parametrize(
    "changed",
    [
        {"rows": rows(last_cum=66.01)},
        {"summary": summary(cents=6_601)},
        {"trades": trades(7_000, -401)},
        {"trades": pa.concat_tables([trades(7_000), trades(-400, phase="train")])},
        {"gate": gate(trained=6_599)},
    ],
)
def test_one_cent_between_any_two_routes_kills(changed):
    verdict = judge(**changed)
    assert verdict["verdict"] == "KILL" and verdict["signals"]["signal_consistency"]["verdict"] == "KILL"
    assert any("signal_consistency" in reason for reason in verdict["reasons"])


def test_a_cumulative_pnl_that_is_not_in_cents_is_refused():
    with pytest.raises(ContractBroken, match="whole number of cents"):
        judge(rows=rows(last_cum=66.004))
    with pytest.raises(ContractBroken, match="no rows"):
        judge(rows=[])


def test_no_permutation_may_earn_as_much_too_often():
    assert judge(gate=gate(exceed=9))["verdict"] == "PASS"  # p = 10 / 200
    verdict = judge(gate=gate(exceed=10))
    assert verdict["verdict"] == "KILL" and "10 of 199 permutations" in verdict["reasons"][0]


@pytest.mark.parametrize(
    ("cents", "n_trades", "expected"), [(1, 1, "PASS"), (0, 1, "KILL"), (-1, 1, "KILL"), (0, 0, "WARN")]
)
def test_pnl_after_fees(cents, n_trades, expected):
    assert verdicts.signal_eval_pnl(summary(cents, n_trades)).verdict == expected


def test_reward_alignment_by_hand():
    # Changes of equity: 0, 12.5, -5, 12.5, 46.
    assert verdicts.signal_reward_alignment(rows((0.0, 12.5, -5.0, 12.5, 46.0))).value == pytest.approx(1.0)
    against = verdicts.signal_reward_alignment(rows((0.0, -12.5, 5.0, -12.5, -46.0)))
    assert (against.verdict, round(against.value, 9)) == ("KILL", -1.0)
    assert verdicts.pearson([1, 2, 3, 4], [1, 3, 2, 4]) == pytest.approx(0.8)  # 1 - 6 x 2 / (4 x 15)
    weak = verdicts.signal_reward_alignment(rows((1.0, -1.0, 1.0, -1.0, 1.0)))
    assert weak.verdict == "WARN" and 0 < weak.value < 0.5
    constant = verdicts.signal_reward_alignment(rows((2.0,) * 5))
    assert (constant.verdict, constant.value) == ("WARN", None)


EXPECTED = [("fold_0", 0), ("fold_0", 1), ("fold_1", 0), ("fold_1", 1), ("fold_2", 0), ("fold_2", 1)]


def quality(passing, there=EXPECTED, expected=EXPECTED):
    good, bad = judge(), judge(gate=gate(exceed=100))
    return verdicts.policy_quality(
        {key: good if i < passing else bad for i, key in enumerate(there)},
        {key: summary(100 * (i + 1), max_drawdown_usd=float(i)) for i, key in enumerate(there)},
        expected,
    )


@pytest.mark.parametrize(("passing", "expected"), [(6, "PASS"), (5, "PASS"), (4, "WARN"), (1, "WARN"), (0, "KILL")])
def test_policy_quality_over_six(passing, expected):
    result = quality(passing)
    assert (result["verdict"], result["n_passed"], result["missing"]) == (expected, passing, [])
    assert result["total_pnl_cents"] == 100 * (1 + 2 + 3 + 4 + 5 + 6) and result["worst_drawdown_usd"] == 5.0
    assert [run["verdict"] for run in result["runs"]].count("PASS") == passing


def test_missing_folds_and_seeds_are_named_and_never_pass():
    result = quality(5, there=EXPECTED[:5])
    assert (result["verdict"], result["missing"]) == ("INCOMPLETE", ["fold_2 seed 1"])
    assert quality(0, there=[])["missing"] == [f"{fold} seed {seed}" for fold, seed in EXPECTED]
    with pytest.raises(BadInput, match="no fold and seed is expected"):
        quality(0, there=[], expected=[])


def test_a_pair_that_is_not_expected_does_not_count():
    result = quality(6, expected=EXPECTED[:2])
    assert (result["n_expected"], result["n_passed"], len(result["runs"])) == (2, 2, 2)
