"""The trainer's configuration: every size, rate and time, with the profiles. Nothing here is a path or a clock."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import math
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from foxhunt_assets.contracts.diag import live_by_path
from foxhunt_assets.errors import BadInput
from foxhunt_assets.simulator.config import EnvConfig
from foxhunt_assets.storage import canonical_json
from kernels.heads.kernel import WIDEST


@dataclass(frozen=True)
class ModelConfig:
    """accounts: B. window: K snapshots. hidden: H. atoms: of C51. frd_atoms, frd_hidden: the FRD head."""

    accounts: int = 128
    window: int = 32
    hidden: int = 128
    atoms: int = 21
    frd_atoms: int = 21
    frd_hidden: int = 64


@dataclass(frozen=True)
class LabelConfig:
    """horizons: in snapshots, ascending. range_sigma: half-range of the atoms."""

    horizons: tuple[int, ...] = (60, 300, 1800)
    range_sigma: float = 3.0


@dataclass(frozen=True)
class LearningConfig:
    """PPO on a rollout window of T = rollout_steps, with C51 on replay rows in the same pass.

    epochs x minibatches passes over the window's B x T rows; each adds replay_rows sampled transitions.
    kl_stop: k3 KL over which the rest of a window's minibatches is left out.
    mode: rollout, or per_step: every row is a window of its own and updates once, on its one-step TD errors, which a
    termination gates; rollout_steps, epochs, minibatches and gae_lambda then say nothing.
    """

    mode: str = "rollout"
    rollout_steps: int = 256
    epochs: int = 4
    minibatches: int = 4
    replay_capacity: int = 32_768
    replay_rows: int = 1_024
    gamma: float = 0.995
    gae_lambda: float = 0.95
    clip_eps: float = 0.2
    value_clip: float = 0.2
    entropy_coef: float = 0.01
    kl_stop: float = 0.05
    grad_clip: float = 1.0
    lr_encoder: float = 3e-4
    lr_q: float = 3e-4
    lr_pi: float = 1e-4
    lr_v: float = 3e-4
    lr_frd: float = 1e-3
    weight_decay: float = 0.01
    beta1: float = 0.9
    beta2: float = 0.999
    adam_eps: float = 1e-8
    target_tau: float = 0.005
    per_alpha: float = 0.6
    per_beta: float = 0.4
    pi_floor: float = 0.02
    reward_scale: float = 0.01
    popart_beta: float = 0.001

    @property
    def per_step(self) -> bool:
        return self.mode == "per_step"

    @property
    def window_rows(self) -> int:
        """Rows an update learns from, times accounts."""
        return 1 if self.per_step else self.rollout_steps

    @property
    def window_epochs(self) -> int:
        return 1 if self.per_step else self.epochs

    @property
    def window_minibatches(self) -> int:
        """Minibatches an epoch."""
        return 1 if self.per_step else self.minibatches


@dataclass(frozen=True)
class RunConfig:
    """n_steps: training steps. n_eval_steps: evaluation steps, None for the whole range.
    checkpoint_every: steps between resumable checkpoints. threads: torch threads, part of the identity (it moves sums).
    deterministic: what float32 products may do on a GPU. 1: IEEE float32, fixed workspaces and algorithms. 0: TF32.
    2: a control, the library's own choice of algorithm in IEEE float32. Only 1 promises the same bits twice.
    """

    n_steps: int = 20_000
    n_eval_steps: int | None = None
    warmup_steps: int = 256
    checkpoint_every: int = 1_024
    threads: int = 2
    deterministic: int = 1


@dataclass(frozen=True)
class TrainerConfig:
    """One configuration, whole. `hash` is its identity."""

    profile: str
    model: ModelConfig = field(default_factory=ModelConfig)
    labels: LabelConfig = field(default_factory=LabelConfig)
    env: EnvConfig = field(default_factory=EnvConfig)
    learning: LearningConfig = field(default_factory=LearningConfig)
    run: RunConfig = field(default_factory=RunConfig)

    @property
    def hash(self) -> str:
        return hashlib.sha256(canonical_json(self.to_json()).encode()).hexdigest()

    @property
    def purge_rows(self) -> int:
        return max(self.labels.horizons) + self.env.latency_steps

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> TrainerConfig:
        return _check(_build(cls, raw, ""))

    @classmethod
    def of_run(cls, raw: Mapping[str, Any]) -> TrainerConfig:
        """From a run's config.json, which names fold and seed too."""
        return cls.from_json({k: v for k, v in raw.items() if k not in ("seed", "fold")})


