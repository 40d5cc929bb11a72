"""Layer normalisation of a residual sum over its last axis (Ba 2016, 1607.06450), and its backward. No autograd."""

from __future__ import annotations

import torch

from kernels import build
from kernels.arguments import FLOATS, check, check_wide
from kernels.layernorm import kernel, reference


def normalise(
    x: torch.Tensor, z: torch.Tensor, shift: torch.Tensor, gain: torch.Tensor, bias: torch.Tensor, eps: float
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """(out, t = x + z + shift, each [..., H]; mean, reciprocal standard deviation of t, each [...]).

    x: [..., W], of which the first H columns count. z: [..., H]. shift, gain, bias: [H].
    out = (t - mean) / sqrt(variance + eps) gain + bias with the biased variance.
    """
    check("gain", gain, (None,), *FLOATS)
    for name, a in (("shift", shift), ("bias", bias)):
        check(name, a, tuple(gain.shape), gain.dtype)
    check("z", z, (*x.shape[:-1], gain.shape[0]), gain.dtype)
    check("x", x, (*x.shape[:-1], None), gain.dtype)
    check_wide("x", x, gain.shape[0])
    return (kernel if build.on_gpu(x) else reference).normalise(x, z, shift, gain, bias, eps)


def normalise_backward(
    total: torch.Tensor,
    mean: torch.Tensor,
    rstd: torch.Tensor,
    gain: torch.Tensor,
    dy: torch.Tensor,
    into: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """(dL/dgain, dL/dbias, the sum of dL/dt over the rows, each [H]) from dL/dout dy [..., H].

    total, mean, rstd: as `normalise` returned them. dL/dt, which is that of x and of z, is written into the first H
    columns of `into` [..., W]; the others are left alone.
    """
    check("total", total, (*total.shape[:-1], gain.shape[0]), *FLOATS)
    check("dy", dy, tuple(total.shape), total.dtype)
    for name, a in (("mean", mean), ("rstd", rstd)):
        check(name, a, tuple(total.shape[:-1]), total.dtype)
    check("into", into, (*total.shape[:-1], None), total.dtype)
    check_wide("into", into, gain.shape[0])
    return (kernel if build.on_gpu(total) else reference).normalise_backward(total, mean, rstd, gain, dy, into)
