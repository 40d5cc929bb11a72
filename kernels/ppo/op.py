"""PPO on a minibatch of rollout rows: gradients of the loss, and the running means the diagnostics keep of a window."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from kernels import build
from kernels.arguments import FLOATS, check
from kernels.ppo import kernel, reference

# Means over the minibatches applied, but ratio_max (a maximum), kl_first, kl_last and minibatches (their number).
NAMES = (
    "loss_pi", "loss_v", "entropy_bonus", "kl", "ratio_mean", "ratio_max", "clip_frac", "bias", "error_abs", "kl_first",
    "kl_last", "minibatches", "v", "return", "v_v", "v_return",
)  # fmt: skip


@dataclass(frozen=True)
class PPO:
    """clip_eps, value_clip, entropy_coef as in the paper; floor: least sampling probability of a legal action.

    kl_stop: k3 KL above which this and the later minibatches of a window are left out.
    """

    clip_eps: float
    value_clip: float
    entropy_coef: float
    floor: float
    kl_stop: float

    def gradients(
        self,
        logits: torch.Tensor,
        values: torch.Tensor,
        legal: torch.Tensor,
        actions: torch.Tensor,
        log_pi_old: torch.Tensor,
        advantages: torch.Tensor,
        values_old: torch.Tensor,
        returns: torch.Tensor,
        window: torch.Tensor,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """(dL/dlogits [R, A], dL/dvalues [R], sums for `keep`).

        L = mean over rows of surrogate - entropy_coef H + clipped value loss; the advantages are whitened by window,
        float64 [2]: mean and standard deviation over all its rows. logits: [R, A]. legal: bool [R, A]; actions
        int64 [R], legal; the rest [R] as the rollout stored them. H is that of the softmax without the floor.
        """
        n, dtype = values.numel(), logits.dtype
        check("logits", logits, (n, None), *FLOATS)
        check("legal", legal, tuple(logits.shape), torch.bool)
        check("actions", actions, (n,), torch.int64)
        check("window", window, (2,), torch.float64)
        named = {"values": values, "log_pi_old": log_pi_old, "advantages": advantages, "values_old": values_old}
        for name, x in (named | {"returns": returns}).items():
            check(name, x, (n,), dtype)
        batch = (logits, values, legal, actions, log_pi_old, advantages, values_old, returns, window)
        limits = (1.0 - self.clip_eps, 1.0 + self.clip_eps, self.value_clip, self.entropy_coef, self.floor)
        return (kernel if build.on_gpu(logits) else reference).rows(*batch, *limits)

    def keep(
        self,
        sums: torch.Tensor,
        rows: int,
        minibatch: torch.Tensor,
        stats: torch.Tensor,
        gate: torch.Tensor,
        stops: torch.Tensor,
    ) -> None:
        """Fold a minibatch of so many rows into stats float64 [len(NAMES)], in place.

        minibatch: int64 0-dim, its number in the window; 0 starts stats and gate anew. gate: float32 [1], 1 while the
        window's minibatches are applied; 0 from the first whose KL is above kl_stop, which stops int64 [1] counts.
        """
        check("minibatch", minibatch, (), torch.int64)
        check("stats", stats, (len(NAMES),), torch.float64)
        check("gate", gate, (1,), torch.float32)
        check("stops", stops, (1,), torch.int64)
        backend = kernel if build.on_gpu(gate) else reference
        backend.keep(sums, rows, minibatch, self.entropy_coef, self.kl_stop, stats, gate, stops)
