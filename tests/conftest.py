"""Shared fixtures. Real market files are found through FOXHUNT_REAL_DATA, never copied into the project."""

from __future__ import annotations

import os
from pathlib import Path

import hypothesis
import pytest

# A busy machine is no fault of an example.
hypothesis.settings.register_profile("untimed", hypothesis.settings.default, deadline=None)
hypothesis.settings.load_profile("untimed")


@pytest.fixture
def real_data() -> Path:
    """Folder of real market files; without it a test is skipped and counted, and fails where CI=true."""
    where = os.environ.get("FOXHUNT_REAL_DATA")
    if where and Path(where).is_dir():
        return Path(where)
    if os.environ.get("CI") == "true":
        pytest.fail("FOXHUNT_REAL_DATA is not set: real market files must be there in CI")
    pytest.skip("FOXHUNT_REAL_DATA is not set")
