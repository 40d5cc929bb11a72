"""The heads of an acting batch, in plain torch."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch.nn import functional as F


class Weights(NamedTuple):
    """Matrices [outputs, inputs] and their biases: C51 Q, policy, value, and the two layers of the forward return."""

    q_w: torch.Tensor
    q_b: torch.Tensor
    pi_w: torch.Tensor
    pi_b: torch.Tensor
    v_w: torch.Tensor
    v_b: torch.Tensor
    frd_w1: torch.Tensor
    frd_b1: torch.Tensor
    frd_w2: torch.Tensor
    frd_b2: torch.Tensor


class Outputs(NamedTuple):
    """Where the results go. signs: of the mean forward return by horizon, int8 -1, 0, 1."""

    q_logits: torch.Tensor  # [R, A, N]
    q_values: torch.Tensor  # [R, A]
    pi_logits: torch.Tensor  # [R, A]
    v: torch.Tensor  # [R]
    frd_logits: torch.Tensor  # [R, S, M]
    signs: torch.Tensor  # [R, S]


def acting(h: torch.Tensor, w: Weights, support: torch.Tensor, frd_atoms: torch.Tensor, into: Outputs) -> None:
    into.q_logits.copy_(F.linear(h, w.q_w, w.q_b).view_as(into.q_logits))
    into.q_values.copy_((torch.softmax(into.q_logits, dim=-1) * support).sum(dim=-1))
    into.pi_logits.copy_(F.linear(h, w.pi_w, w.pi_b))
    into.v.copy_(F.linear(h, w.v_w, w.v_b)[:, 0])
    hidden = torch.relu(F.linear(h, w.frd_w1, w.frd_b1))
    into.frd_logits.copy_(F.linear(hidden, w.frd_w2, w.frd_b2).view_as(into.frd_logits))
    into.signs.copy_((torch.softmax(into.frd_logits.double(), dim=-1) * frd_atoms).sum(dim=-1).sign())
