"""The encoder: VSN gate -> block 1 -> LN a -> block 2 -> LN b -> learned-query attention pool -> CfC cell.

Pure functions of (parameters, inputs). The blocks are diagonal selective state-space blocks: input-dependent decay
and drive by linear projection, one static output weight a channel; they are not the full Mamba-2 (no convolution,
no gate, no heads), whose names their buffers keep.
Sources: Lim 2021 (1912.09363, variable selection, as a plain softmax gate); Gu & Dao 2023 (2312.00752, selective
scan); Bahdanau 2015 (attention pooling with a learned query); Hasani 2022 (2106.13898, Eq. 10, the CfC cell
without a backbone).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch.nn import functional as F

from kernels.scan import op as scan

LN_EPS = 1e-5
Params = Mapping[str, torch.Tensor]


@dataclass
class Encoded:
    """Activations of one pass over R rows. h: [R, H]. The rest is what the diagnostics look at."""

    h: torch.Tensor
    vsn_mask: torch.Tensor  # [R, K, F]
    vsn_out: torch.Tensor  # [R, K, F]
    l1: torch.Tensor  # [R, K, H]
    l1_decay: torch.Tensor
    l1_state: torch.Tensor
    ln_a: torch.Tensor
    ln_a_rstd: torch.Tensor  # [R, K]
    l2: torch.Tensor
    l2_decay: torch.Tensor
    l2_state: torch.Tensor
    ln_b: torch.Tensor
    ln_b_rstd: torch.Tensor
    attn: torch.Tensor  # [R, K]
    context: torch.Tensor  # [R, H]
    gate: torch.Tensor  # [R, H]


def encode(p: Params, x: torch.Tensor, account: torch.Tensor, carry: torch.Tensor, dt: torch.Tensor) -> Encoded:
    """x [R, K, F] normalised windows, account [R, 12], carry [R, H] (the last h), dt [R] in grid steps."""
    mask, gated = variable_selection(p, x)
    l1, decay1, state1 = ssm_block(p, "mamba2_l1", gated)
    ln_a, rstd_a = layer_norm(l1, p["ln_a_gain"], p["ln_a_bias"])
    l2, decay2, state2 = ssm_block(p, "mamba2_l2", ln_a)
    ln_b, rstd_b = layer_norm(l2, p["ln_b_gain"], p["ln_b_bias"])
    attn, context = attention_pool(p["attn_q"], ln_b)
    h, gate = cfc_cell(p, torch.cat([context, account], dim=1), carry, dt)
    return Encoded(
        h, mask, gated, l1, decay1, state1, ln_a, rstd_a, l2, decay2, state2, ln_b, rstd_b, attn, context, gate
    )


def variable_selection(p: Params, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """(softmax weights, F x weights x input): the factor F keeps the scale of the input at a uniform gate."""
    mask = torch.softmax(F.linear(x, p["vsn_w"], p["vsn_b"]), dim=-1)
    return mask, mask * x * x.shape[-1]


def ssm_block(p: Params, name: str, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """(output, decay, state), each [R, K, H].

    u = W_in x + b_in; a = sigmoid(W_a u + b_a); s_k = a_k s_{k-1} + (1 - a_k)(W_b u_k + b_b);
    output = u + W_out (w_c s) + b_out.
    """
    u = F.linear(x, p[f"{name}_w_in"], p[f"{name}_b_in"])
    decay = torch.sigmoid(F.linear(u, p[f"{name}_w_a"], p[f"{name}_b_a"]))
    drive = (1.0 - decay) * F.linear(u, p[f"{name}_w_b"], p[f"{name}_b_b"])
    state = scan.selective_scan(decay, drive)
    return u + F.linear(state * p[f"{name}_w_c"], p[f"{name}_w_out"], p[f"{name}_b_out"]), decay, state


def layer_norm(x: torch.Tensor, gain: torch.Tensor, bias: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """(normalised over the last axis with biased variance, reciprocal standard deviation)."""
    mean = x.mean(dim=-1, keepdim=True)
    centred = x - mean
    rstd = torch.rsqrt((centred * centred).mean(dim=-1, keepdim=True) + LN_EPS)
    return centred * rstd * gain + bias, rstd[..., 0]


def attention_pool(q: torch.Tensor, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """(weights [R, K], context [R, H]): softmax(q . x_k / sqrt(H)), then the weighted sum."""
    weights = torch.softmax((x @ q) / math.sqrt(q.numel()), dim=1)
    return weights, (weights[:, :, None] * x).sum(dim=1)


def cfc_cell(p: Params, x: torch.Tensor, carry: torch.Tensor, dt: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """(h', gate): h' = tanh(f1)(1 - t) + tanh(f2) t with t = sigmoid(a dt + b), the four from [x, carry]."""
    f1, f2, a, b = (F.linear(x, p["cfc_w_in"], p["cfc_b"]) + F.linear(carry, p["cfc_w_rec"])).chunk(4, dim=1)
    gate = torch.sigmoid(a * dt[:, None] + b)
    return torch.tanh(f1) * (1.0 - gate) + torch.tanh(f2) * gate, gate
