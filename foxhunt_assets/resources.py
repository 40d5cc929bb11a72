"""What an op is handed: the world (settings, paths, configuration), the trainer's launcher, and the Dagster instance.

Not here: what is computed (`assets/`), and when (`automation.py`).
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dagster as dg
from dagster._core.errors import DagsterPipesExecutionError

from foxhunt_assets import storage
from foxhunt_assets.contracts.instruments import ContractFacts, contract
from foxhunt_assets.errors import BadInput, FoxhuntError
from foxhunt_assets.market.formats import is_source
from foxhunt_assets.settings import CONFIG_NAME, Settings
from foxhunt_assets.trainer.config import TrainerConfig, from_profile
from foxhunt_assets.trainer.run_spec import RunSpec

SETTINGS_TAG = "foxhunt/settings"
GIT_TAG = "foxhunt/git"
GPU_POOL = "gpu"
EXIT_CODE = "exit_code"  # metadata of a failure: what the command line exits with
_CLOCK_S = 1.0  # a file system may round its times down to whole seconds
HASHES = "file_hashes.json"  # under work/: a file in a known state is not hashed again

# Every line answers a failure seen in practice: a killed run keeps its pool slot for ever unless slots are freed,
# a failed check is retried unless told otherwise, and a resumed run cannot be terminated.
DAGSTER_YAML = """\
telemetry: {enabled: false}
nux: {enabled: false}
concurrency:
  runs: {max_concurrent_runs: 3}
  pools: {granularity: op, default_limit: 1}
run_monitoring:
  enabled: true
  poll_interval_seconds: 15
  start_timeout_seconds: 180
  max_resume_run_attempts: 0
  free_slots_after_run_end_seconds: 60
  max_runtime_seconds: 36000
run_retries: {enabled: true, max_retries: 1, retry_on_asset_or_op_failure: false}
"""
# The location has one name for webserver, daemon and `dagster job backfill`, else the daemon fails every run.
WORKSPACE_YAML = """\
load_from:
  - python_module: {module_name: definitions, location_name: foxhunt}
"""


@dataclass(frozen=True)
class World:
    """Settings with everything derived from them. Nothing in it changes while a process lives."""

    settings: Settings

    @property
    def layout(self) -> storage.Layout:
        return storage.Layout(self.settings.home)

    @functools.cached_property
    def config(self) -> TrainerConfig:
        """Configuration of training. BadInput names the file and the key."""
        return self._configuration(self.settings.training.overrides)

    @functools.cached_property
    def eval_config(self) -> TrainerConfig:
        """Configuration of evaluation: training's, with the values that hold in evaluation only."""
        return self._configuration(_merged(self.settings.training.overrides, self.settings.evaluation.overrides))

    def _configuration(self, overrides: Mapping[str, Any]) -> TrainerConfig:
        try:
            return from_profile(self.settings.training.profile, overrides)
        except BadInput as error:
            raise BadInput(f"{self.settings.home / CONFIG_NAME}: {error}") from None

    @property
    def facts(self) -> ContractFacts:
        return contract(self.settings.data.root)

    @property
    def verdicts(self) -> Path:
        """Folder of verdicts that belong to no single run."""
        return self.settings.home / "verdicts"

    def lock(self, device: str) -> Path:
        """Lock file of a device: Dagster's pool is not seen by another instance, this is."""
        return self.layout.work / "locks" / f"{device}.lock"

    @functools.cached_property
    def device(self) -> str:
        """cpu or cuda; `auto` asks torch in a process of its own, so that CUDA is never initialised here."""
        wanted = self.settings.training.device
        return ("cuda" if _cuda_there() else "cpu") if wanted == "auto" else wanted

    def source_files(self) -> dict[str, Path]:
        """Source key -> file, for every Databento file under the data folder, in key order."""
        root = self.settings.data_dir
        found = [p for p in root.rglob("*") if is_source(p) and not p.name.startswith(".") and not p.is_dir()]
        files = {storage.source_key(p.relative_to(root).as_posix()): p for p in found}
        return dict(sorted(files.items()))

    def source_sha256(self, path: Path) -> str:
        """sha256 of a source file."""
        return self.source_hashed(path).sha256

    def source_hashed(self, path: Path) -> storage.Hashed:
        """A source file hashed, remembered by path until its state changes. BadInput where it has no bytes."""
        if not path.is_file():  # a pipe would be waited for
            raise BadInput(f"{path}: a broken link, a pipe or a device; put the file there or take it away")
        if not os.access(path, os.R_OK):
            raise BadInput(f"{path}: may not be read by this user; let it, or take the file away")
        cache = self.layout.work / HASHES
        known = storage.read_json(cache) if cache.exists() else {}
        *state, sha256 = known.get(str(path), [""])
        if tuple(state) == storage.file_state(path):
            return storage.Hashed(sha256, tuple(state))
        made = storage.hashed(path)
        storage.write_json(cache, {**known, str(path): [*made.state, made.sha256]})
        return made

    def source_file(self, key: str) -> Path:
        """The file of a source key."""
        files = self.source_files()
        if key not in files:
            raise BadInput(
                f"{self.settings.data_dir}: no file has the key {key}; put it back or delete the partition; "
                f"there are {len(files)} Databento files (DBN or CSV)"
            )
        return files[key]


def _merged(base: Any, over: Any) -> dict[str, Any]:
    out = dict(base)
    for key, value in over.items():
        out[key] = _merged(out.get(key, {}), value) if isinstance(value, dict) else value
    return out


