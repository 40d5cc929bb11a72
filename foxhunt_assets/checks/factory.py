"""One factory for every asset check, so that each has its asset's partitions, its gate name and its evidence.

A check records the data version it looked at; `gates.require` compares that with what is current.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import dagster as dg

from foxhunt_assets import gates
from foxhunt_assets.errors import BadInput, ContractBroken
from foxhunt_assets.gates import BLOCKING, CHECKED, Current
from foxhunt_assets.resources import World, partition_of, step

SHOWN = 20  # faults listed in the UI; the number of all of them is beside


@dataclass(frozen=True)
class Found:
    """faults: one line each, empty when the artefact is right. values: what was looked at, for the UI."""

    faults: Sequence[str]
    values: Mapping[str, Any] = field(default_factory=dict)


Find = Callable[[dg.DagsterInstance, World, Current], Found]


@dataclass(frozen=True)
class CheckRule:
    """One check. also_reads: other assets it looks at. A check whose name is in gates.BLOCKING is a gate; any other
    is a remark on a result (WARN), and stops nothing."""

    asset: str
    name: str
    description: str
    find: Find
    also_reads: tuple[str, ...] = ()

    @property
    def blocking(self) -> bool:
        return self.name in BLOCKING[self.asset]


def make_check(rule: CheckRule, partitions_def: dg.PartitionsDefinition | None) -> dg.AssetChecksDefinition:
    """The asset check of a rule; partitions_def must be its asset's, or its history would mix partitions."""

    @dg.asset_check(
        asset=rule.asset,
        name=rule.name,
        description=rule.description,
        partitions_def=partitions_def,
        blocking=rule.blocking,
        additional_deps=list(rule.also_reads),
    )
    def check(context: dg.AssetCheckExecutionContext, world: dg.ResourceParam[World]) -> dg.AssetCheckResult:
        with step(context, world):
            return judge(rule, context.instance, world, partition_of(context) if partitions_def else None)

    return check


def judge(rule: CheckRule, instance: dg.DagsterInstance, world: World, partition: str | None) -> dg.AssetCheckResult:
    """Look at what is current. A folder that is not what was materialised fails its check."""
    now = gates.current(instance, rule.asset, partition)
    found = _altered(now) or _find(rule, instance, world, now)
    faults = list(found.faults)
    return dg.AssetCheckResult(
        passed=not faults,
        severity=dg.AssetCheckSeverity.ERROR if rule.blocking else dg.AssetCheckSeverity.WARN,
        description="; ".join(faults[:3]) if faults else "",
        metadata={
            CHECKED: now.data_version,
            "n_faults": len(faults),
            **({"faults": dg.MetadataValue.json([fault[:500] for fault in faults[:SHOWN]])} if faults else {}),
            **found.values,
        },
    )


def _altered(now: Current) -> Found | None:
    try:
        gates.verify(now)
    except BadInput as error:
        return Found([str(error)])
    return None


def _find(rule: CheckRule, instance: dg.DagsterInstance, world: World, now: Current) -> Found:
    try:
        return rule.find(instance, world, now)
    except ContractBroken as error:
        return Found([str(error)])