# demo: seconds on two CPU cores. quick: the determinism smoke. mid: the policy smoke. full: production.
_PROFILES: dict[str, dict[str, Any]] = {
    "demo": {
        "model": {"accounts": 32, "hidden": 32, "frd_hidden": 16},
        "labels": {"horizons": (8, 32, 128)},
        "env": {"min_hold_steps": 8, "episode_length": 256},
        "learning": {
            "rollout_steps": 32, "epochs": 2, "minibatches": 2, "replay_capacity": 4_096, "replay_rows": 128,
            "lr_encoder": 1e-3, "lr_q": 1e-3, "lr_pi": 1e-3, "lr_v": 1e-3, "popart_beta": 0.02,
        },
        "run": {"n_steps": 64, "warmup_steps": 16, "checkpoint_every": 32, "threads": 1},
    },
    "quick": {
        "learning": {"rollout_steps": 32},
        "run": {"n_steps": 200, "n_eval_steps": 50, "warmup_steps": 5, "checkpoint_every": 64},
    },
    "mid": {"run": {"n_steps": 2_000, "n_eval_steps": 500, "warmup_steps": 50}},
    "full": {},
}  # fmt: skip
PROFILES = tuple(_PROFILES)
MODES = ("rollout", "per_step")


def from_profile(profile: str, overrides: Mapping[str, Any] | None = None) -> TrainerConfig:
    """A profile with single values changed: {"env": {"latency_steps": 2}}. BadInput names an unknown key."""
    if profile not in _PROFILES:
        raise BadInput(f"unknown profile {profile!r}; known: {', '.join(PROFILES)}")
    return TrainerConfig.from_json({"profile": profile, **_merge(_PROFILES[profile], overrides or {})})


def _merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    out = dict(base)
    for key, value in over.items():
        nested = isinstance(value, Mapping) and isinstance(out.get(key, {}), Mapping)
        out[key] = _merge(out.get(key, {}), value) if nested else value
    return out


def _build(cls: type, raw: Mapping[str, Any], prefix: str) -> Any:
    if not isinstance(raw, Mapping):
        raise BadInput(f"configuration: {prefix.rstrip('.')} must be a table, not {raw!r}")
    hints = typing.get_type_hints(cls)
    for key in raw:
        if key not in hints:
            raise BadInput(f"configuration: unknown key {prefix}{key}; known: {', '.join(hints)}")
    values = {}
    for key, value in raw.items():
        kind = hints[key]
        if dataclasses.is_dataclass(kind):
            values[key] = _build(typing.cast(type, kind), value, f"{prefix}{key}.")
        else:
            values[key] = _plain(kind, value, prefix + key)
    return cls(**values)


def _plain(kind: Any, value: Any, where: str) -> Any:
    if typing.get_origin(kind) is tuple:
        if not isinstance(value, (list, tuple)):
            raise BadInput(f"configuration: {where} must be a list, not {value!r}")
        return tuple(tuple(v) if isinstance(v, list) else v for v in value)
    if isinstance(kind, types.UnionType):
        return None if value is None else _plain(typing.get_args(kind)[0], value, where)
    fits = isinstance(value, (int, float) if kind is float else kind) and not (
        isinstance(value, bool) and kind is not bool
    )
    if not fits:
        raise BadInput(f"configuration: {where} must be {kind.__name__}, not {value!r}")
    if kind is float and not math.isfinite(value):
        raise BadInput(f"configuration: {where} must be finite, not {value!r}")
    return float(value) if kind is float else value


