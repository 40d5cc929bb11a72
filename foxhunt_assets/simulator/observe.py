"""The twelve values of the account that policy and value see beside the market."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from foxhunt_assets.simulator.config import MAX_UNITS, EnvConfig
from foxhunt_assets.simulator.legal import hold_left
from foxhunt_assets.simulator.state import Buffers, load_units
from foxhunt_assets.simulator.units import stop_px

_STREAK_SCALE = 5.0  # losses in a row that the risk layer takes for a bad streak


@dataclass(frozen=True)
class AccountFeature:
    """One value: its name, its unit before scaling, and what it is divided by so that it is of order 1."""

    name: str
    unit: str
    scale: Callable[[EnvConfig], float]


def _one(_: EnvConfig) -> float:
    return 1.0


# Drawdown lock and cooldown belong to the risk layer; without it they are measured as what they are, 0.
ACCOUNT_FEATURES: tuple[AccountFeature, ...] = (
    AccountFeature("signed_lots", "lots", lambda env: env.max_units * env.lots_large),
    AccountFeature("units", "count", lambda env: env.max_units),
    AccountFeature("age", "steps since flat", lambda env: env.episode_length),
    AccountFeature("open_pnl", "ticks a lot", lambda env: env.trail_max_ticks),
    AccountFeature("trail_distance_left", "ticks from mid to the nearest stop", lambda env: env.trail_max_ticks),
    AccountFeature("session_pnl", "cents", lambda env: env.start_equity_cents / 10),
    AccountFeature("drawdown_lock", "0 or 1", _one),
    AccountFeature("loss_streak", "closes", lambda env: _STREAK_SCALE),
    AccountFeature("cooldown", "steps", lambda env: env.episode_length),
    AccountFeature("min_hold_left", "steps", lambda env: max(env.min_hold_steps, 1)),
    AccountFeature("unit_cap", "count", lambda env: MAX_UNITS),
    AccountFeature("time_to_flat", "steps", lambda env: env.episode_length),
)


def account_state(env: EnvConfig, buffers: Buffers, rows_left: torch.Tensor) -> torch.Tensor:
    """float32 [B, 12] of the account where it stands; rows_left: int64 [B], steps to the end of the stretch."""
    units, side = load_units(buffers), buffers["acct_side"]
    lots = units.lots.sum(1)
    mid = buffers["acct_mark_half_ticks"].to(torch.float32) / 2
    nothing = torch.zeros_like(lots)
    entry_px = units.open_tick_lots.sum(1) / lots.clamp(min=1)
    gap = side[:, None] * (mid[:, None] - stop_px(units, side))
    nearest = torch.where(units.active, gap, torch.inf).amin(1)
    values = {
        "signed_lots": side * lots,
        "units": units.number,
        "age": buffers["acct_hold_steps"],
        "open_pnl": torch.where(lots > 0, side * (mid - entry_px), 0.0),
        "trail_distance_left": torch.where(lots > 0, nearest, 0.0),
        "session_pnl": buffers["acct_equity_cents"] - env.start_equity_cents,
        "drawdown_lock": nothing,
        "loss_streak": buffers["acct_loss_streak"],
        "cooldown": nothing,
        "min_hold_left": hold_left(units, buffers["acct_step"], env.min_hold_steps).amax(1),
        "unit_cap": nothing + env.max_units,
        "time_to_flat": torch.minimum(rows_left, env.episode_length - buffers["acct_episode_age"]),
    }
    return torch.stack([values[f.name].to(torch.float32) / f.scale(env) for f in ACCOUNT_FEATURES], dim=1)
