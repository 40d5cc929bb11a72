"""The kernels on a GPU: their tests, compute-sanitizer over every one, and their speed against the torch twins.

    python -m benchmarks.gpu_kernels --out report            everything; report.json and the table report.md
    python -m benchmarks.gpu_kernels --only speed --quick    no torch.compile, for a look at a change

A row gives microseconds a call, replayed from a captured graph of 20 calls (median of 20 replays): the kernel, its
twin's torch operations, and the twin through torch.compile (default mode), each captured by hand, so that none pays
for Python; beside them one eager call of kernel and twin, host included. The floor is the bytes a call must move over
the bandwidth of a large copy on the same card; small inputs come from the L2 cache and can be faster than it. A row
counts only where kernel and twin agree on its inputs.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from kernels import build
from kernels.acting import kernel as acting_kernel
from kernels.acting import reference as acting
from kernels.adamw import kernel as adamw_kernel
from kernels.adamw import reference as adamw
from kernels.attention import kernel as attention_kernel
from kernels.attention import reference as attention
from kernels.c51 import kernel as c51_kernel
from kernels.c51 import reference as c51
from kernels.cfc import kernel as cfc_kernel
from kernels.cfc import reference as cfc
from kernels.digest import op as digest
from kernels.frd import kernel as frd_kernel
from kernels.frd import reference as frd
from kernels.gae import kernel as gae_kernel
from kernels.gae import reference as gae
from kernels.gather import kernel as gather_kernel
from kernels.gather import reference as gather
from kernels.geometry import kernel as geometry_kernel
from kernels.geometry import reference as geometry
from kernels.heads import kernel as heads_kernel
from kernels.heads import reference as heads
from kernels.layernorm import kernel as layernorm_kernel
from kernels.layernorm import reference as layernorm
from kernels.lob import kernel as lob_kernel
from kernels.lob import reference as lob
from kernels.moves import kernel as moves_kernel
from kernels.moves import reference as moves
from kernels.norms import kernel as norms_kernel
from kernels.norms import reference as norms
from kernels.pack import op as pack
from kernels.philox import kernel as philox_kernel
from kernels.philox import reference as philox
from kernels.policy import kernel as policy_kernel
from kernels.policy import reference as policy
from kernels.ppo import kernel as ppo_kernel
from kernels.ppo import reference as ppo
from kernels.reduce import kernel as reduce_kernel
from kernels.reduce import reference as reduce
from kernels.ring import op as ring
from kernels.scan import kernel as scan_kernel
from kernels.scan import reference as scan
from kernels.spectral import kernel as spectral_kernel
from kernels.spectral import reference as spectral
from kernels.statistics import kernel as statistics_kernel
from kernels.statistics import reference as statistics_reference
from kernels.sumtree import kernel as sumtree_kernel
from kernels.sumtree import reference as sumtree
from kernels.td import kernel as td_kernel
from kernels.td import reference as td
from kernels.vsn import kernel as vsn_kernel
from kernels.vsn import reference as vsn

CALLS, REPLAYS = 20, 20
TOOLS = ("memcheck", "initcheck", "racecheck", "synccheck")
# Faults planted for the tools: a check that cannot fail shows nothing.
PLANTED = {
    "memcheck": "reads_past_the_end", "initcheck": "reads_unwritten", "racecheck": "missing_barrier",
    "synccheck": "diverging_barriers",
}  # fmt: skip
FAULTS = Path(__file__).resolve().parent.parent / "tests/kernels/shim/faults/others.cu"


@dataclass(frozen=True)
class Row:
    """One measurement: the same arguments through kernel and twin. moved: bytes a call must read and write."""

    name: str
    kernel: Callable[..., Any]
    twin: Callable[..., Any]
    args: tuple[Any, ...]
    moved: int
    compiled: bool = True  # False where torch.compile has no whole graph to compile
    peer: Callable[..., Any] | None = None  # what torch.compile is given where it refuses the twin
    tolerance: float = 0.0  # largest difference to the twin, over the largest value


def rows() -> list[Row]:
    """Shapes of a training step (accounts 128, window 32, 56 features, 128 channels, 21 atoms) and larger ones."""
    torch.manual_seed(0)
    table = torch.randn(1 << 20, 56, device="cuda")
    start = torch.zeros(1 << 20, dtype=torch.int64, device="cuda")
    found: list[Row] = []
    for r in (128, 1024, 2048):
        anchors = torch.randint(32, 1 << 20, (r,), device="cuda")
        moved = 2 * r * 32 * 56 * 4
        name = f"gather windows {r} x 32 x 56"
        args = (table, start, anchors, torch.empty(r, 32, 56, device="cuda"))
        found.append(Row(name, _filled(gather_kernel.windows), _filled(gather.windows), args, moved))
    for r in (128, 1024, 2048):
        found += _scan_rows(r)
    for r in (128, 2048):
        found += _encoder_rows(r)
    for r in (128, 1024):
        found.append(_heads_row(r))
    for r in (128, 1024):
        found += _learning_rows(r)
        found += _minibatch_rows(r)
    found += _optimiser_rows()
    for r in (128, 1024):
        found += _measurement_rows(r)
    for b in (128, 8192, 131_072):
        found += _order_rows(b)
    found += _tree_rows()
    for r in (4096, 65_536):
        x = torch.randn(r, 128, device="cuda")
        found.append(Row(f"reduce {r} x 128", reduce_kernel.sum_rows, reduce.sum_rows, (x,), r * 512))
    found += _digest_rows()
    draws = torch.arange(1024, device="cuda")
    words = (draws, 32, 7, 2, (3, 4))
    leaves = [torch.randn((), device="cuda") for _ in range(712)]
    packed = pack.Pack(leaves)
    found.append(
        Row(
            "pack 712 leaves",
            lambda *_: packed.run(),
            lambda *x: pack.reference.pack(x),
            (*leaves,),
            712 * 28,
            compiled=False,
        )
    )
    return [*found, Row("philox 1024 x 32", philox_kernel.words, philox.words, words, 1024 * 33 * 8)]


def _scan_rows(r: int) -> list[Row]:
    pre, w, dy = torch.randn(r, 32, 256, device="cuda"), torch.randn(128, device="cuda"), torch.randn(r, 32, 128).cuda()
    a, state, _ = scan.scan(pre, w)
    words, shape = 4 * dy.numel(), f"{r} x 32 x 128"
    return [
        Row(f"scan {shape}", scan_kernel.scan, scan.scan, (pre, w), 5 * words, tolerance=1e-6, peer=_plain_scan),
        Row(f"scan backward {shape}", scan_kernel.scan_backward, scan.scan_backward, (a, state, w, dy), 5 * words,
            tolerance=1e-5, peer=_plain_scan_backward),
    ]  # fmt: skip


def _plain_scan(pre: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """The recurrence without preallocated outputs, which torch.compile refuses."""
    p, b = pre.chunk(2, dim=-1)
    a = torch.sigmoid(p)
    drive = (1.0 - a) * b
    states = [drive[:, 0]]
    for k in range(1, b.shape[1]):
        states.append(drive[:, k] + a[:, k] * states[-1])
    s = torch.stack(states, 1)
    return a, s, s * w


def _plain_scan_backward(
    a: torch.Tensor, s: torch.Tensor, w: torch.Tensor, dy: torch.Tensor
) -> tuple[torch.Tensor, ...]:
    g = [w * dy[:, -1]]
    for k in range(s.shape[1] - 2, -1, -1):
        g.append(w * dy[:, k] + a[:, k + 1] * g[-1])
    ds = torch.stack(g[::-1], 1)
    before = torch.cat([torch.zeros_like(s[:, :1]), s[:, :-1]], 1)
    d_pre = torch.cat([a * (before - s) * ds, (1.0 - a) * ds], 2)
    return d_pre, d_pre.sum((0, 1)), (dy * s).sum((0, 1))


def _encoder_rows(r: int) -> list[Row]:
    """What lies between the products of the encoder, at R rows of 32 steps, 56 features, 128 channels."""
    n, h = 32 * r, 128
    x, z, dy = torch.randn(3, n, h, device="cuda")
    gain, bias, q = torch.randn(3, h, device="cuda")
    _, total, mean, rstd = layernorm.normalise(x, z, gain, bias, 1e-5)
    logits, features, d_gated = torch.randn(3, n, 56, device="cuda")
    mask, _ = vsn.select(logits, features)
    steps, account, d_out = x.view(r, 32, h), torch.randn(r, 12, device="cuda"), torch.randn(r, h + 12, device="cuda")
    weights, _ = attention.pool(q, steps, account)
    parts, carried = torch.randn(2, r, 4 * h, device="cuda")
    dt, dh = torch.rand(r, device="cuda"), torch.randn(r, h, device="cuda")
    _, gate = cfc.cell(parts, carried, dt)
    wide, narrow, flat, few = 4 * n * h, 4 * n * 56, 4 * r * h, 2e-5
    return [
        Row(f"layer norm of a sum {n} x {h}", layernorm_kernel.normalise, layernorm.normalise, (x, z, gain, bias, 1e-5),
            4 * wide, tolerance=few),
        Row(f"layer norm backward {n} x {h}", lambda *a: layernorm_kernel.normalise_backward(*a)[:3],
            lambda *a: layernorm.normalise_backward(*a)[:3], (total, mean, rstd, gain, dy), 3 * wide, tolerance=few),
        Row(f"feature gate {n} x 56", vsn_kernel.select, vsn.select, (logits, features), 4 * narrow, tolerance=few),
        Row(f"feature gate backward {n} x 56", vsn_kernel.select_backward, vsn.select_backward,
            (mask, features, d_gated), 4 * narrow, tolerance=few),
        Row(f"attention pool {r} x 32 x {h}", attention_kernel.pool, attention.pool, (q, steps, account), wide,
            tolerance=few),
        Row(f"attention pool backward {r} x 32 x {h}", attention_kernel.pool_backward, attention.pool_backward,
            (q, steps, weights, d_out), 2 * wide, tolerance=few),
        Row(f"CfC gates {r} x {h}", cfc_kernel.cell, cfc.cell, (parts, carried, dt), 10 * flat, tolerance=few),
        Row(f"CfC gates backward {r} x {h}", cfc_kernel.cell_backward, cfc.cell_backward,
            (parts, carried, dt, gate, dh), 14 * flat, tolerance=few),
    ]  # fmt: skip


def _heads_row(r: int) -> Row:
    """Every head of R acting rows of 128 units: 11 x 21 atoms, policy, value, 3 x 21 forward-return atoms."""
    outputs, inputs = (231, 11, 1, 64, 63), (128, 128, 128, 128, 64)
    pairs = [
        (torch.randn(n, k, device="cuda") / k**0.5, torch.randn(n, device="cuda")) for n, k in zip(outputs, inputs)
    ]
    weights = heads.Weights(*(x for pair in pairs for x in pair))
    support = torch.linspace(-1, 1, 21, device="cuda")
    frd_atoms = 3 * support.double()
    shapes = ((r, 11, 21), (r, 11), (r, 11), (r,), (r, 3, 21))

    def into_buffers(of: Any) -> Callable[..., tuple[torch.Tensor, ...]]:
        into = heads.Outputs(
            *(torch.empty(shape, device="cuda") for shape in shapes), torch.empty(r, 3, device="cuda", dtype=torch.int8)
        )

        def call(h: torch.Tensor) -> tuple[torch.Tensor, ...]:
            of.acting(h, weights, support, frd_atoms, into)
            return into[:5]  # the sign of a mean near 0 is anyone's

        return call

    moved = 4 * (sum(n * (k + 1) for n, k in zip(outputs, inputs)) + r * (128 + 231 + 23 + 63))
    h = torch.randn(r, 128, device="cuda")
    return Row(f"heads {r} x 128", into_buffers(heads_kernel), into_buffers(heads), (h,), moved, False, None, 2e-5)


def _learning_rows(r: int) -> list[Row]:
    logits = torch.randn(r, 21, device="cuda")
    probs, low = logits.softmax(1), torch.tensor(-1.0, device="cuda")
    target = torch.randn(r, 21, device="cuda").softmax(1)
    positions = torch.randn(r, 21, device="cuda")
    legal = torch.ones(r, 11, dtype=torch.bool, device="cuda")
    draws = torch.randint(0, 2**32, (r,), device="cuda")
    steps = 32 if r == 128 else 256
    rollout = torch.randn(3, steps, r, device="cuda")
    flags = torch.rand(2, steps, r, device="cuda") < 0.02
    words = 4 * r * 21
    return [
        Row(f"C51 project {r} x 21", c51_kernel.project_atoms, c51.project_atoms, (probs, positions, low, -low),
            3 * words, tolerance=1e-5),
        Row(f"C51 cross-entropy {r} x 21", c51_kernel.cross_entropy, c51.cross_entropy, (logits, target), 3 * words,
            tolerance=1e-5),
        Row(f"C51 cross-entropy backward {r} x 21", c51_kernel.cross_entropy_backward, c51.cross_entropy_backward,
            (probs, target, draws.float()), 3 * words, tolerance=1e-5),
        Row(f"policy {r} x 11", lambda *x: policy_kernel.sample(*x)[::2], lambda *x: policy.sample(*x)[::2],
            (logits[:, :11].contiguous(), legal, draws, 0.01), r * (11 * 9 + 20), tolerance=1e-5),
        Row(f"GAE {steps} x {r}", gae_kernel.gae, gae.gae, (*rollout, *flags, 0.99, 0.95), steps * r * 22,
            tolerance=1e-5),
    ]  # fmt: skip


def _minibatch_rows(r: int) -> list[Row]:
    """Losses of R rollout rows and R replay rows, and how such rows are moved."""
    logits, values = torch.randn(r, 11, device="cuda"), torch.randn(5, r, device="cuda")
    legal, actions = torch.ones(r, 11, dtype=torch.bool, device="cuda"), torch.arange(r, device="cuda") % 11
    white = torch.tensor([0.0, 1.0], dtype=torch.float64, device="cuda")
    batch = (logits, values[0], legal, actions, values[1] - 3, *values[2:], white)
    atoms, ends = torch.randn(3, r, 11, 21, device="cuda"), torch.rand(2, r, device="cuda") < 0.1
    weights, low, scale = torch.rand(r, device="cuda"), torch.tensor(-1.0, device="cuda"), torch.ones((), device="cuda")
    replay = (*atoms, actions, legal, values[0], *ends, weights, low, -low, scale)
    labels = torch.randint(-1, 21, (5000, 3), device="cuda")
    forward = (torch.randn(r, 3, 21, device="cuda"), labels, torch.randint(0, 5000, (r,), device="cuda"))
    widths = (128, 128, 12, 12, 1, 1)
    columns = [torch.randn(32_768, width, device="cuda") for width in widths]
    held, at = ring.Ring(columns), torch.randint(0, 32_768, (r,), device="cuda")
    moved = 8 * r * sum(widths)
    return [
        Row(f"PPO {r} x 11", lambda *x: ppo_kernel.rows(*x)[:2], lambda *x: ppo.rows(*x)[:2],
            (*batch, 0.8, 1.2, 0.5, 0.01, 0.01), r * (11 * 9 + 36), tolerance=1e-5),
        Row(f"double Q {r} x 11 x 21", lambda *x: td_kernel.rows(*x)[:2], lambda *x: td.rows(*x)[:2],
            (*replay, 0.97, 1e-3, 0.6), r * 4 * 11 * 21 * 3, tolerance=1e-4, compiled=False),
        Row(f"forward returns {r} x 3 x 21", frd_kernel.gradient, frd.gradient, forward, r * 8 * 63, tolerance=1e-5),
        Row(f"ring of 6 columns, {r} rows out", lambda x: tuple(held.take(x)), lambda x: tuple(c[x] for c in columns),
            (at,), moved),
    ]  # fmt: skip


def _optimiser_rows() -> list[Row]:
    """What a minibatch does once, on as many parameters as the full model has, in ten branches."""
    n = 340_000
    weights, grads = torch.randn(2, n, device="cuda")
    parts = [slice(n // 10 * i, n // 10 * (i + 1)) for i in range(10)]
    tables = adamw_kernel.Tables(parts, weights.device)
    constants = torch.tensor([0.9, 0.999, 1e-8, 0.01, 1.0], dtype=torch.float64, device="cuda")
    zeros, one = torch.zeros(n, device="cuda"), torch.ones(1, device="cuda")
    stats = torch.zeros(26, dtype=torch.float64, device="cuda")
    state = (weights, grads, zeros, zeros.clone(), one.long(), torch.full_like(weights, 1e-3), one, constants)

    def stepped(step: Callable[..., None], where: Any) -> Callable[..., tuple[torch.Tensor, ...]]:
        def call(*x: torch.Tensor) -> tuple[torch.Tensor, ...]:
            step(*x[:-1], where, x[-1])
            return x[0], x[2], x[3]

        return call

    heads, total, out = list(torch.randn(4, 2048, 128, device="cuda")), torch.zeros(2048, 128, device="cuda"), stats[:5]
    shapes = ((512, 140), (512, 128), (231, 128), (64, 128), (63, 64), (128, 56), (128, 128), (11, 128), (56, 56))
    matrices = [torch.randn(*shape, device="cuda") for shape in shapes]
    vectors = [torch.nn.functional.normalize(torch.ones(len(w), device="cuda"), dim=0) for w in matrices]
    powers = spectral_kernel.Tables(matrices, vectors)
    for _ in range(500):  # where an iteration no longer moves anything that is compared
        powers.step()
    return [
        Row("AdamW 340000", stepped(adamw_kernel.step, tables), stepped(adamw.step, parts), (*state, stats), 40 * n,
            tolerance=1e-5, compiled=False),
        Row("norms of 4 x 2048 x 128 and their sum", _filled(norms_kernel.norms), _filled(norms.norms),
            (heads, total, one, out.clone()), 4 * 5 * total.numel(), tolerance=1e-9),
        Row("power iterations of 9 matrices", lambda: powers.step(), lambda: spectral.step(matrices, vectors), (),
            8 * sum(w.numel() for w in matrices), tolerance=1e-4, compiled=False),
    ]  # fmt: skip


def _measurement_rows(r: int) -> list[Row]:
    """What diagnostics measure of a batch of R accounts each step."""
    wide = [torch.randn(32 * r, 128, device="cuda") for _ in range(8)]
    narrow = [torch.randn(32 * r, 56, device="cuda") for _ in range(3)]
    h, before = torch.randn(2, r, 128, device="cuda")
    starts, n = torch.rand(r, device="cuda") < 0.1, 11
    px = torch.randint(100, 130, (5000, 10), device="cuda", dtype=torch.int32)
    now = torch.randint(0, 4000, (r,), device="cuda")
    moments = torch.zeros(56, moves.MOMENTS, dtype=torch.float64, device="cuda")
    tape = (torch.randn(r, 32, 56, device="cuda"), (px, px + 1, px, px), now, now + 3, lob.ABSENT, 0.0, moments)
    q, pi = torch.randn(2, r, n, device="cuda")
    action, draws, v = now % n, torch.randint(0, 2**32, (r,), device="cuda"), torch.randn(r, device="cuda")
    low, sigmas = torch.tensor(-1.0, device="cuda"), torch.linspace(-3, 3, 21, dtype=torch.float64, device="cuda")
    said = acting.Heads(
        torch.randn(r, n, 21, device="cuda"), q, low, -low, v, pi, pi.softmax(1), torch.ones_like(q).bool(),
        torch.randn(r, 3, 21, device="cuda"), sigmas,
    )  # fmt: skip
    done = acting.Acted(action, draws, action, starts, now, torch.randint(-1, 21, (5000, 3), device="cuda"))
    paid = acting.Paid(v, v, v, draws, draws, torch.zeros_like(starts))
    chosen = torch.nn.functional.one_hot(action, n)
    history = acting.History(  # long under way and always the same, so that nothing moves from call to call
        chosen.double(), action.clone(), chosen.sum(0).repeat(256, 1), torch.full_like(action[:1], 1000),
        torch.zeros(1, dtype=torch.float64, device="cuda"),
    )  # fmt: skip
    scale = acting.Scale(0.01, 0.01, 0.01, 5000.0, 5.0, 1 / 64)
    return [
        Row(f"statistics of 11 matrices of {32 * r} rows", statistics_kernel.summary, statistics_reference.summary,
            ([*wide, *narrow], None, [False] * 11, 8.0), 32 * r * 4 * (8 * 128 + 3 * 56), tolerance=1e-9),
        Row(f"geometry {r} x 128", geometry_kernel.geometry, geometry.geometry, (h, before, starts), 2 * r * 512,
            tolerance=1e-9),
        Row(f"acting batch {r}", acting_kernel.acting, acting.acting, (said, done, paid, history, scale),
            r * (4 * (21 + 3 * n + 63 + 5) + n + 19 * 8), tolerance=1e-9),
        Row(f"moves {r} x 56", moves_kernel.moves, moves.moves, tape, r * (56 * 4 + 32 + 320), tolerance=1e-9),
    ]  # fmt: skip


def _order_rows(b: int) -> list[Row]:
    px = (torch.arange(10, device="cuda") + torch.randint(0, 99, (b, 1), device="cuda")).int()
    sz = torch.randint(1, 60, (b, 10), device="cuda", dtype=torch.int32)
    side, lots = torch.randint(-1, 2, (b,), device="cuda"), torch.randint(0, 300, (b,), device="cuda")
    force = torch.rand(b, device="cuda") < 0.1
    memory = lob.Memory(px, sz // 2, sz)
    return [
        Row(f"LOB fill {b} x 10", lob_kernel.fill, lob.fill, (side, lots, px, sz, force, lob.ABSENT),
            b * (10 * 16 + 49)),
        Row(f"LOB available {b} x 10", lambda *x: _flat(lob_kernel.available(*x)), lambda *x: _flat(lob.available(*x)),
            (memory, px, sz), b * 10 * 9 * 4),
    ]  # fmt: skip


def _flat(found: tuple[torch.Tensor, lob.Memory]) -> tuple[torch.Tensor, ...]:
    return (found[0], *found[1])


def _tree_rows() -> list[Row]:
    found = []
    for capacity, s in ((65_536, 128), (65_536, 1024), (1 << 20, 1024)):
        tree = torch.cat([torch.zeros(capacity), torch.rand(capacity)]).cuda()
        sumtree.rebuild(tree)
        u = torch.rand(s, device="cuda")
        at = torch.randint(0, capacity, (s,), device="cuda")
        levels = capacity.bit_length() - 1
        name = f"{s} of {capacity}"
        found += [
            Row(f"tree update {name}", _in_place(sumtree_kernel.update), _in_place(sumtree.update), (tree, at, u),
                8 * capacity + 12 * s),
            Row(f"tree sample {name}", sumtree_kernel.sample, sumtree.sample, (tree, u), s * (12 + 8 * levels)),
        ]  # fmt: skip
    return found


def _filled(function: Callable[..., None]) -> Callable[..., torch.Tensor]:
    """A function that writes its last argument, as one that returns it."""

    def call(*args: torch.Tensor) -> torch.Tensor:
        function(*args)
        return args[-1]

    return call


def _in_place(function: Callable[..., None]) -> Callable[..., torch.Tensor]:
    def call(tree: torch.Tensor, *rest: torch.Tensor) -> torch.Tensor:
        function(tree, *rest)
        return tree

    return call


def _digest_rows() -> list[Row]:
    """A step's buffers in one run, and one large one. The twin is what a buffer costs without its two host waits."""
    found = []
    for name, sizes in (("digests 100 x 64 KiB", [8192] * 100), ("digest 256 MiB", [1 << 25])):
        buffers = [torch.randint(0, 2**62, (n,), device="cuda") for n in sizes]
        digests = digest.Digests(buffers, [0] * len(buffers))

        def twin(*xs: torch.Tensor) -> torch.Tensor:
            return torch.stack([digest.reference.wide([x]) for x in xs])

        def kernel(*xs: torch.Tensor, digests: digest.Digests = digests) -> torch.Tensor:
            return digests.run()

        found.append(Row(name, kernel, twin, tuple(buffers), 8 * sum(sizes), compiled=len(sizes) == 1))
    return found


