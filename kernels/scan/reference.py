"""The linear recurrence h_k = a_k h_{k-1} + b_k and its reverse, one step of K at a time.

The layout stays [R, K, H], as the projections before and after it have it: writing steps into a preallocated
[R, K, H] output was as fast on the CPU as a [K, R, H] output and faster than transposing copies, and lets a
thread of the device kernel own one (row, channel) while neighbours read neighbouring channels.
"""

from __future__ import annotations

import torch


def scan(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """h [R, K, H] with h_{-1} = 0."""
    h = torch.empty_like(b, memory_format=torch.contiguous_format)
    h[:, 0] = b[:, 0]
    for k in range(1, b.shape[1]):
        torch.addcmul(b[:, k], a[:, k], h[:, k - 1], out=h[:, k])
    return h


def scan_backward(a: torch.Tensor, h: torch.Tensor, dh: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """(da, db) of `scan` from its output h and dL/dh: g_k = dh_k + a_{k+1} g_{k+1}; db = g, da_k = g_k h_{k-1}."""
    g = torch.empty_like(h)
    last = h.shape[1] - 1
    g[:, last] = dh[:, last]
    for k in range(last - 1, -1, -1):
        torch.addcmul(dh[:, k], a[:, k + 1], g[:, k + 1], out=g[:, k])
    da = torch.empty_like(h)
    da[:, 0] = 0
    torch.mul(g[:, 1:], h[:, :-1], out=da[:, 1:])
    return da, g
