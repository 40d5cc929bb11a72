"""Assembles Definitions from settings: for the webserver, the daemon, the workers, the command line and the tests."""

from __future__ import annotations

import warnings
from typing import Any

import dagster as dg

from foxhunt_assets import automation, resources
from foxhunt_assets.assets.determinism import determinism_assets
from foxhunt_assets.assets.evaluation import evaluation_assets
from foxhunt_assets.assets.labels import label_assets
from foxhunt_assets.assets.market import market_assets
from foxhunt_assets.assets.training import training_assets
from foxhunt_assets.assets.verdicts import verdict_assets
from foxhunt_assets.checks import checks_of
from foxhunt_assets.partitions import Partitions, partitions
from foxhunt_assets.settings import Settings, load


def build(settings: Settings | None = None, launcher: resources.TrainerLauncher | None = None) -> dg.Definitions:
    """Every asset, check, job, schedule and sensor of a configuration.

    settings: those of FOXHUNT_HOME when left out. launcher: starts the trainer; tests hand in another.
    """
    settings = settings or load()
    world, parts = resources.World(settings), partitions(settings)
    with warnings.catch_warnings():
        # Partitioned checks and observed partitions are marked preview and beta by Dagster; the pin in
        # pyproject.toml and the tests hold what they do.
        warnings.simplefilter("ignore", category=dg.PreviewWarning)
        warnings.simplefilter("ignore", category=dg.BetaWarning)
        return dg.Definitions(
            assets=automation.with_conditions(all_assets(parts, world)),
            asset_checks=checks_of(parts),
            jobs=automation.jobs(world),
            schedules=[automation.nightly(world)],
            sensors=[automation.new_files(parts, world), automation.automation_sensor()],
            resources=resources.resources(settings, launcher),
            executor=dg.in_process_executor,
        )


def all_assets(parts: Partitions, world: resources.World) -> list[Any]:
    """The lineage in order."""
    return [
        *market_assets(parts),
        *label_assets(parts, world.config.labels.horizons),
        *training_assets(parts),
        *evaluation_assets(parts),
        *verdict_assets(parts),
        *determinism_assets(parts),
    ]
