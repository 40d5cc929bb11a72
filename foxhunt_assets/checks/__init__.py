"""Asset checks: blocking gates made by one factory from tables of rules.

A check fails when an artefact can be read and is wrong. What cannot be read is a crash, and stays one: no exception
is turned into a failed check, except that a ContractBroken says exactly what a failed check says.
"""

from __future__ import annotations

from typing import Any

import dagster as dg

from foxhunt_assets.checks import market, results, runs
from foxhunt_assets.checks.factory import CheckRule, make_check
from foxhunt_assets.partitions import Partitions

RULES: tuple[CheckRule, ...] = (*market.RULES, *runs.RULES, *results.RULES)


def checks_of(parts: Partitions) -> list[Any]:
    """Every asset check, partitioned as its asset is."""
    return [make_check(rule, asset_partitions(rule.asset, parts)) for rule in RULES]


def asset_partitions(asset: str, parts: Partitions) -> dg.PartitionsDefinition | None:
    """Partitions of an asset by its name."""
    known: dict[str, dg.PartitionsDefinition | None] = {
        "es_snapshots": parts.files,
        **dict.fromkeys(("fold_spec", "frd_labels", "feature_norm"), parts.folds),
        **dict.fromkeys(("policy_quality", "determinism_verdict"), None),
    }
    return known.get(asset, parts.runs)
