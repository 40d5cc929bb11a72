"""From exchange order-book files to a trained trading policy and an evaluation that can be believed.

Importing this package costs nothing: `build_defs` loads Dagster only when it is called, because the trainer
(`python -m foxhunt_assets.trainer`) must run where Dagster is not installed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import dagster as dg

    from foxhunt_assets.settings import Settings

__version__ = "0.1.0"


def build_defs(settings: Settings | None = None) -> dg.Definitions:
    """Every asset, check, job, schedule and sensor; the webserver, the command line and the tests use this."""
    from foxhunt_assets.build import build

    return build(settings)