# --- measuring ------------------------------------------------------------------------------------


def captured_us(call: Callable[[], Any]) -> float:
    """Microseconds a call inside a captured graph."""
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(3):
            call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kept = [call() for _ in range(CALLS)]
    graph.replay()
    times = []
    for _ in range(REPLAYS):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) * 1000 / CALLS)
    del kept
    return statistics.median(times)


def eager_us(call: Callable[[], Any]) -> float:
    """Microseconds a call from Python, host included."""
    call()
    torch.cuda.synchronize()
    begin = time.perf_counter()
    for _ in range(CALLS):
        call()
    torch.cuda.synchronize()
    return (time.perf_counter() - begin) * 1e6 / CALLS


def copy_bandwidth() -> float:
    """Bytes a second of a large device copy, read and written. By a kernel: a captured memcpy node is slower."""
    source = torch.randn(1 << 28, device="cuda")
    target = torch.empty_like(source)
    return 8 * source.numel() / (captured_us(lambda: torch.add(source, 1.0, out=target)) * 1e-6)


def measure(row: Row, bandwidth: float, with_compile: bool) -> dict[str, Any]:
    """One row of the report; AssertionError where kernel and twin disagree."""
    _agree(row)
    out: dict[str, Any] = {"name": row.name, "floor_us": row.moved / bandwidth * 1e6, "bytes": row.moved}
    out["kernel_us"] = captured_us(lambda: row.kernel(*row.args))
    out["twin_us"] = captured_us(lambda: row.twin(*row.args))
    out["kernel_eager_us"] = eager_us(lambda: row.kernel(*row.args))
    out["twin_eager_us"] = eager_us(lambda: row.twin(*row.args))
    if with_compile and row.compiled:
        begin = time.perf_counter()
        torch._dynamo.reset()
        fused = torch.compile(row.peer or row.twin, fullgraph=True)
        try:
            fused(*row.args)
            out["compiled_us"] = captured_us(lambda: fused(*row.args))
        except Exception as error:  # a twin torch.compile refuses is a finding, not a failure of the kernel
            out["compile_error"] = str(error).strip().splitlines()[0][:200]
        out["compile_s"] = time.perf_counter() - begin
    return out


