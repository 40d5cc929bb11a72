"""A rollout window: the values its rows arrive at, and what it looks like when it is finished, a launch each."""

from __future__ import annotations

import torch

from kernels import build
from kernels.arguments import check
from kernels.window import kernel, reference

# The first two whiten the advantages of its minibatches.
NAMES = (
    "adv_mean", "adv_std", "adv_abs_mean", "returns_mean", "bootstrap_v_mean", "terminated_frac", "truncated_frac",
    "explained_variance", "adv_pos_frac", "adv_trade_minus_hold",
)  # fmt: skip


def moments(
    advantages: torch.Tensor,
    returns: torch.Tensor,
    values: torch.Tensor,
    next_values: torch.Tensor,
    terminated: torch.Tensor,
    truncated: torch.Tensor,
    entries: torch.Tensor,
    out: torch.Tensor,
) -> None:
    """Write float64 [len(NAMES)]: moments of float32 [T, B] columns, the flags bool, entries int8.

    Standard deviations are of the rows there are (no Bessel). bootstrap_v_mean: of the last row's next values, 0
    where terminated. explained_variance: 1 - Var(return - value) / Var(return), 0 where returns are all one.
    adv_trade_minus_hold: mean advantage where entries is 1 less that where it is -1, 0 unless there are both.
    """
    check("advantages", advantages, (None, None), torch.float32)
    shape = tuple(advantages.shape)
    for name, x in (("returns", returns), ("values", values), ("next_values", next_values)):
        check(name, x, shape, torch.float32)
    for name, x in (("terminated", terminated), ("truncated", truncated)):
        check(name, x, shape, torch.bool)
    check("entries", entries, shape, torch.int8)
    check("out", out, (len(NAMES),), torch.float64)
    backend = kernel if build.on_gpu(advantages) else reference
    backend.moments(advantages, returns, values, next_values, terminated, truncated, entries, out)


def arrive(
    v: torch.Tensor, t: torch.Tensor, terminated: torch.Tensor, truncated: torch.Tensor, next_values: torch.Tensor
) -> None:
    """Write v [B], the value of row t, to row t - 1 of next_values [T, B], in place, where its episode went on.

    t: int64 [1] below T; nothing is written where it is 0. terminated, truncated: bool [T, B].
    """
    shape = tuple(next_values.shape)
    check("next_values", next_values, (None, None), torch.float32)
    check("v", v, shape[1:], torch.float32)
    check("t", t, (1,), torch.int64)
    for name, x in (("terminated", terminated), ("truncated", truncated)):
        check(name, x, shape, torch.bool)
    (kernel if build.on_gpu(v) else reference).arrive(v, t, terminated, truncated, next_values)
