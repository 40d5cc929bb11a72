"""Partitions: a source file, a fold, and fold x seed. Keys are made and taken apart here and nowhere else.

Fold and seed keys are static, from foxhunt.toml. Source files arrive at run time: their keys are registered by the
sensor or by the command line. Nothing is partitioned by step or by day.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import dagster as dg

from foxhunt_assets.errors import BadInput
from foxhunt_assets.settings import Settings

SOURCE_FILES = "source_files"  # name of the dynamic partitions in the instance
FOLD_KEY = re.compile(r"fold_[0-9]+")
SOURCE_KEY = re.compile(r"[a-z0-9-]+-[0-9a-f]{8}")


@dataclass(frozen=True)
class Partitions:
    """files: one a source file. folds: fold_<n>. runs: fold x seed, keys like fold_0|0 (dimensions in name order)."""

    files: dg.DynamicPartitionsDefinition
    folds: dg.StaticPartitionsDefinition
    runs: dg.MultiPartitionsDefinition

    @property
    def fold_keys(self) -> list[str]:
        return list(self.folds.get_partition_keys())

    @property
    def run_keys(self) -> list[str]:
        return list(self.runs.get_partition_keys())


def partitions(settings: Settings) -> Partitions:
    """The partitions a configuration asks for."""
    folds = dg.StaticPartitionsDefinition([f"fold_{n}" for n in range(settings.folds.n_folds)])
    seeds = dg.StaticPartitionsDefinition([str(seed) for seed in settings.folds.seeds])
    return Partitions(
        files=dg.DynamicPartitionsDefinition(name=SOURCE_FILES),
        folds=folds,
        runs=dg.MultiPartitionsDefinition({"fold": folds, "seed": seeds}),
    )


def run_key(fold: str, seed: int) -> str:
    """Partition key of one fold and seed. Dagster orders dimensions by name: fold first."""
    if not FOLD_KEY.fullmatch(fold):
        raise BadInput(f"{fold!r} is no fold key; keys are fold_<n>")
    return f"{fold}|{seed}"


def split_run_key(key: str) -> tuple[str, int]:
    """(fold, seed) of a fold x seed key. BadInput says what a key looks like."""
    fold, _, seed = key.partition("|")
    if not FOLD_KEY.fullmatch(fold) or not seed.isdigit():
        raise BadInput(f"{key!r} is no fold x seed key; keys are fold_<n>|<seed>, e.g. fold_0|0")
    return fold, int(seed)


def register_files(instance: dg.DagsterInstance, keys: list[str]) -> list[str]:
    """Make source files known to the instance; returns the ones that were new."""
    for key in keys:
        if not SOURCE_KEY.fullmatch(key):
            raise BadInput(f"{key!r} is no source key; keys come from storage.source_key")
    known = set(instance.get_dynamic_partitions(SOURCE_FILES))
    new = [key for key in keys if key not in known]
    if new:
        instance.add_dynamic_partitions(SOURCE_FILES, new)
    return new


def known_files(instance: dg.DagsterInstance) -> list[str]:
    """Registered source keys, in name order."""
    return sorted(instance.get_dynamic_partitions(SOURCE_FILES))
