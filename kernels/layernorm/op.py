"""Layer normalisation of a residual sum over its last axis (Ba 2016, 1607.06450), and its backward. No autograd."""

from __future__ import annotations

import torch

from kernels import build
from kernels.arguments import FLOATS, check
from kernels.layernorm import kernel, reference


def normalise(
    x: torch.Tensor, z: torch.Tensor, gain: torch.Tensor, bias: torch.Tensor, eps: float
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """(out, t = x + z, each [..., H]; mean, reciprocal standard deviation of t, each [...]).

    x, z: [..., H]. gain, bias: [H]. out = (t - mean) / sqrt(variance + eps) gain + bias with the biased variance.
    """
    check("gain", gain, (None,), *FLOATS)
    check("bias", bias, tuple(gain.shape), gain.dtype)
    check("x", x, (*x.shape[:-1], gain.shape[0]), gain.dtype)
    check("z", z, tuple(x.shape), x.dtype)
    return (kernel if build.on_gpu(x) else reference).normalise(x, z, gain, bias, eps)


def normalise_backward(
    total: torch.Tensor, mean: torch.Tensor, rstd: torch.Tensor, gain: torch.Tensor, dy: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """(dL/dt [..., H]; dL/dgain, dL/dbias, the sum of dL/dt over the rows, each [H]) from dL/dout dy [..., H].

    total, mean, rstd: as `normalise` returned them. dL/dt is that of x and of z.
    """
    check("total", total, (*total.shape[:-1], gain.shape[0]), *FLOATS)
    check("dy", dy, tuple(total.shape), total.dtype)
    for name, a in (("mean", mean), ("rstd", rstd)):
        check(name, a, tuple(total.shape[:-1]), total.dtype)
    return (kernel if build.on_gpu(total) else reference).normalise_backward(total, mean, rstd, gain, dy)
