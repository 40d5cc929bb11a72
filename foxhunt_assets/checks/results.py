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


RULES = (
    CheckRule("determinism_verdict", "same_bits", "Two runs of one seed agree on every bit compared.", same_bits),
)
