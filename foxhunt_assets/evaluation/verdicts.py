"""May this result be believed, and is it any good? tier1_5_verdict of one fold and seed, policy_quality over all.

A verdict is a list of signals, each with its own verdict, value and reason; the worst of them stands.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc

from foxhunt_assets.errors import BadInput, ContractBroken
from foxhunt_assets.evaluation.surrogate import GATE_P, SurrogateResult

Verdict = Literal["PASS", "WARN", "KILL"]
_SEVERITY: dict[str, int] = {"PASS": 0, "WARN": 1, "KILL": 2}

ALIGNMENT_WARN = 0.5  # a reward that explains under a quarter of the variance of pnl teaches mostly something else
PASS_SHARE = 5 / 6  # of folds and seeds that must pass for the policy to pass

Rows = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Signal:
    """One thing looked at. value: what was measured, None where there was nothing to measure."""

    name: str
    verdict: Verdict
    value: float | None
    reason: str


def tier1_5_verdict(
    eval_rows: Rows,
    summary: Mapping[str, Any],
    trades: pa.Table,
    gate: SurrogateResult,
    matched_marginal: SurrogateResult | None = None,
) -> dict[str, Any]:
    """The verdict on one evaluation.

    eval_rows: rows of eval_diag.jsonl as flat leaves, in order. summary: eval_summary.json. trades: trades.parquet.
    gate: the permutation test on the recorded actions. matched_marginal: reported, never gating.
    """
    if not eval_rows:
        raise ContractBroken("eval_diag.jsonl: no rows; nothing can be judged")
    signals = [
        signal_consistency(eval_rows, summary, trades, gate),
        signal_eval_pnl(summary),
        signal_reward_alignment(eval_rows),
        signal_surrogate(gate),
    ]
    return {
        "verdict": worst(signals),
        "fold": summary["fold"],
        "seed": summary["seed"],
        "eval_id": summary["eval_id"],
        "synthetic": summary["synthetic"],
        "reasons": [f"{s.name}: {s.reason}" for s in signals if s.verdict != "PASS"],
        "signals": {s.name: {k: v for k, v in asdict(s).items() if k != "name"} for s in signals},
        "surrogate": gate.to_json(),
        "matched_marginal": matched_marginal.to_json() if matched_marginal else None,
    }


def worst(signals: Sequence[Signal]) -> Verdict:
    return max((s.verdict for s in signals), key=_SEVERITY.__getitem__)


def signal_consistency(eval_rows: Rows, summary: Mapping[str, Any], trades: pa.Table, gate: SurrogateResult) -> Signal:
    """Four routes to the same pnl, in whole cents: any difference is KILL, since no dollar can then be believed.

    eval_summary, the last realized_pnl_usd_cum of the diagnostics, the sum of the trades, and the recorded actions
    walked again.
    """
    routes = {
        "eval_summary": int(summary["total_pnl_cents"]),
        "diag": _cents(eval_rows[-1]["trading.realized_pnl_usd_cum"]),
        "trades": pc.sum(trades.filter(pc.equal(trades["phase"], "eval"))["pnl_cents"]).as_py() or 0,
        "replayed actions": gate.trained_cents,
    }
    spread = max(routes.values()) - min(routes.values())
    text = ", ".join(f"{name} {cents} cents" for name, cents in routes.items())
    return Signal("signal_consistency", "KILL" if spread else "PASS", spread / 100, text)


def signal_eval_pnl(summary: Mapping[str, Any]) -> Signal:
    """Does it make money after fees? Better than last time is not enough."""
    usd, n = float(summary["total_pnl_usd"]), summary["n_trades"]
    if not n:
        return Signal("signal_eval_pnl", "WARN", usd, "it never traded: nothing was earned and nothing was tried")
    verdict: Verdict = "PASS" if usd > 0 else "KILL"
    return Signal("signal_eval_pnl", verdict, usd, f"{usd:,.2f} USD net over {n} trades")


def signal_reward_alignment(eval_rows: Rows) -> Signal:
    """Pearson correlation of rewards.sum and the change of equity over evaluation rows.

    Equity, not realised pnl: the reward pays marked-to-market changes, and closes are too rare to line up with.
    """
    equity = [float(row["trading.equity_usd"]) for row in eval_rows]
    change = [now - before for now, before in zip(equity, [0.0, *equity])]
    r = pearson([float(row["rewards.sum"]) for row in eval_rows], change)
    name = "signal_reward_alignment"
    if r is None:
        return Signal(name, "WARN", None, "reward or equity never moved: no correlation can be measured")
    verdict: Verdict = "KILL" if r <= 0 else "WARN" if r < ALIGNMENT_WARN else "PASS"
    return Signal(name, verdict, r, f"correlation {r:.3f} of reward and change of equity")


def signal_surrogate(gate: SurrogateResult) -> Signal:
    """The permutation gate."""
    n = len(gate.surrogate_cents)
    text = f"{gate.exceed} of {n} permutations earned as much, p = {gate.p_value:.4g} (gate {GATE_P:g})"
    return Signal("signal_surrogate", "PASS" if gate.passed else "KILL", gate.p_value, text)


def pearson(x: Sequence[float], y: Sequence[float]) -> float | None:
    """Correlation of two equally long sequences, None where one of them does not vary. Exact sums (math.fsum)."""
    if len(x) < 2 or len(set(x)) < 2 or len(set(y)) < 2:
        return None
    mean_x, mean_y = math.fsum(x) / len(x), math.fsum(y) / len(y)
    dx, dy = [v - mean_x for v in x], [v - mean_y for v in y]
    both = math.fsum(a * b for a, b in zip(dx, dy))
    return both / math.sqrt(math.fsum(a * a for a in dx) * math.fsum(b * b for b in dy))


def policy_quality(
    verdicts: Mapping[tuple[str, int], Mapping[str, Any]],
    summaries: Mapping[tuple[str, int], Mapping[str, Any]],
    expected: Sequence[tuple[str, int]],
) -> dict[str, Any]:
    """All folds and seeds together.

    verdicts, summaries: tier1_5_verdict and eval_summary by (fold, seed), of those that are there. expected: every
    pair there should be. INCOMPLETE while one is missing, whatever the others say; else PASS when at least
    PASS_SHARE of them pass, KILL when none does, WARN between.
    """
    if not expected:
        raise BadInput("policy_quality: no fold and seed is expected; set folds.n_folds and folds.seeds")
    there = [key for key in expected if key in verdicts and key in summaries]
    missing = [key for key in expected if key not in there]
    passed = [key for key in there if verdicts[key]["verdict"] == "PASS"]
    total = sum(int(summaries[key]["total_pnl_cents"]) for key in there)
    enough = len(passed) >= PASS_SHARE * len(expected)
    outcome = "INCOMPLETE" if missing else "PASS" if enough else "WARN" if passed else "KILL"
    return {
        "verdict": outcome,
        "missing": [f"{fold} seed {seed}" for fold, seed in missing],
        "n_expected": len(expected),
        "n_passed": len(passed),
        "total_pnl_cents": total,
        "total_pnl_usd": total / 100,
        "profitable": sum(summaries[key]["total_pnl_cents"] > 0 for key in there),
        "n_trades": sum(summaries[key]["n_trades"] for key in there),
        "worst_drawdown_usd": max((summaries[key]["max_drawdown_usd"] for key in there), default=0.0),
        "synthetic": any(summaries[key]["synthetic"] for key in there),
        "runs": [_run_line(key, verdicts[key], summaries[key]) for key in there],
    }


def _run_line(key: tuple[str, int], verdict: Mapping[str, Any], summary: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "fold": key[0],
        "seed": key[1],
        "verdict": verdict["verdict"],
        "reasons": list(verdict["reasons"]),
        "total_pnl_usd": summary["total_pnl_usd"],
        "n_trades": summary["n_trades"],
        "max_drawdown_usd": summary["max_drawdown_usd"],
        "p_value": verdict["surrogate"]["p_value"],
    }


def _cents(usd: float) -> int:
    """Whole cents of a leaf that is int64 cents over 100; ContractBroken where it is not."""
    cents = round(usd * 100)
    if cents / 100 != usd:
        raise ContractBroken(f"eval_diag.jsonl: realized_pnl_usd_cum {usd!r} is not a whole number of cents")
    return cents
