"""Layer normalisation of a sum over its last axis (Ba 2016, 1607.06450), in plain torch."""

from __future__ import annotations

import torch


def normalise(
    x: torch.Tensor, z: torch.Tensor, shift: torch.Tensor, gain: torch.Tensor, bias: torch.Tensor, eps: float
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """(out, t = x + z + shift, each [..., H]; mean, reciprocal standard deviation of t, each [...])."""
    total = x[..., : gain.shape[0]] + z + shift
    mean = total.mean(dim=-1, keepdim=True)
    centred = total - mean
    rstd = torch.rsqrt((centred * centred).mean(dim=-1, keepdim=True) + eps)
    return centred * rstd * gain + bias, total, mean[..., 0], rstd[..., 0]


def normalise_backward(
    total: torch.Tensor,
    mean: torch.Tensor,
    rstd: torch.Tensor,
    gain: torch.Tensor,
    dy: torch.Tensor,
    into: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """(dgain, dbias, sum of dt over the rows, each [H]) from dL/dout; dt goes into the first H columns of `into`.

    With v = (t - mean) rstd and e = gain dy: dt = rstd (e - mean(e) - v mean(e v)).
    """
    n = gain.shape[0]
    v = (total - mean[..., None]).mul_(rstd[..., None])
    vd = v * dy
    first, second = ((x @ gain)[..., None] / n for x in (dy, vd))
    dt = (dy * gain).sub_(first).addcmul_(v, second, value=-1.0).mul_(rstd[..., None])
    dgain, dbias, shift = (x.reshape(-1, n).sum(dim=0) for x in (vd, dy, dt))
    into[..., :n] = dt
    return dgain, dbias, shift
