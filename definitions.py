"""Dagster's entry point: names what is loaded, nothing else."""

from foxhunt_assets import build_defs

defs = build_defs()
