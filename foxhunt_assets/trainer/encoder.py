"""The encoder: VSN gate -> block 1 -> LN a -> block 2 -> LN b -> learned-query attention pool -> CfC cell.

Pure functions of (weights, inputs), with the gradient written out: a part is its matrix products and the kernel behind
them, so that no elementwise step is a launch of its own. The blocks are diagonal selective state-space blocks:
input-dependent decay and drive by linear projection, one static output weight a channel; they are not the full
Mamba-2 (no convolution, no gate, no heads), whose names their buffers keep.
Sources: Lim 2021 (1912.09363, variable selection, as a plain softmax gate); Gu & Dao 2023 (2312.00752, selective
scan); Bahdanau 2015 (attention pooling with a learned query); Hasani 2022 (2106.13898, Eq. 10, the CfC cell
without a backbone).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch.nn import functional as F

from kernels.attention import op as attention
from kernels.cfc import op as cfc
from kernels.compose.op import Block, Composed, compose, compose_backward
from kernels.layernorm import op as layernorm
from kernels.scan import op as scan
from kernels.vsn import op as vsn

LN_EPS = 1e-5
BLOCKS = {"mamba2_l1": "ln_a", "mamba2_l2": "ln_b"}  # each with the layer norm behind it
Params = Mapping[str, torch.Tensor]


@dataclass
class Weights:
    """The parameters, and the blocks' as rows are multiplied by them. Read anew whenever the parameters changed."""

    p: Params
    blocks: dict[str, Composed]


@dataclass
class Encoded:
    """Activations of one pass over R rows. h: [R, H]. The rest is what diagnostics and the gradient look at."""

    h: torch.Tensor
    vsn_mask: torch.Tensor  # [R, K, F]
    vsn_out: torch.Tensor  # [R, K, F]
    l1: torch.Tensor  # [R, K, H]
    l1_decay: torch.Tensor
    l1_state: torch.Tensor
    ln_a: torch.Tensor
    ln_a_mean: torch.Tensor  # [R, K]
    ln_a_rstd: torch.Tensor
    l2: torch.Tensor  # [R, K, H]
    l2_decay: torch.Tensor
    l2_state: torch.Tensor
    ln_b: torch.Tensor
    ln_b_mean: torch.Tensor  # [R, K]
    ln_b_rstd: torch.Tensor
    attn: torch.Tensor  # [R, K]
    joined: torch.Tensor  # [R, H + 12], context and account
    from_joined: torch.Tensor  # [R, 4H]
    from_carry: torch.Tensor
    gate: torch.Tensor  # [R, H]

    @property
    def context(self) -> torch.Tensor:
        """What attention made of the window, [R, H]."""
        return self.joined[:, : self.h.shape[1]]


def weights(p: Params) -> Weights:
    """The encoder's weights from its parameters, which lie as `params.Layout` has them."""
    return Weights(p, {name: compose(_block(p, name)) for name in BLOCKS})


def encode(w: Weights, x: torch.Tensor, account: torch.Tensor, carry: torch.Tensor, dt: torch.Tensor) -> Encoded:
    """x [R, K, F] normalised windows, account [R, 12], carry [R, H] (the last h), dt [R] in grid steps."""
    p = w.p
    mask, gated = vsn.select(F.linear(x, p["vsn_w"], p["vsn_b"]), x)
    first = ssm_block(w, "mamba2_l1", gated)
    second = ssm_block(w, "mamba2_l2", first.out)
    attn, joined = attention.pool(p["attn_q"], second.out, account)
    from_joined, from_carry = F.linear(joined, p["cfc_w_in"], p["cfc_b"]), F.linear(carry, p["cfc_w_rec"])
    h, gate = cfc.cell(from_joined, from_carry, dt)
    return Encoded(h, mask, gated, *first, *second, attn, joined, from_joined, from_carry, gate)


