"""Webserver and daemon of one home, in one process group that ends as a whole."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from types import FrameType

from foxhunt_assets import storage
from foxhunt_assets.resources import prepare_instance
from foxhunt_assets.settings import Settings

STOP_S = 20.0  # what Dagster is given to end its runs before it is killed


def serve(settings: Settings, port: int) -> int:
    """Serve until interrupted; BadInput where another one serves this home: two daemons would launch runs twice."""
    folder = prepare_instance(settings.home)
    with storage.lock(storage.Layout(settings.home).work / "ui.pid", "the UI of this home"):
        print(f"http://127.0.0.1:{port}  (home {settings.home}; Ctrl-C ends it)", flush=True)
        process = subprocess.Popen(command(folder, port), env=environment(settings, folder), start_new_session=True)
        signal.signal(signal.SIGTERM, _interrupt)
        try:
            return process.wait()
        except KeyboardInterrupt:
            return 0
        finally:
            _stop(process)


def command(folder: Path, port: int) -> list[str]:
    return [
        sys.executable, "-m", "dagster", "dev", "-w", str(folder / "workspace.yaml"), "-h", "127.0.0.1",
        "-p", str(port),
    ]  # fmt: skip


def environment(settings: Settings, folder: Path) -> dict[str, str]:
    """The home for every process of the UI, and `definitions` importable from a checkout."""
    root = str(Path(__file__).resolve().parent.parent)
    path = os.pathsep.join(p for p in (root, os.environ.get("PYTHONPATH", "")) if p)
    return {**os.environ, "DAGSTER_HOME": str(folder), "FOXHUNT_HOME": str(settings.home), "PYTHONPATH": path}


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _stop(process: subprocess.Popen[bytes]) -> None:
    """End the whole group: the top process alone leaves daemon and code server behind."""
    for sign in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, sign)
        except ProcessLookupError:
            return
        try:
            process.wait(STOP_S / 2)
        except subprocess.TimeoutExpired:
            continue
