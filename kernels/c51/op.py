"""Categorical double Q-learning on prioritised transitions, in two launches."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from kernels import build
from kernels.arguments import FLOATS, check, check_scalar
from kernels.c51 import kernel, reference
from kernels.c51.reference import Drawn, Scale, Transitions

__all__ = ["NAMES", "DoubleQ", "Drawn", "Scale", "Transitions"]

# Of one minibatch: means, and what the name says. draw_mean is of the uniforms, which must look uniform.
NAMES = (
    "loss_q", "td_abs_mean", "td_abs_max", "td_signed_mean", "target_mean", "target_std", "double_q_gap", "sat_hi",
    "sat_lo", "overshoot", "target_abs_max", "mass_err_max", "ess_frac", "priority_mean", "weight_mean", "weight_min",
    "age_mean", "age_max", "unique_frac", "closed_frac", "terminated_frac", "positive_frac", "draw_mean",
)  # fmt: skip


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
        rule = (self.gamma, self.eps, self.alpha)
        grad, priorities, parts = backend.rows(logits, online_next, target_next, t, d.weights, s, *rule)
        backend.keep(parts, t, d, s.now, shape[2], stats)
        return grad, priorities
