"""The gated linear recurrence and its reverse, one step of K at a time.

The layout stays [R, K, H], as the projections before and after it have it: writing steps into a preallocated
[R, K, H] output was as fast on the CPU as a [K, R, H] output and faster than transposing copies, and lets a
thread of the device kernel own one (row, channel) while neighbours read neighbouring channels.
"""

from __future__ import annotations

import torch


def scan(pre: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """(decay, state, y), each [R, K, H], from pre [R, K, 2H] and w [H], with a state of 0 before the first step."""
    p, b = pre.chunk(2, dim=-1)
    decay = torch.sigmoid(p)
    drive = (1.0 - decay) * b
    state = torch.empty_like(drive)
    state[:, 0] = drive[:, 0]
    for k in range(1, drive.shape[1]):
        torch.addcmul(drive[:, k], decay[:, k], state[:, k - 1], out=state[:, k])
    return decay, state, state * w


def scan_backward(
    decay: torch.Tensor, state: torch.Tensor, w: torch.Tensor, dy: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """(dpre [R, K, 2H], its sum over rows and steps [2H], dw [H]) of `scan` from dL/dy.

    g_k = w dy_k + a_{k+1} g_{k+1}; db = (1 - a) g; dp = a (1 - a) (s_{k-1} - b_k) g, which is a (s_{k-1} - s_k) g.
    """
    h = w.shape[0]
    dpre = decay.new_empty(*decay.shape[:2], 2 * h)
    dp, g = dpre[..., :h], dpre[..., h:]
    torch.mul(dy, w, out=g)
    for k in range(dy.shape[1] - 2, -1, -1):
        g[:, k].addcmul_(decay[:, k + 1], g[:, k + 1])
    torch.neg(state, out=dp)
    dp[:, 1:] += state[:, :-1]
    dp.mul_(decay).mul_(g)
    g.mul_(1.0 - decay)
    return dpre, dpre.sum(dim=(0, 1)), (dy * state).sum(dim=(0, 1))
