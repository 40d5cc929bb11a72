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
from kernels.reward import op as kernel

SIGMA_MIN = 1e-6  # floor of ISV 455
# Exact in float64 where the float32 slots would round; the slots are their copies.
STATE = Stats("popart_state", kernel.STATE, "slots")


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
    isv = b["isv_full"]
    numbers = (slots.REWARD_SCALE, slots.POPART_BETA, slots.POPART_MU, slots.POPART_SIGMA, slots.POPART_SIGMA_WELFORD)
    into = kernel.Rewards(b["reward_raw"], b["reward_scaled"], b["reward"])
    places = kernel.Slots(*(isv[n] for n in numbers))
    kernel.whiten(core_cents, fee_cents, point_lot_cents, learn, SIGMA_MIN, places, b[STATE.buffer], into)
