"""The rules between leaves of diag.jsonl and eval_diag.jsonl, run over columns.

A rule runs when every leaf it needs is live and every other input it needs (the other phase, trades, the
summary) was given; else its result says what it waits for. A rule that has not run has not passed.
Where the contract's text names one rule twice, it is here once: train_only_zero is in idle_is_zero, held_frozen is
held_is_held, walks is episode_book, ring_length is replay_book, seed_aliases is atom_alias. Rules over two runs
(twin_*) belong to determinism.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from foxhunt_assets.contracts.diag import live_by_path
from foxhunt_assets.contracts.rules import learning, money, walk
from foxhunt_assets.contracts.rules.base import (
    Columns,
    Phase,
    PhaseCheck,
    PhaseName,
    Rule,
    RuleConfig,
    Run,
    RunCheck,
)
from foxhunt_assets.errors import ContractBroken

__all__ = ["RULES", "RuleConfig", "RuleResult", "failures", "run_rules"]

RULES: tuple[Rule, ...] = (*walk.RULES, *learning.RULES, *money.RULES)
_SHOWN = 8  # leaf values in a detail


@dataclass(frozen=True)
class RuleResult:
    """passed is False too where the rule did not run: then waits_for says what for."""

    name: str
    passed: bool
    ran: bool
    detail: str
    text: str
    waits_for: tuple[str, ...] = ()


def run_rules(
    train: Columns | None,
    eval: Columns | None,
    config: RuleConfig,
    trades: Mapping[PhaseName, Columns] | None = None,
    summary: Mapping[str, Any] | None = None,
) -> list[RuleResult]:
    """Judge every rule. train, eval: leaf path -> column in file order, as `read_diag` gives them.

    trades: columns of trades.parquet of each phase. summary: eval_summary.json. ContractBroken when columns have
    no rows, unequal lengths, a value that is not finite, or lack a live leaf: then no rule could be believed.
    """
    trades = trades or {}
    run = Run(
        _phase("train", train, config, trades.get("train")),
        _phase("eval", eval, config, trades.get("eval")),
        config,
        summary,
    )
    if not run.phases:
        raise ContractBroken("no rows to judge: neither train nor eval columns were given")
    if train is not None and eval is not None and (odd := set(train) ^ set(eval)):
        raise ContractBroken(f"train and eval rows hold different leaves: {min(odd)}")
    return [_judge(rule, run) for rule in RULES]


def failures(results: Sequence[RuleResult]) -> list[RuleResult]:
    """The rules that ran and did not hold."""
    return [result for result in results if result.ran and not result.passed]


def _phase(name: PhaseName, columns: Columns | None, config: RuleConfig, trades: Columns | None) -> Phase | None:
    if columns is None:
        return None
    missing = [path for path in ("step", *live_by_path()) if path not in columns]
    if missing:
        raise ContractBroken(f"{name} rows: {missing[0]}: a live leaf is missing")
    n = len(columns["step"])
    if n == 0:
        raise ContractBroken(f"{name} rows: there are none")
    for path, column in columns.items():
        if len(column) != n:
            raise ContractBroken(f"{name} rows: {path} has {len(column)} rows, step has {n}")
        if not np.isfinite(column).all():
            raise ContractBroken(f"{name} rows: {path} is not finite")
    return Phase(name, columns, config, trades)


def _judge(rule: Rule, run: Run) -> RuleResult:
    phases = [phase for phase in run.phases if phase.name in rule.phases]
    if "trades" in rule.needs and rule.scope == "phase":
        phases = [phase for phase in phases if phase.trades is not None]
    waits = _waits_for(rule, run, phases)
    if waits:
        return RuleResult(rule.name, False, False, "", rule.text, waits)
    if rule.scope == "run":
        detail = cast(RunCheck, rule.check)(run)
    else:
        details = (_detail(rule, phase, cast(PhaseCheck, rule.check)(phase)) for phase in phases)
        detail = next((text for text in details if text), "")
    return RuleResult(rule.name, not detail, True, detail, rule.text)


def _waits_for(rule: Rule, run: Run, phases: list[Phase]) -> tuple[str, ...]:
    given = {
        "train": run.train is not None,
        "eval": run.eval is not None,
        "trades": any(phase.trades is not None for phase in run.phases),
        "summary": run.summary is not None,
    }
    waits: list[str] = [need for need in rule.needs if not given[need]]
    if not waits and not phases:
        waits = [f"rows of {' or '.join(rule.phases)}"]
    seen = run.phases[0].columns
    waits += [leaf for leaf in rule.leaves if leaf not in seen]
    if rule.any_of and not any(leaf in seen for leaf in rule.any_of):
        waits.append(rule.any_of[0])
    return tuple(waits)


def _detail(rule: Rule, phase: Phase, found: np.ndarray | str) -> str:
    if isinstance(found, str):
        return found
    bad = np.flatnonzero(found)
    if not bad.size:
        return ""
    row = int(bad[0])
    shown = [
        f"{leaf}={phase[leaf][row]}" + (f" (before {phase[leaf][row - 1]})" if row else "")
        for leaf in phase.having(rule.leaves + rule.any_of)[:_SHOWN]
    ]
    where = f"{phase.name} row {row}, step {phase['step'][row]}"
    return f"{where}: {', '.join(shown)}; {bad.size} of {phase.n} rows"
