"""The encoder: VSN gate -> block 1 -> LN a -> block 2 -> LN b -> learned-query attention pool -> CfC cell.

Pure functions of (parameters, inputs). A part is its matrix products, the kernel behind them, and the gradient of
both written out, so that no elementwise step is a launch of its own. The blocks are diagonal selective state-space
blocks: input-dependent decay and drive by linear projection, one static output weight a channel; they are not the
full Mamba-2 (no convolution, no gate, no heads), whose names their buffers keep.
Sources: Lim 2021 (1912.09363, variable selection, as a plain softmax gate); Gu & Dao 2023 (2312.00752, selective
scan); Bahdanau 2015 (attention pooling with a learned query); Hasani 2022 (2106.13898, Eq. 10, the CfC cell
without a backbone).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from kernels.attention import op as attention
from kernels.cfc import op as cfc
from kernels.layernorm import op as layernorm
from kernels.scan import op as scan
from kernels.vsn import op as vsn

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
    ln_a, l1, decay1, state1, rstd_a = ssm_block(p, "mamba2_l1", "ln_a", gated)
    ln_b, l2, decay2, state2, rstd_b = ssm_block(p, "mamba2_l2", "ln_b", ln_a)
    attn, joined = attention_pool(p["attn_q"], ln_b, account)
    h, gate = cfc_cell(p, joined, carry, dt)
    context = joined[:, : h.shape[1]]
    return Encoded(
        h, mask, gated, l1, decay1, state1, ln_a, rstd_a, l2, decay2, state2, ln_b, rstd_b, attn, context, gate
    )


def variable_selection(p: Params, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """(softmax weights, F x weights x input), each [R, K, F]: the second differentiable once, in the parameters."""
    out, mask = _Selection.apply(x.detach(), p["vsn_w"], p["vsn_b"])
    return mask, out


class _Selection(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        mask, out = vsn.select(F.linear(x, w, b), x)
        ctx.save_for_backward(x, mask)
        ctx.mark_non_differentiable(mask)
        ctx.set_materialize_grads(False)
        return out, mask

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_out: torch.Tensor, _: None) -> tuple[None, torch.Tensor, torch.Tensor]:
        x, mask = ctx.saved_tensors
        d_logits, d_b = vsn.select_backward(mask, x, d_out)
        return None, d_logits.flatten(0, 1).t() @ x.flatten(0, 1), d_b


def ssm_block(p: Params, name: str, norm: str, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """(normalised output, output l, decay, state, each [R, K, H]; 1 / standard deviation of l [R, K]).

    u = W_in x + b_in; a = sigmoid(W_a u + b_a); s_k = a_k s_{k-1} + (1 - a_k)(W_b u_k + b_b);
    l = u + W_out (w_c s) + b_out; the layer norm `norm` of l. Differentiable once, through the first alone.
    """
    block = (p[f"{name}_{part}"] for part in ("w_in", "b_in", "w_a", "w_b", "b_a", "b_b", "w_c", "w_out", "b_out"))
    return _SsmBlock.apply(x, *block, p[f"{norm}_gain"], p[f"{norm}_bias"])


class _SsmBlock(torch.autograd.Function):
    """One function, so that the gradient of u is added up inside a product and each bias's inside a kernel."""

    @staticmethod
    def forward(
        ctx: Any, x: torch.Tensor, w_in: torch.Tensor, b_in: torch.Tensor, w_a: torch.Tensor, w_b: torch.Tensor,
        b_a: torch.Tensor, b_b: torch.Tensor, w_c: torch.Tensor, w_out: torch.Tensor, b_out: torch.Tensor,
        gain: torch.Tensor, bias: torch.Tensor,
    ) -> tuple[torch.Tensor, ...]:  # fmt: skip
        w_ab = _stacked(w_a, w_b)
        u = F.linear(x, w_in, b_in)
        decay, state, y = scan.scan(F.linear(u, w_ab, _stacked(b_a, b_b)), w_c)
        out, total, mean, rstd = layernorm.normalise(u, F.linear(y, w_out, b_out), gain, bias, LN_EPS)
        ctx.save_for_backward(x, u, decay, state, y, total, mean, rstd, w_in, w_ab, w_c, w_out, gain)
        ctx.mark_non_differentiable(total, decay, state, rstd)
        ctx.set_materialize_grads(False)
        return out, total, decay, state, rstd

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_out: torch.Tensor, *_: None) -> tuple[torch.Tensor | None, ...]:
        x, u, decay, state, y, total, mean, rstd, w_in, w_ab, w_c, w_out, gain = ctx.saved_tensors
        d_total, d_gain, d_bias, d_b_out = layernorm.normalise_backward(total, mean, rstd, gain, d_out)
        x, u, y, d_total = (a.flatten(0, 1) for a in (x, u, y, d_total))
        d_ab, d_b_ab, d_w_c = scan.scan_backward(decay, state, w_c, (d_total @ w_out).view_as(decay))
        d_ab, d_w_out = d_ab.flatten(0, 1), d_total.t() @ y
        d_b_in = torch.addmv(d_b_out, w_ab.t(), d_b_ab)  # the sum of d_u over the rows, without reading it
        d_u = d_total.addmm_(d_ab, w_ab)
        d_w_a, d_w_b = (d_ab.t() @ u).chunk(2)
        d_x = (d_u @ w_in).view(*decay.shape[:2], -1)
        d_b_a, d_b_b = d_b_ab.chunk(2)
        return d_x, d_u.t() @ x, d_b_in, d_w_a, d_w_b, d_b_a, d_b_b, d_w_c, d_w_out, d_b_out, d_gain, d_bias