def _agree(row: Row) -> None:
    fresh = [x.clone() if isinstance(x, torch.Tensor) else x for x in row.args]
    twins = row.twin(*fresh)
    if row.name.startswith("digest"):
        mixed = [digest.reference.digest64(x) for x in row.args]
        assert [d % 2**64 for d in row.kernel(*row.args).tolist()] == mixed, row.name
        return
    fresh = [x.clone() if isinstance(x, torch.Tensor) else x for x in row.args]
    results = row.kernel(*fresh)
    pairs = [(results, twins)] if isinstance(results, torch.Tensor) else list(zip(results, twins, strict=True))
    for got, twin in pairs:
        apart = float((got.double() - twin.double()).abs().max() / twin.double().abs().max().clamp_min(1e-30))
        assert apart <= row.tolerance, f"{row.name}: {apart} from the twin"


# --- the suite and the sanitizer ------------------------------------------------------------------


def run_cases() -> None:
    """Every case of the tests once, for a tool to watch."""
    from tests.kernels.cases import CASES, made

    for name, case in CASES.items():
        case.call({key: x.cuda() for key, x in made(name).items()})
    torch.cuda.synchronize()


def run_planted(function: str) -> None:
    """One planted fault, for a tool to find."""
    build.source_path = lambda family: FAULTS
    x, out = torch.empty(64, device="cuda"), torch.empty(64, device="cuda")
    args: tuple[build.Argument, ...] = {"reads_past_the_end": (x, 64, out), "diverging_barriers": (out,)}.get(
        function, (x, out)
    )
    build.launch("planted", function, (1,), (64,), *args)
    torch.cuda.synchronize()


