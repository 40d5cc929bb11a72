"""The layers of the encoder and the heads of an acting batch."""

from __future__ import annotations

from typing import Any

import torch

from benchmarks.kernel_rows.row import Row, written
from kernels.attention import kernel as attention_kernel
from kernels.attention import reference as attention
from kernels.cfc import kernel as cfc_kernel
from kernels.cfc import reference as cfc
from kernels.compose import kernel as compose_kernel
from kernels.compose import reference as compose
from kernels.compose.op import Block, Composed
from kernels.heads import kernel as heads_kernel
from kernels.heads import reference as heads
from kernels.layernorm import kernel as layernorm_kernel
from kernels.layernorm import reference as layernorm
from kernels.scan import kernel as scan_kernel
from kernels.scan import reference as scan
from kernels.vsn import kernel as vsn_kernel
from kernels.vsn import reference as vsn

FEW = 2e-5  # float32 sums of a few thousand terms, in two orders


def scan_rows(r: int, steps: int = 32, h: int = 128) -> list[Row]:
    """Behind one product of width 3 H, whose last two thirds are the scan's."""
    pre, bias, ds = torch.randn(r, steps, 3 * h), torch.randn(2 * h), torch.randn(r, steps, h)
    a, state = scan.scan(pre, bias)
    words, shape = 4 * ds.numel(), f"{r} x {steps} x {h}"
    return [
        Row(f"scan {shape}", scan_kernel.scan, scan.scan, (pre, bias), 4 * words, 1e-6, peer=plain_scan),
        Row(f"scan backward {shape}", written(scan_kernel.scan_backward, 3), written(scan.scan_backward, 3),
            (a, state, ds, torch.zeros_like(pre)), 5 * words, 1e-5, peer=plain_scan_backward),
    ]  # fmt: skip


