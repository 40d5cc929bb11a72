"""A step's rewards and the error of the value that expected them, a launch each."""

from __future__ import annotations

from typing import NamedTuple

import torch

from kernels import build
from kernels.arguments import check, check_scalar
from kernels.reward import kernel, reference

STATE = ("started", "mu", "nu", "count", "welford_mean", "welford_m2")


class Slots(NamedTuple):
    """0-dim float32: what a raw reward is multiplied by, the rate of the averages; mu, sigma and Welford's sigma."""

    scale: torch.Tensor
    beta: torch.Tensor
    mu: torch.Tensor
    sigma: torch.Tensor
    welford: torch.Tensor


class Rewards(NamedTuple):
    """float32 [B]: in points x lots, scaled, and over sigma."""

    raw: torch.Tensor
    scaled: torch.Tensor
    final: torch.Tensor


class Previous(NamedTuple):
    """[B]: what the TD error of a step needs of it when the next one is known."""

    value: torch.Tensor
    reward: torch.Tensor
    terminated: torch.Tensor
    truncated: torch.Tensor
    valid: torch.Tensor


def whiten(
    core_cents: torch.Tensor,
    fee_cents: torch.Tensor,
    point_lot_cents: int,
    learn: bool,
    sigma_min: float,
    slots: Slots,
    state: torch.Tensor,
    into: Rewards,
) -> None:
    """Fill `into` from int64 cents [B]; move the statistics where `learn`.

    state: float64 [len(STATE)], started by the first row with a reward that is not 0; its float32 copies go to the
    slots. sigma is at least sigma_min and divides the very rewards that moved it.
    """
    check("core_cents", core_cents, (None,), torch.int64)
    check("fee_cents", fee_cents, tuple(core_cents.shape), torch.int64)
    check("state", state, (len(STATE),), torch.float64)
    for name, x in slots._asdict().items():
        check_scalar(name, x)
    for name, x in into._asdict().items():
        check(name, x, tuple(core_cents.shape), torch.float32)
    backend = kernel if build.on_gpu(into.raw) else reference
    backend.whiten(core_cents, fee_cents, point_lot_cents, learn, sigma_min, *slots, state, *into)


def error(
    values: torch.Tensor,
    rewards: torch.Tensor,
    terminated: torch.Tensor,
    truncated: torch.Tensor,
    gamma: float,
    valid: bool,
    previous: Previous,
) -> torch.Tensor:
    """float64 [1]: mean |r + gamma V - V_before| over the accounts whose step before is valid and not truncated.

    V counts 0 where the step before terminated. `previous` then holds this step. 0 where no account counts.
    """
    shape = tuple(values.shape)
    for name, x in (("values", values), ("rewards", rewards)):
        check(name, x, shape, torch.float32)
    for name, x in (("terminated", terminated), ("truncated", truncated)):
        check(name, x, shape, torch.bool)
    for name, x in previous._asdict().items():
        check(f"previous.{name}", x, shape, torch.float32 if name in ("value", "reward") else torch.bool)
    backend = kernel if build.on_gpu(values) else reference
    return backend.error(values, rewards, terminated, truncated, gamma, valid, *previous)
