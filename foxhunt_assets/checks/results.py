"""Checks of what is concluded: determinism, the tier 1.5 verdict, quality over all folds."""

from __future__ import annotations

import dagster as dg

from foxhunt_assets.checks.factory import CheckRule, Found
from foxhunt_assets.gates import Current
from foxhunt_assets.resources import World


def same_bits(instance: dg.DagsterInstance, world: World, now: Current) -> Found:
    verdict = now.metadata["verdict"]
    faults = [] if verdict == "PASS" else [f"{verdict}: {now.folder / 'verdict.txt'} says where"]
    return Found(faults, {"verdict": verdict})


def no_fold_missing(instance: dg.DagsterInstance, world: World, now: Current) -> Found:
    missing = now.metadata["missing"]
    return Found([f"{name} is missing" for name in missing], {"expected": now.metadata["n_expected"]})


def is_believable(instance: dg.DagsterInstance, world: World, now: Current) -> Found:
    verdict = now.metadata["verdict"]
    faults = [] if verdict == "PASS" else [f"{verdict}: {reason}" for reason in now.metadata["reasons"]]
    return Found(faults, {"verdict": verdict, "p_value": now.metadata["p_value"]})


RULES = (
    CheckRule("determinism_verdict", "same_bits", "Two runs of one seed agree on every bit compared.", same_bits),
    CheckRule("policy_quality", "no_fold_missing", "Every configured fold and seed is in it.", no_fold_missing),
    CheckRule("tier1_5_verdict", "is_believable", "The verdict is PASS; a remark, for a poor policy is a result.",
              is_believable),
)  # fmt: skip