def sanitize(tool: str, log: Path) -> dict[str, Any]:
    """A tool over every case, then over its planted fault. Its findings count by the kernel they name: torch's own
    kernels run under it too. Every tensor gets an allocation of its own, or its neighbours would hide an overrun."""
    clean, found = _watched(tool, "--cases"), _watched(tool, "--planted", PLANTED[tool])
    log.write_text(clean.pop("log") + "\n---- planted\n" + found.pop("log"), encoding="utf-8")
    return {"cases": clean, "planted": {"fault": PLANTED[tool], **found}}


def _watched(tool: str, *what: str) -> dict[str, Any]:
    command = ["compute-sanitizer", "--tool", tool, "--print-limit", "50"]
    command += [sys.executable, "-m", "benchmarks.gpu_kernels", *what]
    begin = time.perf_counter()
    done = subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, "PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
    )
    log = done.stdout + done.stderr
    ours = {n for f in build.families() for n in build.signatures(build.source_path(f))} | set(PLANTED.values())
    named = Counter(re.findall(r"\bat (?:void )?(\w+)[^\n]*?\+0x", log))
    return {
        "exit": done.returncode, "ours": sum(n for name, n in named.items() if name in ours), "named": dict(named),
        "summary": " ".join(re.findall(r"\w* ?SUMMARY: (.*)", log)), "seconds": time.perf_counter() - begin, "log": log,
    }  # fmt: skip


