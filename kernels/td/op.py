"""Categorical double Q-learning on prioritised transitions, in two launches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch

from kernels import build
from kernels.arguments import FLOATS, check, check_scalar
from kernels.td import kernel, reference

# Of one minibatch: means, and what the name says. draw_mean is of the uniforms, which must look uniform.
NAMES = (
    "loss_q", "td_abs_mean", "td_abs_max", "td_signed_mean", "target_mean", "target_std", "double_q_gap", "sat_hi",
    "sat_lo", "overshoot", "target_abs_max", "mass_err_max", "ess_frac", "priority_mean", "weight_mean", "weight_min",
    "age_mean", "age_max", "unique_frac", "closed_frac", "terminated_frac", "positive_frac", "draw_mean",
)  # fmt: skip


class Transitions(NamedTuple):
    """Columns of S sampled transitions. The Q target ends where the trade closed or the account terminated."""

    action: torch.Tensor  # int64 [S]
    legal_next: torch.Tensor  # bool [S, A], at least one a row
    reward: torch.Tensor  # [S], raw
    closed: torch.Tensor  # bool [S]
    terminated: torch.Tensor  # bool [S]
    step: torch.Tensor  # int64 [S], when they happened


class Drawn(NamedTuple):
    """How they were drawn: slots in ascending order, as strata give them; weights' largest is 1."""

    indices: torch.Tensor  # int64 [S]
    weights: torch.Tensor  # [S]
    leaves: torch.Tensor  # [S]
    uniforms: torch.Tensor  # [S]


class Scale(NamedTuple):
    """0-dim: the span of the atoms, what a raw reward is multiplied by, and the step it is now (int64)."""

    v_min: torch.Tensor
    v_max: torch.Tensor
    reward: torch.Tensor
    now: torch.Tensor


@dataclass(frozen=True)
class DoubleQ:
    """gamma: discount a step. New priorities are (loss + eps)^alpha, eps where that is no number."""

    gamma: float
    eps: float
    alpha: float

    def gradients(
        self,
        logits: torch.Tensor,
        online_next: torch.Tensor,
        target_next: torch.Tensor,
        t: Transitions,
        d: Drawn,
        s: Scale,
        stats: torch.Tensor,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """(dL/dlogits [S, A, N], new priorities [S]); stats float64 [len(NAMES)] is written.

        L = mean over rows of weight x cross entropy of the taken action's distribution against the projected target,
        which is the target network's at s_{t+1} for the legal action that the online network values most.
        logits, online_next, target_next: [S, A, N].
        """
        shape = tuple(logits.shape)
        check("logits", logits, (t.action.numel(), None, None), *FLOATS)
        check("online_next", online_next, shape, logits.dtype)
        check("target_next", target_next, shape, logits.dtype)
        check("legal_next", t.legal_next, shape[:2], torch.bool)
        for name, x in (("action", t.action), ("step", t.step), ("indices", d.indices)):
            check(name, x, shape[:1], torch.int64)
        for name, x in (("closed", t.closed), ("terminated", t.terminated)):
            check(name, x, shape[:1], torch.bool)
        for name, x in (("reward", t.reward), ("weights", d.weights), ("leaves", d.leaves), ("uniforms", d.uniforms)):
            check(name, x, shape[:1], logits.dtype)
        for name, x in s._asdict().items():
            check_scalar(name, x)
        check("stats", stats, (len(NAMES),), torch.float64)
        backend = kernel if build.on_gpu(logits) else reference
        ends, span = (t.closed, t.terminated), (s.v_min, s.v_max, s.reward)
        batch = (logits, online_next, target_next, t.action, t.legal_next, t.reward, *ends, d.weights, *span)
        grad, priorities, parts = backend.rows(*batch, self.gamma, self.eps, self.alpha)
        sampled = (d.weights, d.leaves, d.uniforms, d.indices, t.step, s.now, *ends)
        backend.keep(parts, *sampled, shape[2], stats)
        return grad, priorities
