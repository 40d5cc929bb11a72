"""The gates of the CfC cell and their gradient, in plain torch."""

from __future__ import annotations

import torch


def cell(x: torch.Tensor, z: torch.Tensor, dt: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """(h, gate), each [R, H]."""
    f1, f2, a, b = (x + z).chunk(4, dim=1)
    gate = torch.sigmoid(a * dt[:, None] + b)
    return torch.tanh(f1) * (1.0 - gate) + torch.tanh(f2) * gate, gate


def cell_backward(
    x: torch.Tensor, z: torch.Tensor, dt: torch.Tensor, gate: torch.Tensor, dh: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """(dL/d(x + z) [R, 4H], its sum over the rows [4H])."""
    t1, t2 = torch.tanh((x + z)[:, : 2 * dh.shape[1]]).chunk(2, dim=1)
    through = dh * (t2 - t1) * gate * (1.0 - gate)
    d = torch.cat([dh * (1.0 - gate) * (1.0 - t1 * t1), dh * gate * (1.0 - t2 * t2), through * dt[:, None], through], 1)
    return d, d.sum(dim=0)
