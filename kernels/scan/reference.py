"""The gated linear recurrence and its reverse, one step of K at a time.

The layout stays [R, K, H], as the projections before and after it have it: writing steps into a preallocated
[R, K, H] output was as fast on the CPU as a [K, R, H] output and faster than transposing copies, and lets a
thread of the device kernel own one (row, channel) while neighbours read neighbouring channels.
"""

from __future__ import annotations

import torch


def scan(pre: torch.Tensor, bias: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """(decay, state), each [R, K, H], from the last 2H columns of pre [R, K, W] and bias [2H]; no state before."""
    p, b = (pre[..., -bias.shape[0] :] + bias).chunk(2, dim=-1)
    decay = torch.sigmoid(p)
    drive = (1.0 - decay) * b
    state = torch.empty_like(drive)
    state[:, 0] = drive[:, 0]
    for k in range(1, drive.shape[1]):
        torch.addcmul(drive[:, k], decay[:, k], state[:, k - 1], out=state[:, k])
    return decay, state


def scan_backward(decay: torch.Tensor, state: torch.Tensor, ds: torch.Tensor, into: torch.Tensor) -> torch.Tensor:
    """dpre of `scan` from dL/dstate, written into the last 2H columns of `into`; returns its sums [2H].

    g_k = ds_k + a_{k+1} g_{k+1}; db = (1 - a) g; dp = a (1 - a) (s_{k-1} - b_k) g, which is a (s_{k-1} - s_k) g.
    """
    h = decay.shape[-1]
    dpre = into[..., -2 * h :]
    dp, g = dpre[..., :h], dpre[..., h:]
    g.copy_(ds)
    for k in range(ds.shape[1] - 2, -1, -1):
        g[:, k].addcmul_(decay[:, k + 1], g[:, k + 1])
    torch.neg(state, out=dp)
    dp[:, 1:] += state[:, :-1]
    dp.mul_(decay).mul_(g)
    g.mul_(1.0 - decay)
    return dpre.sum(dim=(0, 1))
