"""What a rule between leaves is made of: the rows it sees, the configuration, and how floats are compared."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

Columns = Mapping[str, np.ndarray]
PhaseName = Literal["train", "eval"]
BOTH: tuple[PhaseName, ...] = ("train", "eval")

ACTIONS = (
    "a0_short_large", "a1_short_small", "a2_hold", "a3_flat_from_long", "a4_flat_from_short", "a5_long_small",
    "a6_long_large", "a7_trail_tighten", "a8_trail_loosen", "a9_half_flat_long", "a10_half_flat_short",
)  # fmt: skip
RELATIVE, ABSOLUTE = 1e-5, 1e-6  # equality of floats, where a rule names no other


@dataclass(frozen=True)
class RuleConfig:
    """What the rules need of a run's configuration.

    accounts: B. n_train: training steps. rollout: False in per_step mode. rollout_steps: T. replay_rows: sampled a
    minibatch. max_units: unit cap. tick_cents: value of a tick of a lot. multiplier_cents: of a point of a lot.
    fee_cents: a side, every one the fee table holds. warmup_steps: of this evaluation, as applied. reward: "equity" or
    "close". n_features: F. entropy_alpha: rate of sac.action_entropy_ema. leaf_values: value of `config` leaves that
    config.json fixes.
    """

    accounts: int
    n_train: int
    rollout_steps: int
    replay_capacity: int
    replay_rows: int
    max_units: int
    tick_cents: int
    multiplier_cents: int
    fee_cents: tuple[int, ...]
    warmup_steps: int
    rollout: bool = True
    reward: Literal["equity", "close"] = "equity"
    n_features: int = 56
    entropy_alpha: float = 0.05
    leaf_values: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Phase:
    """Rows of one phase in file order, with its trades where they were given."""

    name: PhaseName
    columns: Columns
    config: RuleConfig
    trades: Columns | None = None

    def __getitem__(self, leaf: str) -> np.ndarray:
        return self.columns[leaf]

    @property
    def n(self) -> int:
        return len(self.columns["step"])

    @property
    def is_eval(self) -> bool:
        return self.name == "eval"

    def cents(self, leaf: str) -> np.ndarray:
        """A USD column in whole cents, int64."""
        return np.rint(self[leaf] * 100).astype(np.int64)

    def count(self, leaf: str) -> np.ndarray:
        """A mean over accounts as its integer sum, int64."""
        return np.rint(self[leaf] * self.config.accounts).astype(np.int64)

    def total(self, leaves: Iterable[str]) -> np.ndarray:
        return np.sum([self[leaf] for leaf in leaves], axis=0)

    def having(self, leaves: Iterable[str]) -> list[str]:
        """Those of the leaves that stand in the rows."""
        return [leaf for leaf in leaves if leaf in self.columns]


@dataclass(frozen=True)
class Run:
    """Both phases where both were given, and eval_summary.json."""

    train: Phase | None
    eval: Phase | None
    config: RuleConfig
    summary: Mapping[str, Any] | None = None

    @property
    def phases(self) -> list[Phase]:
        return [phase for phase in (self.train, self.eval) if phase is not None]


# A phase check gives a mask of the bad rows, or a line that says what is wrong; a run check gives the line.
PhaseCheck = Callable[[Phase], "np.ndarray | str"]
RunCheck = Callable[[Run], str]
Need = Literal["train", "eval", "trades", "summary"]


@dataclass(frozen=True)
class Rule:
    """One rule. leaves: all needed. any_of: judged as far as they are there, at least one. needs: other inputs."""

    name: str
    text: str
    leaves: tuple[str, ...]
    check: PhaseCheck | RunCheck
    scope: Literal["phase", "run"]
    phases: tuple[PhaseName, ...] = BOTH
    any_of: tuple[str, ...] = ()
    needs: tuple[Need, ...] = ()


class RuleTable(list[Rule]):
    """Rules of one family. A rule is a function: its name, its docstring as the text, its leaves declared above."""

    def phase(
        self,
        *leaves: str,
        only: PhaseName | None = None,
        any_of: Sequence[str] = (),
        needs: tuple[Need, ...] = (),
    ) -> Callable[[PhaseCheck], PhaseCheck]:
        """Declare a rule over the rows of one phase; it runs on each phase given, or on `only` one."""
        phases = BOTH if only is None else (only,)

        def add(check: PhaseCheck) -> PhaseCheck:
            self._add(check, leaves, "phase", phases, tuple(any_of), needs)
            return check

        return add

    def run(
        self, *leaves: str, any_of: Sequence[str] = (), needs: tuple[Need, ...] = ()
    ) -> Callable[[RunCheck], RunCheck]:
        """Declare a rule over the run as a whole."""

        def add(check: RunCheck) -> RunCheck:
            self._add(check, leaves, "run", BOTH, tuple(any_of), needs)
            return check

        return add

    def _add(self, check: Any, leaves: Any, scope: Any, phases: Any, any_of: Any, needs: Any) -> None:
        text = " ".join((check.__doc__ or "").split())
        self.append(Rule(check.__name__, text, leaves, check, scope, phases, any_of, needs))


def above(a: Any, b: Any, rel: float = RELATIVE, abs_tol: float = ABSOLUTE) -> np.ndarray:
    """Where a is greater than b by more than the tolerance."""
    a, b = np.asarray(a, float), np.asarray(b, float)
    return a > b + abs_tol + rel * np.maximum(np.abs(a), np.abs(b))


def differ(a: Any, b: Any, rel: float = RELATIVE, abs_tol: float = ABSOLUTE) -> np.ndarray:
    """Where a and b differ by more than the tolerance."""
    a, b = np.asarray(a, float), np.asarray(b, float)
    return np.abs(a - b) > abs_tol + rel * np.maximum(np.abs(a), np.abs(b))


def later(mask: np.ndarray, first: Any = False) -> np.ndarray:
    """A mask of the rows from the second on (length n - 1) as a mask of all rows; `first` is the first row's."""
    return np.concatenate([np.atleast_1d(np.asarray(first, bool)), np.asarray(mask, bool)])


def change(values: np.ndarray, before: float = 0) -> np.ndarray:
    """What each row adds to the row before; the first row to `before`, its value when the phase begins."""
    return np.diff(values, prepend=np.asarray([before], values.dtype))


def same_bits(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Where two columns hold the same bits."""
    if a.dtype == np.float64:
        return np.ascontiguousarray(a).view(np.int64) == np.ascontiguousarray(b).view(np.int64)
    return a == b


def off_integer(values: np.ndarray, tolerance: float = 1e-6) -> np.ndarray:
    """Where a column is further from a whole number than the tolerance."""
    return np.abs(values - np.rint(values)) > tolerance


def entropy(counts: np.ndarray) -> np.ndarray:
    """Entropy in nats of each column of counts, shape [classes, rows]; 0 where a column is empty."""
    total = counts.sum(axis=0)
    share = counts / np.where(total > 0, total, 1)
    return -(share * np.log(np.where(share > 0, share, 1))).sum(axis=0)


def stack(phase: Phase, prefix: str) -> np.ndarray:
    """The eleven action columns under a prefix, shape [11, rows]."""
    return np.stack([phase[f"{prefix}.{action}"] for action in ACTIONS]).astype(float)


def by_action(prefix: str) -> tuple[str, ...]:
    """The eleven leaves under a prefix."""
    return tuple(f"{prefix}.{action}" for action in ACTIONS)
