"""ISV: one typed table of the allocated slots over dense float32 storage.

A slot number serves dumps (`isv_full`, 759 floats) and documents; the program uses names. A default the
configuration overrides is written once at the start; every other slot has one writer.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import cache
from importlib import resources

import torch

from foxhunt_assets.contracts.buffers import BufferSpec
from foxhunt_assets.errors import BadInput
from foxhunt_assets.trainer.config import TrainerConfig

N_SLOTS = 759
SPEC = BufferSpec("isv_full", (N_SLOTS,), "float32", "slots", ("slot",))

# The slots the program reads or writes by name; the rest of the table waits for its systems.
EXPLORATION_SCALE, SHAPING_SCALE = 22, 23
GAMMA, CLIP_EPS, ENTROPY_COEF = 400, 401, 402
PER_ALPHA, PER_BETA, REWARD_SCALE = 404, 405, 406
PI_FLOOR, MIN_HOLD = 438, 439
POPART_MU, POPART_SIGMA, POPART_BETA, POPART_SIGMA_WELFORD = 454, 455, 457, 725
V_MAX, V_MIN = 484, 485
TRAIL_TIGHTEN, TRAIL_LOOSEN = 493, 494
FRD_HORIZONS, FRD_RANGE = (500, 501, 502), 503
MAX_OPEN_UNITS = 647
GAE_LAMBDA, ROLLOUT_HORIZON = 730, 758
TARGET_TAU = 16


@dataclass(frozen=True)
class Slot:
    """One allocated slot; minimum and maximum are None where the table sets no bound."""

    index: int
    name: str
    default: float
    minimum: float | None
    maximum: float | None
    writer: str
    readers: str
    meaning: str


@cache
def slots() -> tuple[Slot, ...]:
    """The allocated slots in order of number."""
    text = resources.files(__package__).joinpath("isv_slots.tsv").read_text(encoding="utf-8")
    rows = csv.DictReader(text.splitlines(), delimiter="\t", quoting=csv.QUOTE_NONE)
    return tuple(
        Slot(
            int(r["index"]), r["symbolic_name"], float(r["default"] or 0), _bound(r["min"]), _bound(r["max"]),
            r["writer"], r["readers"], r["description"],
        )
        for r in rows
    )  # fmt: skip


def bootstrap(isv: torch.Tensor, config: TrainerConfig) -> None:
    """Defaults of the table, then what the configuration says; BadInput names a value outside its slot's bounds."""
    by_index = {slot.index: slot for slot in slots()}
    values = {slot.index: slot.default for slot in slots()} | configured(config)
    for index, value in values.items():
        slot = by_index[index]
        low, high = slot.minimum, slot.maximum
        if (low is not None and value < low) or (high is not None and value > high):
            raise BadInput(f"configuration: slot {index} ({slot.name}) is {value}, outside {low} to {high}")
        isv[index] = value


def set_evaluation(isv: torch.Tensor) -> None:
    """The phase switch: no exploration and no shaping in evaluation."""
    isv[EXPLORATION_SCALE] = 0.0
    isv[SHAPING_SCALE] = 0.0


def configured(c: TrainerConfig) -> dict[int, float]:
    """Slot -> value of every slot that the configuration sets."""
    le, e = c.learning, c.env
    return {
        GAMMA: le.gamma, CLIP_EPS: le.clip_eps, ENTROPY_COEF: le.entropy_coef, PER_ALPHA: le.per_alpha,
        PER_BETA: le.per_beta, REWARD_SCALE: le.reward_scale, PI_FLOOR: le.pi_floor, MIN_HOLD: e.min_hold_steps,
        POPART_BETA: le.popart_beta, TRAIL_TIGHTEN: e.trail_tighten, TRAIL_LOOSEN: e.trail_loosen,
        **dict(zip(FRD_HORIZONS, map(float, c.labels.horizons))), FRD_RANGE: c.labels.range_sigma,
        MAX_OPEN_UNITS: e.max_units, GAE_LAMBDA: le.gae_lambda, ROLLOUT_HORIZON: le.rollout_steps,
        TARGET_TAU: le.target_tau,
    }  # fmt: skip


def _bound(text: str) -> float | None:
    return float(text) if text else None