def _cuda_there() -> bool:
    if not list(Path("/dev").glob("nvidia[0-9]*")) and not Path("/dev/dxg").exists():
        return False
    code = "import torch, sys; sys.exit(0 if torch.cuda.is_available() else 1)"
    return subprocess.run([sys.executable, "-c", code], check=False, capture_output=True).returncode == 0


class TrainerLauncher:
    """Starts `python -m foxhunt_assets.trainer` through Dagster Pipes and waits for it."""

    def __init__(self, command: tuple[str, ...] = (sys.executable, "-m", "foxhunt_assets.trainer")) -> None:
        self._command = command
        # 60 s: an interrupted trainer first writes its resumable checkpoint.
        self._pipes = dg.PipesSubprocessClient(termination_timeout_seconds=60)

    def run(self, context: dg.AssetExecutionContext, world: World, spec: RunSpec) -> None:
        """Run one training or evaluation; its folder is committed when this returns, else dg.Failure.

        What the process reports through Pipes is milestones only: the op yields its outputs itself, after it has
        verified the folder, so a trainer that dies leaves nothing materialised.
        """
        began = time.time()
        orders = world.layout.work / "orders" / f"{spec.kind}-{spec.run_id}.json"
        storage.write_json(orders, spec.to_json())
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", category=dg.PreviewWarning)  # of Pipes' own internals
                self._pipes.run(
                    context=context.op_execution_context,
                    command=[*self._command, spec.kind, str(orders)],
                    env={"FOXHUNT_HOME": str(world.settings.home)},
                ).get_results(implicit_materializations=False)
        except DagsterPipesExecutionError as error:
            raise dg.Failure(
                description=f"{spec.kind} {spec.fold} seed {spec.seed}: {error}; {_where(spec, began)}",
                metadata={"orders": dg.MetadataValue.path(str(orders)), EXIT_CODE: _exit_code(str(error))},
                allow_retries=False,
            ) from error


def _exit_code(text: str) -> int:
    """The trainer's own exit code, which Pipes tells only in words; 4 where a signal ended it."""
    found = re.search(r"code (-?[0-9]+)", text)
    code = int(found.group(1)) if found else 4
    return code if code in (1, 2, 3) else 4


def _where(spec: RunSpec, began: float) -> str:
    """What to read after a failed run: the report of what it put into quarantine, else its output. Every training's
    folder is called train, so an older report is another run's; devices run one at a time."""
    found = Path(spec.quarantine).glob(f"{Path(spec.out).name}-*/{storage.REPORT}")
    times = {path: path.stat().st_mtime for path in found}
    reports = sorted((path for path in times if times[path] >= began - _CLOCK_S), key=times.__getitem__)
    return f"see {reports[-1]}" if reports else "its last lines are in the output of this step"


def git_identity() -> str:
    """Commit of the checkout this code runs from, with +dirty when a tracked file differs; unknown outside git."""
    root = Path(__file__).resolve().parent.parent

    def git(*args: str) -> str:
        out = subprocess.run(["git", "-C", str(root), *args], capture_output=True, text=True, check=True)
        return out.stdout.strip()

    try:
        return git("rev-parse", "HEAD") + ("+dirty" if git("status", "--porcelain", "-uno") else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


Context = dg.AssetExecutionContext | dg.AssetCheckExecutionContext


@contextlib.contextmanager
def step(context: Context, world: World) -> Iterator[None]:
    """Around the work of every op: same settings as the run, and a user's error as one line that is not retried."""
    _assert_settings(context, world)
    try:
        yield
    except FoxhuntError as error:
        raise dg.Failure(description=str(error), metadata={EXIT_CODE: error.exit_code}, allow_retries=False) from error


def partition_of(context: Context) -> str:
    """The partition key; a partitioned job started without one would run all the same, and write nobody knows what."""
    if not context.has_partition_key:
        raise dg.Failure(
            description="this asset is partitioned and the run names no partition; choose one",
            allow_retries=False,
        )
    return str(context.partition_key)


def _assert_settings(context: Context, world: World) -> None:
    """Stop a worker that reads other settings than the run was started with; the first step writes them down."""
    run = context.instance.get_run_by_id(context.run.run_id)
    tag = run.tags.get(SETTINGS_TAG) if run else None
    if tag is None:
        tags = {SETTINGS_TAG: world.settings.hash, GIT_TAG: git_identity()}
        context.instance.add_run_tags(context.run.run_id, tags)
    elif tag != world.settings.hash:
        raise dg.Failure(
            description=f"this run was started with settings {tag[:12]}, this worker reads {world.settings.hash[:12]}; "
            "set FOXHUNT_HOME to the same folder for both, or start the run again after the change",
            allow_retries=False,
        )


def prepare_instance(home: Path) -> Path:
    """FOXHUNT_HOME/dagster with dagster.yaml and workspace.yaml, written where they are absent; returns the folder."""
    folder = storage.Layout(home).dagster
    for name, text in (("dagster.yaml", DAGSTER_YAML), ("workspace.yaml", WORKSPACE_YAML)):
        if not (folder / name).exists():
            storage.write_text(folder / name, text)
    return folder


def instance(settings: Settings) -> dg.DagsterInstance:
    """The Dagster instance of FOXHUNT_HOME; a context manager."""
    folder = prepare_instance(settings.home)
    os.environ["DAGSTER_HOME"] = str(folder)  # the libraries under it look here, and warn where it is unset
    return dg.DagsterInstance.from_config(str(folder))


def resources(settings: Settings, launcher: TrainerLauncher | None = None) -> dict[str, object]:
    """Resources of every asset and check."""
    return {"world": World(settings), "launcher": launcher or TrainerLauncher()}