def plain_scan(pre: torch.Tensor, bias: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """The recurrence without preallocated outputs, which torch.compile refuses."""
    p, b = (pre[..., -bias.shape[0] :] + bias).chunk(2, dim=-1)
    a = torch.sigmoid(p)
    drive = (1.0 - a) * b
    states = [drive[:, 0]]
    for k in range(1, b.shape[1]):
        states.append(drive[:, k] + a[:, k] * states[-1])
    return a, torch.stack(states, 1)


def plain_scan_backward(
    a: torch.Tensor, s: torch.Tensor, ds: torch.Tensor, into: torch.Tensor
) -> tuple[torch.Tensor, ...]:
    g = [ds[:, -1]]
    for k in range(s.shape[1] - 2, -1, -1):
        g.append(ds[:, k] + a[:, k + 1] * g[-1])
    along = torch.stack(g[::-1], 1)
    before = torch.cat([torch.zeros_like(s[:, :1]), s[:, :-1]], 1)
    d_pre = torch.cat([a * (before - s) * along, (1.0 - a) * along], 2)
    return d_pre.sum((0, 1)), torch.cat([into[..., : a.shape[-1]], d_pre], 2)


def layer_rows(r: int, steps: int = 32, features: int = 56, h: int = 128) -> list[Row]:
    """What lies between the encoder's products, at R rows of K steps."""
    n = steps * r
    z, dy, joint = torch.randn(n, h), torch.randn(n, h), torch.randn(n, 3 * h)
    shift, gain, bias, q = torch.randn(4, h)
    _, total, mean, rstd = layernorm.normalise(joint, z, shift, gain, bias, 1e-5)
    logits, x, d_gated = torch.randn(3, n, features)
    mask, _ = vsn.select(logits, x)
    windows, account, d_out = z.view(r, steps, h), torch.randn(r, 12), torch.randn(r, h + 12)
    weights, _ = attention.pool(q, windows, account)
    parts, carried = torch.randn(2, r, 4 * h)
    dt, dh = torch.rand(r), torch.randn(r, h)
    _, gate = cfc.cell(parts, carried, dt)
    wide, narrow, flat = 4 * n * h, 4 * n * features, 4 * r * h
    return [
        Row(f"layer norm of a sum {n} x {h}", layernorm_kernel.normalise, layernorm.normalise,
            (joint, z, shift, gain, bias, 1e-5), 4 * wide, FEW),
        Row(f"layer norm backward {n} x {h}", written(layernorm_kernel.normalise_backward, 5),
            written(layernorm.normalise_backward, 5), (total, mean, rstd, gain, dy, torch.zeros_like(joint)),
            3 * wide, FEW),
        Row(f"feature gate {n} x {features}", vsn_kernel.select, vsn.select, (logits, x), 4 * narrow, FEW),
        Row(f"feature gate backward {n} x {features}", vsn_kernel.select_backward, vsn.select_backward,
            (mask, x, d_gated), 4 * narrow, FEW),
        Row(f"attention pool {r} x {steps} x {h}", attention_kernel.pool, attention.pool, (q, windows, account), wide,
            FEW),
        Row(f"attention pool backward {r} x {steps} x {h}", attention_kernel.pool_backward, attention.pool_backward,
            (q, windows, weights, d_out), 2 * wide, FEW),
        Row(f"CfC gates {r} x {h}", cfc_kernel.cell, cfc.cell, (parts, carried, dt), 10 * flat, FEW),
        Row(f"CfC gates backward {r} x {h}", cfc_kernel.cell_backward, cfc.cell_backward,
            (parts, carried, dt, gate, dh), 14 * flat, FEW),
    ]  # fmt: skip


def compose_rows(features: int, h: int) -> list[Row]:
    """Weights of both blocks multiplied into those of one product, and back; once a minibatch."""
    found = []
    for n in (features, h):
        block = Block(*(torch.randn(s) for s in ((h, n), (h,), (2 * h, h), (2 * h,), (h,), (h, h), (h,))))
        d = Composed(*(torch.randn(s) for s in ((3 * h, n), (2 * h,), (h, h), (h,))))

        def back(of: Any, block: Block = block, d: Composed = d) -> Any:
            into = Block(*(torch.zeros_like(x) for x in block))

            def call() -> Block:
                of.compose_backward(block, d, into)
                return into

            return call

        size = 4 * sum(x.numel() for x in (*block, *d))
        found += [
            Row(f"composed weights {h} x {n}", compose_kernel.compose, compose.compose, tuple(block), size, FEW),
            Row(f"composed weights backward {h} x {n}", back(compose_kernel), back(compose), (), 2 * size, FEW,
                compiled=False),
        ]  # fmt: skip
    return found


def head_rows(r: int, h: int = 128) -> list[Row]:
    """Every head of R acting rows: 11 x 21 atoms, policy, value, 3 x 21 forward-return atoms."""
    outputs, inputs = (231, 11, 1, 64, 63), (h, h, h, h, 64)
    pairs = [(torch.randn(n, k) / k**0.5, torch.randn(n)) for n, k in zip(outputs, inputs)]
    weights = heads.Weights(*(x for pair in pairs for x in pair))
    support = torch.linspace(-1, 1, 21)
    frd_atoms = 3 * support.double()
    shapes = ((r, 11, 21), (r, 11), (r, 11), (r,), (r, 3, 21))

    def into_buffers(of: Any) -> Any:
        into = heads.Outputs(*(torch.empty(shape) for shape in shapes), torch.empty(r, 3, dtype=torch.int8))

        def call(rows: torch.Tensor) -> tuple[torch.Tensor, ...]:
            of.acting(rows, weights, support, frd_atoms, into)
            return into[:5]  # the sign of a mean near 0 is anyone's

        return call

    moved = 4 * (sum(n * (k + 1) for n, k in zip(outputs, inputs)) + r * (h + 231 + 23 + 63))
    args = (torch.randn(r, h),)
    return [Row(f"heads {r} x {h}", into_buffers(heads_kernel), into_buffers(heads), args, moved, FEW, compiled=False)]
