"""Attention pooling over the K steps of a window by one learned query (Bahdanau 2015, 1409.0473). No autograd here."""

from __future__ import annotations

import torch

from kernels import build
from kernels.arguments import FLOATS, check
from kernels.attention import kernel, reference


def pool(q: torch.Tensor, x: torch.Tensor, beside: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """(weights w [R, K], [context, beside] [R, H + A]): w = softmax(q . x_k / sqrt(H)), context = sum of w_k x_k.

    q: [H]. x: [R, K, H]. beside: [R, A], copied behind the context, so that one product takes both.
    """
    check("q", q, (None,), *FLOATS)
    check("x", x, (None, None, q.shape[0]), q.dtype)
    check("beside", beside, (x.shape[0], None), q.dtype)
    return (kernel if build.on_gpu(x) else reference).pool(q, x, beside)


def pool_backward(
    q: torch.Tensor, x: torch.Tensor, weights: torch.Tensor, d_out: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """(dL/dq [H], dL/dx [R, K, H]) from the weights of `pool` and dL/d[context, beside] [R, H + A]; beside has none."""
    check("x", x, (None, None, q.shape[0]), *FLOATS)
    check("weights", weights, tuple(x.shape[:2]), x.dtype)
    check("d_out", d_out, (x.shape[0], None), x.dtype)
    return (kernel if build.on_gpu(x) else reference).pool_backward(q, x, weights, d_out)