def suite() -> dict[str, Any]:
    """The GPU tests of the kernels."""
    command = [sys.executable, "-m", "pytest", "-q", "-m", "gpu", "tests/kernels/test_devices.py"]
    done = subprocess.run(command, capture_output=True, text=True)
    print(done.stdout[-3000:])
    return {"command": " ".join(command[1:]), "exit": done.returncode, "summary": done.stdout.strip().splitlines()[-1]}


# --- the report -----------------------------------------------------------------------------------


def identity(bandwidth: float) -> dict[str, Any]:
    smi = subprocess.run(
        ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"], capture_output=True, text=True
    )
    return {
        "gpu": smi.stdout.strip(), "torch": torch.__version__, "cuda": torch.version.cuda,
        "python": platform.python_version(), "copy_bytes_per_s": bandwidth, "kernels": build.kernel_hashes(),
    }  # fmt: skip


def table(measured: list[dict[str, Any]]) -> str:
    """Markdown; ratios are twin over kernel, so above 1 the kernel is faster."""
    lines = [
        "| kernel | floor us | kernel us | twin captured | torch.compile captured | eager: kernel us | eager: twin |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for row in measured:
        us = row["kernel_us"]
        compiled = f"{row['compiled_us'] / us:.1f} x" if "compiled_us" in row else "-"
        lines.append(
            f"| {row['name']} | {row['floor_us']:.2f} | {us:.2f} | {row['twin_us'] / us:.1f} x | {compiled} "
            f"| {row['kernel_eager_us']:.0f} | {row['twin_eager_us'] / row['kernel_eager_us']:.1f} x |"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("report"))
    parser.add_argument("--only", choices=("suite", "sanitizer", "speed"), action="append")
    parser.add_argument("--quick", action="store_true", help="no torch.compile")
    parser.add_argument("--cases", action="store_true", help="run every case once and end")
    parser.add_argument("--planted", help="run one planted fault and end")
    args = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("benchmarks.gpu_kernels: no NVIDIA GPU here; the sources run on the CPU in tests/kernels")
    if args.cases or args.planted:
        run_cases() if args.cases else run_planted(args.planted)
        return
    parts = args.only or ["suite", "sanitizer", "speed"]
    args.out.mkdir(parents=True, exist_ok=True)
    report: dict[str, Any] = {"command": " ".join(sys.argv), **identity(copy_bandwidth())}
    if "suite" in parts:
        report["suite"] = suite()
    if "sanitizer" in parts:
        with ThreadPoolExecutor(len(TOOLS)) as pool:  # separate processes; each is mostly waiting for its tool
            logs = [args.out / f"{tool}.log" for tool in TOOLS]
            report["sanitizer"] = dict(zip(TOOLS, pool.map(sanitize, TOOLS, logs)))
        print(json.dumps(report["sanitizer"], indent=1))
    if "speed" in parts:
        report["speed"] = []
        for row in rows():
            report["speed"].append(measure(row, report["copy_bytes_per_s"], not args.quick))
            print({key: round(x, 2) if isinstance(x, float) else x for key, x in report["speed"][-1].items()})
        text = table(report["speed"])
        (args.out / "report.md").write_text(text, encoding="utf-8")
        print(text)
    (args.out / "report.json").write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    failed = report.get("suite", {}).get("exit", 0) != 0
    for tool in report.get("sanitizer", {}).values():
        failed |= tool["cases"]["exit"] != 0 or tool["cases"]["ours"] != 0 or tool["planted"]["ours"] == 0
    sys.exit(int(failed))


if __name__ == "__main__":
    main()
