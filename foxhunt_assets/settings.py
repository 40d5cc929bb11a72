"""Settings: FOXHUNT_HOME/foxhunt.toml, then the environment. Unknown keys are refused.

One absolute file serves the webserver, the daemon and every worker; its hash travels in the run tags and a
worker that reads another one stops. What a fold is made of and how long training runs come from a profile
(`trainer/config.py`); [training.overrides] changes single values of it.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from foxhunt_assets.errors import BadInput

CONFIG_NAME = "foxhunt.toml"
MAX_GRID_MS = 60_000  # a segment may be silent for a minute; a wider grid would step over it
MAX_FOLDS = 100  # every command asks for each fold's assets; more folds than this are a slip of the keyboard


@dataclass(frozen=True)
class DataSettings:
    """dir: folder of Databento files (None: FOXHUNT_HOME/data). root: product.

    clock: grid (a row every grid_ms) or event (a row an event; for inspection and checks, folds refuse it).
    instrument_mode: front_month, volume, all, or outright symbols with commas between, e.g. "ESH4,ESM4".
    """

    dir: str | None = None
    root: str = "ES"
    clock: str = "grid"
    grid_ms: int = 250
    instrument_mode: str = "front_month"

    @property
    def row_ms(self) -> int:
        """Milliseconds between snapshot rows, 0 on the event clock."""
        return 0 if self.clock == "event" else self.grid_ms


@dataclass(frozen=True)
class FoldSettings:
    """n_folds: walk-forward folds. seeds: one run each. embargo_rows: rows left out after each evaluation range.
    sessions_per_block: sessions each fold tests on; left out: as many as fit (`market/folds.py`)."""

    n_folds: int = 2
    seeds: tuple[int, ...] = (0,)
    embargo_rows: int = 0
    sessions_per_block: int | None = None


@dataclass(frozen=True)
class TrainingSettings:
    """profile: demo, quick, mid or full. device: auto, cpu or cuda. overrides: single values of the profile."""

    profile: str = "demo"
    device: str = "auto"
    overrides: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class EvaluationSettings:
    """overrides: values of the profile that hold in evaluation only (fee, latency): no new training is needed."""

    overrides: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Settings:
    """Everything a person sets, with every path absolute."""

    home: Path
    data: DataSettings = field(default_factory=DataSettings)
    folds: FoldSettings = field(default_factory=FoldSettings)
    training: TrainingSettings = field(default_factory=TrainingSettings)
    evaluation: EvaluationSettings = field(default_factory=EvaluationSettings)

    @property
    def data_dir(self) -> Path:
        return Path(self.data.dir) if self.data.dir else self.home / "data"

    @property
    def hash(self) -> str:
        """sha256 of everything but the place it was read from."""
        body = {k: v for k, v in dataclasses.asdict(self).items() if k != "home"}
        body["data"]["dir"] = None
        return hashlib.sha256(json.dumps(body, sort_keys=True, default=str).encode()).hexdigest()


_TABLES = {"data": DataSettings, "folds": FoldSettings, "training": TrainingSettings, "evaluation": EvaluationSettings}


def home_dir(env: Mapping[str, str] = os.environ) -> Path:
    return Path(env.get("FOXHUNT_HOME") or ".foxhunt").absolute()


def load(env: Mapping[str, str] = os.environ) -> Settings:
    """Settings of this process. BadInput names the file, the key and the known ones."""
    home = home_dir(env)
    path = home / CONFIG_NAME
    raw: dict[str, Any] = {}
    if path.exists():
        try:
            raw = tomllib.loads(path.read_text(encoding="utf-8"))
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise BadInput(f"{path}: not valid TOML: {error}") from None
        except OSError as error:
            raise BadInput(f"{path}: cannot be read: {error.strerror}; make it a readable file") from None
    _refuse_unknown(str(path), "", raw, list(_TABLES))
    parts = {name: _table(path, name, cls, raw.get(name, {})) for name, cls in _TABLES.items()}
    if env.get("FOXHUNT_DATA_DIR"):
        parts["data"] = dataclasses.replace(parts["data"], dir=str(Path(env["FOXHUNT_DATA_DIR"]).absolute()))
    parts["training"] = dataclasses.replace(
        parts["training"], overrides=_from_environment(env, parts["training"].overrides)
    )
    settings = Settings(home=home, **parts)
    _check(path, settings)
    return settings


# Variable -> (table and key of the training configuration it sets, what its values mean).
_VARIABLES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "FOXHUNT_DETERMINISTIC": ("run", "deterministic", {"0": 0, "1": 1, "2": 2}),
    "FOXHUNT_USE_ROLLOUT": ("learning", "mode", {"0": "per_step", "1": "rollout"}),
}


def _from_environment(env: Mapping[str, str], overrides: Any) -> Any:
    """training.overrides with what the environment says instead; a variable that is empty says nothing."""
    for variable, (table, key, meanings) in _VARIABLES.items():
        if not (text := env.get(variable)):
            continue
        if text not in meanings:
            raise BadInput(f"{variable} is {text!r}; set it to {', '.join(meanings)}, or leave it out")
        if isinstance(overrides, Mapping):  # `_check` names what it is otherwise
            overrides = {**overrides, table: {**overrides.get(table, {}), key: meanings[text]}}
    return overrides


def _table(path: Path, name: str, cls: type, raw: Mapping[str, Any]) -> Any:
    if not isinstance(raw, Mapping):
        raise BadInput(f"{path}: {name} must be a table, [{name}], not {raw!r}")
    fields = {f.name: f for f in dataclasses.fields(cls)}
    _refuse_unknown(str(path), f"{name}.", raw, list(fields))
    return cls(**{k: tuple(v) if isinstance(v, list) else v for k, v in raw.items()})


def _refuse_unknown(path: str, prefix: str, raw: Mapping[str, Any], known: list[str]) -> None:
    for key in raw:
        if key not in known:
            raise BadInput(f"{path}: unknown key {prefix}{key}; known: {', '.join(known)}")


def _check(path: Path, s: Settings) -> None:
    problems = {
        f"folds.n_folds must be an integer of 1 to {MAX_FOLDS}": _whole(s.folds.n_folds, 1)
        and s.folds.n_folds <= MAX_FOLDS,
        "folds.seeds must be distinct integers of 0 or more, under 2**63": isinstance(s.folds.seeds, tuple)
        and bool(s.folds.seeds)
        and all(_whole(x, 0) and x < 2**63 for x in s.folds.seeds)
        and len(set(s.folds.seeds)) == len(s.folds.seeds),
        "folds.embargo_rows must be an integer of 0 or more": _whole(s.folds.embargo_rows, 0),
        "folds.sessions_per_block must be an integer of 1 or more, or left out": s.folds.sessions_per_block is None
        or _whole(s.folds.sessions_per_block, 1),
        "data.dir must be an absolute path, or left out": s.data.dir is None
        or (isinstance(s.data.dir, str) and "\0" not in s.data.dir and Path(s.data.dir).is_absolute()),
        "data.root must be text": isinstance(s.data.root, str),
        "data.clock must be grid or event": s.data.clock in ("grid", "event"),
        f"data.grid_ms must be a positive multiple of 250, at most {MAX_GRID_MS}": _whole(s.data.grid_ms, 250)
        and s.data.grid_ms % 250 == 0
        and s.data.grid_ms <= MAX_GRID_MS,
        "data.instrument_mode must be front_month, volume, all, or symbols with commas between": isinstance(
            s.data.instrument_mode, str
        )
        and all(name.strip() for name in s.data.instrument_mode.split(",")),
        "training.profile must be text": isinstance(s.training.profile, str),
        "training.device must be auto, cpu or cuda": s.training.device in ("auto", "cpu", "cuda"),
        "training.overrides and evaluation.overrides must be tables": isinstance(s.training.overrides, dict)
        and isinstance(s.evaluation.overrides, dict),
    }
    for text, fine in problems.items():
        if not fine:
            raise BadInput(f"{path}: {text}")


def _whole(value: Any, least: int) -> bool:
    """An integer (true is none) of `least` or more."""
    return type(value) is int and value >= least
