"""The CfC cell after its products: Hasani 2022 (2106.13898), Eq. 10, without a backbone. No autograd here."""

from __future__ import annotations

import torch

from kernels import build
from kernels.arguments import FLOATS, check
from kernels.cfc import kernel, reference


def cell(x: torch.Tensor, z: torch.Tensor, dt: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """(h, gate g), each [R, H]: h = tanh(f1)(1 - g) + tanh(f2) g, g = sigmoid(a dt + b).

    x, z: [R, 4H], the products of input and carry; f1, f2, a, b are the quarters of their sum. dt: [R] in grid steps.
    """
    check("x", x, (None, None), *FLOATS)
    check("z", z, tuple(x.shape), x.dtype)
    check("dt", dt, (x.shape[0],), x.dtype)
    if x.shape[1] % 4:
        raise ValueError(f"x: {x.shape[1]} columns, expected four of each unit")
    return (kernel if build.on_gpu(x) else reference).cell(x, z, dt)


def cell_backward(
    x: torch.Tensor, z: torch.Tensor, dt: torch.Tensor, gate: torch.Tensor, dh: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """(dL/dx [R, 4H], which is dL/dz too, and its sum over the rows [4H]) from the gate of `cell` and dL/dh [R, H].

    dt has no gradient.
    """
    check("gate", gate, (None, None), *FLOATS)
    check("dh", dh, tuple(gate.shape), gate.dtype)
    check("dt", dt, (gate.shape[0],), gate.dtype)
    for name, a in (("x", x), ("z", z)):
        check(name, a, (gate.shape[0], 4 * gate.shape[1]), gate.dtype)
    return (kernel if build.on_gpu(gate) else reference).cell_backward(x, z, dt, gate, dh)