def _most(leaf: str) -> float:
    """Upper bound of a leaf: a size that can pass it would stop a run in its first row."""
    bound = live_by_path()[leaf].maximum
    assert bound is not None
    return bound


def _check(c: TrainerConfig) -> TrainerConfig:
    m, le = c.model, c.learning
    most_window, most_atoms = (round(math.exp(_most(f))) for f in ("encoder.attn_entropy", "q.dist_entropy_mean"))
    most_units = int(_most("encoder.h_t_participation_ratio"))
    rules = {
        f"model.window must be {most_window} at most, the diagnostics contract bounds its entropy": m.window
        <= most_window,
        f"model.atoms must be {most_atoms} at most, the diagnostics contract bounds their entropy": m.atoms
        <= most_atoms,
        f"model.hidden or accounts must be {most_units} at most, the diagnostics contract bounds the units in use": min(
            m.hidden, m.accounts - 1
        )
        <= most_units,
        f"model.hidden and frd_hidden must be {WIDEST} at most, a kernel holds a row of them": max(
            m.hidden, m.frd_hidden
        )
        <= WIDEST,
        "model.accounts, hidden and frd_hidden must be 1 or more": min(m.accounts, m.hidden, m.frd_hidden) >= 1,
        "model.window must be 2 or more": m.window >= 2,
        "model.atoms and frd_atoms must be 2 or more": min(m.atoms, m.frd_atoms) >= 2,
        "labels.horizons must be whole numbers of rows": all(type(h) is int for h in c.labels.horizons),
        "labels.horizons must be ascending, positive and distinct": all(
            type(a) is type(b) and a < b for a, b in itertools.pairwise((0, *c.labels.horizons))
        ),
        "labels.horizons must be three (h1, h2, h3 of the diagnostics)": len(c.labels.horizons) == 3,
        f"learning.mode must be one of {', '.join(MODES)}": le.mode in MODES,
        "run.deterministic must be 0, 1 or 2": c.run.deterministic in (0, 1, 2),
        "learning.rollout_steps must be 32 to 1024": 32 <= le.rollout_steps <= 1024,
        "learning.gamma and gae_lambda must lie in [0, 1]": 0 <= le.gamma <= 1 and 0 <= le.gae_lambda <= 1,
        "learning.beta1 and beta2 must lie in [0, 1)": 0 <= le.beta1 < 1 and 0 <= le.beta2 < 1,
        "learning.lr_encoder, lr_q, lr_pi, lr_v and lr_frd must be 0 or more": min(
            le.lr_encoder, le.lr_q, le.lr_pi, le.lr_v, le.lr_frd
        )
        >= 0,
        "learning.epochs, minibatches and replay_rows must be 1 or more": min(le.epochs, le.minibatches, le.replay_rows)
        >= 1,
        "learning.minibatches must divide accounts x rollout_steps": (m.accounts * le.rollout_steps)
        % max(le.minibatches, 1)
        == 0,
        "learning.replay_capacity must be a power of two": le.replay_capacity & (le.replay_capacity - 1) == 0
        and le.replay_capacity > 0,
        "learning.replay_capacity must hold at least one row an account": le.replay_capacity >= m.accounts,
        "run.n_steps, checkpoint_every and threads must be 1 or more": min(
            c.run.n_steps, c.run.checkpoint_every, c.run.threads
        )
        >= 1,
        "run.warmup_steps must be 0 or more": c.run.warmup_steps >= 0,
        "run.n_eval_steps must be 1 or more, or left out for the whole range": c.run.n_eval_steps is None
        or c.run.n_eval_steps >= 1,
    }
    for text, fine in rules.items():
        if not fine:
            raise BadInput(f"configuration: {text}")
    return c
