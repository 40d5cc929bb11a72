"""The heads on h_t: C51 Q, policy, value and forward-return distribution. Pure functions of (parameters, h)."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch.nn import functional as F

from kernels.heads import op as kernel
from kernels.heads.op import Outputs, Weights

Params = Mapping[str, torch.Tensor]


def q_logits(p: Params, h: torch.Tensor, n_actions: int) -> torch.Tensor:
    """C51 logits [R, A, N] (Bellemare 2017, 1707.06887)."""
    return F.linear(h, p["q_out_w"], p["q_out_b"]).view(h.shape[0], n_actions, -1)


def pi_logits(p: Params, h: torch.Tensor) -> torch.Tensor:
    """Policy logits [R, A], before the legal mask."""
    return F.linear(h, p["pi_out_w"], p["pi_out_b"])


def value(p: Params, h: torch.Tensor) -> torch.Tensor:
    """V [R], in whitened reward units."""
    return F.linear(h, p["v_out_w"], p["v_out_b"])[:, 0]


def frd_hidden(p: Params, h: torch.Tensor) -> torch.Tensor:
    """The hidden ReLU layer [R, frd_hidden] of the forward-return head."""
    return torch.relu(F.linear(h, p["frd_w1"], p["frd_b1"]))


def frd_logits(p: Params, hidden: torch.Tensor, n_horizons: int) -> torch.Tensor:
    """Forward-return-distribution logits [R, horizons, atoms]."""
    return F.linear(hidden, p["frd_w2"], p["frd_b2"]).view(hidden.shape[0], n_horizons, -1)


def acting(p: Params, h: torch.Tensor, support: torch.Tensor, frd_atoms: torch.Tensor, into: Outputs) -> None:
    """All heads of an acting batch h [R, H] into buffers, without gradients; see kernels.heads."""
    parts = ("q_out_w", "q_out_b", "pi_out_w", "pi_out_b", "v_out_w", "v_out_b", "frd_w1", "frd_b1", "frd_w2", "frd_b2")
    kernel.acting(h, Weights(*(p[name] for name in parts)), support, frd_atoms, into)
