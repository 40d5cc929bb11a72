"""From cents to the reward an agent learns from: raw (points x lots), scaled, whitened by sigma and never centred.

raw = core term + fees + shaping (none yet), core being the change of marked-to-market equity before fees.
scaled = raw x ISV 406. whitened = scaled / sigma; a constant subtracted a step would pay or punish time itself.
mu and sigma are exponential averages of scaled rewards (PopArt statistics, van Hasselt 2016, 1602.07714, Eq. 4),
started by the first row with a non-zero reward and frozen in evaluation.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch

from foxhunt_assets.contracts.buffers import BufferSpec
from foxhunt_assets.trainer import slots
from foxhunt_assets.trainer.stats import Stats

SIGMA_MIN = 1e-6  # floor of ISV 455
# Exact in float64 where the float32 slots would round; the slots are their copies.
STATE = Stats("popart_state", ("started", "mu", "nu", "count", "welford_mean", "welford_m2"), "slots")


def specs(accounts: int) -> list[BufferSpec]:
    """raw, scaled and whitened reward of each account, and the running statistics."""
    names = ("reward_raw", "reward_scaled", "reward")
    return [*(BufferSpec(name, (accounts,), "float32", "transient", ("account",)) for name in names), STATE.spec]


def apply(
    b: Mapping[str, torch.Tensor], core_cents: torch.Tensor, fee_cents: torch.Tensor, point_lot_cents: int, learn: bool
) -> None:
    """Fill reward_raw, reward_scaled and reward from int64 cents [B]; move the statistics where `learn`.

    point_lot_cents: cents one lot gains when the price rises by one point (ES: 5,000).
    """
    b["reward_raw"].copy_((core_cents - fee_cents).double() / point_lot_cents)
    b["reward_scaled"].copy_(b["reward_raw"] * b["isv_full"][slots.REWARD_SCALE])
    if learn:
        _observe(b, b["reward_scaled"].double())
    b["reward"].copy_(b["reward_scaled"] / b["isv_full"][slots.POPART_SIGMA])


def _observe(b: Mapping[str, torch.Tensor], x: torch.Tensor) -> None:
    get = {name: STATE.get(b, name).clone() for name in STATE.names}
    mean, square = x.mean(), (x * x).mean()
    signal = ((x != 0).any() | (get["started"] > 0)).double()
    rate = torch.where(get["started"] > 0, b["isv_full"][slots.POPART_BETA].double(), torch.ones_like(mean)) * signal
    mu, nu = get["mu"] + rate * (mean - get["mu"]), get["nu"] + rate * (square - get["nu"])
    n, k = get["count"] + x.numel(), float(x.numel())
    delta = mean - get["welford_mean"]
    m2 = get["welford_m2"] + ((x - mean) ** 2).sum() + delta**2 * get["count"] * k / n
    welford_mean = get["welford_mean"] + delta * k / n
    STATE.put(b, {"started": signal, "mu": mu, "nu": nu, "count": n, "welford_mean": welford_mean, "welford_m2": m2})
    isv = b["isv_full"]
    isv[slots.POPART_MU] = mu
    sigma = (nu - mu * mu).clamp_min(SIGMA_MIN**2).sqrt()
    isv[slots.POPART_SIGMA] = torch.where(signal > 0, sigma, isv[slots.POPART_SIGMA].double())
    isv[slots.POPART_SIGMA_WELFORD] = (m2 / n).sqrt()
