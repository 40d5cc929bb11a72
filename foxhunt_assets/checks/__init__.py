"""Asset checks: blocking gates made by one factory from tables of rules.

A check fails when an artefact can be read and is wrong. What cannot be read is a crash, and stays one: no exception
is turned into a failed check, except that a ContractBroken says exactly what a failed check says.
"""

from __future__ import annotations

from typing import Any

from foxhunt_assets.checks import market, runs
from foxhunt_assets.checks.factory import CheckRule, make_check
from foxhunt_assets.partitions import Partitions

RULES: tuple[CheckRule, ...] = (*market.RULES, *runs.RULES)


def checks_of(parts: Partitions) -> list[Any]:
    """Every asset check, partitioned as its asset is."""
    partitions_def = {
        "es_snapshots": parts.files,
        **dict.fromkeys(("fold_spec", "frd_labels", "feature_norm"), parts.folds),
        **dict.fromkeys(("policy_quality", "determinism_verdict"), None),
    }
    return [make_check(rule, partitions_def.get(rule.asset, parts.runs)) for rule in RULES]