def _stacked(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    """Both along the first axis: as they lie where one lies right behind the other (params.py), else copied."""
    behind = second.storage_offset() == first.storage_offset() + first.numel()
    same = first.untyped_storage().data_ptr() == second.untyped_storage().data_ptr()
    if same and behind and first.is_contiguous() and second.is_contiguous():
        return first.as_strided((first.shape[0] + second.shape[0], *first.shape[1:]), first.stride())
    return torch.cat([first, second])


def attention_pool(q: torch.Tensor, x: torch.Tensor, beside: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """(weights [R, K], [context, beside] [R, H + A]): softmax(q . x_k / sqrt(H)), then the weighted sum over k.

    The second is differentiable once, in q and x.
    """
    joined, weights = _Pool.apply(q, x, beside.detach())
    return weights, joined


class _Pool(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: torch.Tensor, x: torch.Tensor, beside: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        weights, joined = attention.pool(q, x, beside)
        ctx.save_for_backward(q, x, weights)
        ctx.mark_non_differentiable(weights)
        ctx.set_materialize_grads(False)
        return joined, weights

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_joined: torch.Tensor, _: None) -> tuple[torch.Tensor, torch.Tensor, None]:
        q, x, weights = ctx.saved_tensors
        return *attention.pool_backward(q, x, weights, d_joined), None


def cfc_cell(p: Params, x: torch.Tensor, carry: torch.Tensor, dt: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """(h', gate), each [R, H]: h' = tanh(f1)(1 - t) + tanh(f2) t with t = sigmoid(a dt + b), the four from [x, carry].

    h' is differentiable once, in the parameters, x and carry.
    """
    return _Cell.apply(x, carry, dt.detach(), p["cfc_w_in"], p["cfc_w_rec"], p["cfc_b"])


class _Cell(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: torch.Tensor, carry: torch.Tensor, dt: torch.Tensor, w_in: torch.Tensor, w_rec: torch.Tensor,
        b: torch.Tensor,
    ) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
        from_x, from_carry = F.linear(x, w_in, b), F.linear(carry, w_rec)
        h, gate = cfc.cell(from_x, from_carry, dt)
        ctx.save_for_backward(x, carry, dt, w_in, w_rec, from_x, from_carry, gate)
        ctx.mark_non_differentiable(gate)
        ctx.set_materialize_grads(False)
        return h, gate

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_h: torch.Tensor, _: None) -> tuple[torch.Tensor | None, ...]:
        x, carry, dt, w_in, w_rec, from_x, from_carry, gate = ctx.saved_tensors
        d, d_b = cfc.cell_backward(from_x, from_carry, dt, gate, d_h)
        d_carry = d @ w_rec if ctx.needs_input_grad[1] else None
        return d @ w_in, d_carry, None, d.t() @ x, d.t() @ carry, d_b
