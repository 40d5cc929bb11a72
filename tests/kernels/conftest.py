"""Every family's own tests run twice: on the twin, and on the CUDA source through the shim."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kernels import build
from tests.kernels import shim


@pytest.fixture(autouse=True)
def backend(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """One schedule a launch here: the hunt for races has its own cases."""
    if getattr(request, "param", "twin") == "twin":
        yield
        return
    with shim.installed(monkeypatch, shim.POISONS[0], schedules=1):
        yield


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if metafunc.module.__name__.rsplit("test_")[-1] in build.families():
        metafunc.parametrize("backend", ["twin", "source"], indirect=True)
