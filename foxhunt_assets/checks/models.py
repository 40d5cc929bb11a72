"""Artefacts as the models of dbt_like_checks/, and one asset check out of every SQL test over some of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from foxhunt_assets.checks import sql
from foxhunt_assets.checks.factory import Found
from foxhunt_assets.errors import BadInput
from foxhunt_assets.resources import World
from foxhunt_assets.trainer.config import TrainerConfig


def config_model(world: World, config: TrainerConfig | None = None) -> dict[str, Any]:
    """One row of what the SQL rules need of a configuration: the run's own, or today's for what belongs to no run."""
    model = (config or world.config).model
    return {"accounts": model.accounts, "tick_cents": world.facts.tick_cents, "frd_atoms": model.frd_atoms}


def sql_found(models: Mapping[str, sql.Source], about: Sequence[str]) -> Found:
    """Run every test that reads one of the models `about` and nothing that is not given. A test of severity warn is
    a remark. BadInput where no test is about them: a check that runs nothing must not pass."""
    chosen = [name for name, refs in sql.list_tests() if set(refs) & set(about) and set(refs) <= set(models)]
    if not chosen:
        raise BadInput(f"dbt_like_checks/: no test reads {', '.join(about)}")
    results = sql.run_tests(models, chosen)
    broken = [(r.severity, f"{r.name}: {r.failures} rows, first {r.rows[:1]}") for r in results if not r.passed]
    faults = [text for severity, text in broken if severity == "error"]
    remarks = [text for severity, text in broken if severity != "error"]
    return Found(faults, {"tests_run": len(results), "remarks": remarks})