def backward(
    w: Weights, e: Encoded, x: torch.Tensor, carry: torch.Tensor, dt: torch.Tensor, d_h: torch.Tensor, grads: Params
) -> torch.Tensor:
    """Gradient [R, H] of the carry from dL/dh [R, H]; those of the parameters are written into `grads`.

    e: what `encode` made of x, carry and dt. x and the account have no gradient.
    """
    p = w.p
    d, d_cfc_b = cfc.cell_backward(e.from_joined, e.from_carry, dt, e.gate, d_h)
    torch.mm(d.t(), e.joined, out=grads["cfc_w_in"])
    torch.mm(d.t(), carry, out=grads["cfc_w_rec"])
    d_q, d_ln_b = attention.pool_backward(p["attn_q"], e.ln_b, e.attn, d @ p["cfc_w_in"])
    second = BlockPass(e.l2, e.l2_decay, e.l2_state, e.ln_b, e.ln_b_mean, e.ln_b_rstd)
    first = BlockPass(e.l1, e.l1_decay, e.l1_state, e.ln_a, e.ln_a_mean, e.ln_a_rstd)
    d_ln_a, *norm_b = _block_backward(w, "mamba2_l2", e.ln_a, second, d_ln_b, grads)
    d_gated, *norm_a = _block_backward(w, "mamba2_l1", e.vsn_out, first, d_ln_a, grads)
    d_logits, d_vsn_b = vsn.select_backward(e.vsn_mask, x, d_gated)
    torch.mm(d_logits.flatten(0, 1).t(), x.flatten(0, 1), out=grads["vsn_w"])
    norms = [f"{ln}_{part}" for ln in BLOCKS.values() for part in ("gain", "bias")]
    places = [grads[name] for name in ("vsn_b", *norms, "attn_q", "cfc_b")]
    torch._foreach_copy_(places, [d_vsn_b, *norm_a, *norm_b, d_q, d_cfc_b])  # one launch for all
    return d @ p["cfc_w_rec"]


class BlockPass(NamedTuple):
    """What a block makes of its input: [R, K, H], the last two [R, K]."""

    total: torch.Tensor  # l, before the norm
    decay: torch.Tensor
    state: torch.Tensor
    out: torch.Tensor
    mean: torch.Tensor  # of l, over the channels
    rstd: torch.Tensor  # 1 / standard deviation


def ssm_block(w: Weights, name: str, x: torch.Tensor) -> BlockPass:
    """A block and the layer norm behind it, of x [R, K, I].

    u = W_in x + b_in; a = sigmoid(W_a u + b_a); s_k = a_k s_{k-1} + (1 - a_k)(W_b u_k + b_b);
    l = u + W_out (w_c s) + b_out. u and what a and b are made of are one product of x (kernels.compose).
    """
    p, of, norm = w.p, w.blocks[name], BLOCKS[name]
    joint = F.linear(x, of.joint)
    decay, state = scan.scan(joint, of.gates)
    made = F.linear(state, of.out)
    out, total, mean, rstd = layernorm.normalise(joint, made, of.shift, p[f"{norm}_gain"], p[f"{norm}_bias"], LN_EPS)
    return BlockPass(total, decay, state, out, mean, rstd)


def _block_backward(
    w: Weights, name: str, x: torch.Tensor, e: BlockPass, d_out: torch.Tensor, grads: Params
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """(dL/dx, dL/dgain, dL/dbias) of a block and its norm; the gradients of the block's parameters go into `grads`.

    The gradient of the joint product, [R, K, 3H], is never copied together: norm and scan write their columns of it.
    """
    of, h = w.blocks[name], e.total.shape[2]
    d_joint = e.total.new_empty(*e.total.shape[:2], 3 * h)
    gain = w.p[f"{BLOCKS[name]}_gain"]
    d_gain, d_bias, d_shift = layernorm.normalise_backward(e.total, e.mean, e.rstd, gain, d_out, d_joint)
    rows = d_joint.flatten(0, 1)
    d_total = rows[:, :h]
    d_gates = scan.scan_backward(e.decay, e.state, (d_total @ of.out).view_as(e.state), d_joint)
    d = Composed(rows.t() @ x.flatten(0, 1), d_gates, d_total.t() @ e.state.flatten(0, 1), d_shift)
    compose_backward(_block(w.p, name), d, _block(grads, name))
    return (rows @ of.joint).view(x.shape), d_gain, d_bias


def _block(p: Params, name: str) -> Block:
    """A block's parameters or their gradients."""
    w_in, b_in, w_a, w_b, b_a, b_b, w_c, w_out, b_out = (
        p[f"{name}_{part}"] for part in ("w_in", "b_in", "w_a", "w_b", "b_a", "b_b", "w_c", "w_out", "b_out")
    )
    return Block(w_in, b_in, _stacked(w_a, w_b), _stacked(b_a, b_b), w_c, w_out, b_out)


def _stacked(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    """Both along the first axis, without a copy: the second lies right behind the first (params.py)."""
    behind = second.storage_offset() == first.storage_offset() + first.numel()
    same = first.untyped_storage().data_ptr() == second.untyped_storage().data_ptr()
    if not (same and behind and first.is_contiguous() and second.is_contiguous()):
        raise ValueError("the parameters of a and b do not lie together: take views of one flat buffer")
    return first.as_strided((first.shape[0] + second.shape[0], *first.shape[1:]), first.stride())
