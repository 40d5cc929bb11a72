"""AdamW on flat buffers: norm, clip, step and the statistics of all that in three launches, nothing read back."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from kernels import build
from kernels.adamw import kernel, reference
from kernels.arguments import FLOATS, check

WHOLE = ("grad_norm_pre_clip", "update_norm", "adam_snr", "grad_abs_max", "zero_grad_frac", "stepped")


class AdamW:
    """Loshchilov & Hutter 2019 (1711.05101, Algorithm 2), after clipping by the norm of the whole gradient.

    segments: name -> elements of the flat buffers, end to end from 0 on. rates: [P] learning rate of each element.
    """

    def __init__(
        self,
        segments: Mapping[str, slice],
        rates: torch.Tensor,
        *,
        beta1: float,
        beta2: float,
        eps: float,
        weight_decay: float,
        clip: float,
    ) -> None:
        check("rates", rates, (None,), *FLOATS)
        at = 0
        for name, where in segments.items():
            if where.start != at or where.stop <= at:
                raise ValueError(f"segments: {name} is {where.start} to {where.stop}, expected to begin at {at}")
            at = where.stop
        if at != rates.numel():
            raise ValueError(f"segments: they end at {at}, the buffers at {rates.numel()}")
        self.rates, self.segments = rates, dict(segments)
        constants = (beta1, beta2, eps, weight_decay, clip)
        self._constants = torch.tensor(constants, dtype=torch.float64, device=rates.device)
        self._tables = kernel.Tables(list(segments.values()), rates.device) if build.on_gpu(rates) else None
        kinds = ("grad_norm", "update_ratio")
        self.names = (*(f"{name}.{kind}" for kind in kinds for name in segments), *WHOLE)

    def step(
        self,
        weights: torch.Tensor,
        grads: torch.Tensor,
        m: torch.Tensor,
        v: torch.Tensor,
        t: torch.Tensor,
        gate: torch.Tensor,
        stats: torch.Tensor,
    ) -> None:
        """Update weights, m, v [P] and t int64 [1] in place where gate [1], 0 or 1, is 1; else nothing moves.

        A gradient whose norm is not finite moves nothing either, and shows in the statistics.
        The decay comes before the step and is not clipped. stats: float64 [len(names)], written where gate is 1:
        norms of the gradient before clipping, |change| / |weights before|, and over all elements the norm of the
        gradient, that of the change, mean |m_hat| / (sqrt v_hat + eps), largest |gradient|, the fraction of
        gradients below the least normal float32, and 1 where the weights moved, else 0.
        """
        shape = tuple(self.rates.shape)
        for name, x in (("weights", weights), ("grads", grads), ("m", m), ("v", v)):
            check(name, x, shape, self.rates.dtype)
        check("t", t, (1,), torch.int64)
        check("gate", gate, (1,), self.rates.dtype)
        check("stats", stats, (len(self.names),), torch.float64)
        state = (weights, grads, m, v, t, self.rates, gate, self._constants)
        if self._tables is None:
            reference.step(*state, list(self.segments.values()), stats)
        else:
            kernel.step(*state, self._tables, stats)
