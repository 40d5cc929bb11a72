"""From an action to an update: policy, advantages, losses' gradients, the optimiser, tree and ring of replay."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from benchmarks.kernel_rows.row import Row, written
from kernels.adamw import kernel as adamw_kernel
from kernels.adamw import reference as adamw
from kernels.c51 import kernel as c51_kernel
from kernels.c51 import reference as c51
from kernels.distances import kernel as distances_kernel
from kernels.distances import reference as distances
from kernels.frd import kernel as frd_kernel
from kernels.frd import reference as frd
from kernels.gae import kernel as gae_kernel
from kernels.gae import reference as gae
from kernels.norms import kernel as norms_kernel
from kernels.norms import reference as norms
from kernels.outer import kernel as outer_kernel
from kernels.outer import reference as outer
from kernels.policy import kernel as policy_kernel
from kernels.policy import reference as policy
from kernels.ppo import kernel as ppo_kernel
from kernels.ppo import reference as ppo
from kernels.reward import kernel as reward_kernel
from kernels.reward import reference as reward
from kernels.ring import op as ring
from kernels.spectral import kernel as spectral_kernel
from kernels.spectral import reference as spectral
from kernels.sumtree import kernel as sumtree_kernel
from kernels.sumtree import reference as sumtree
from kernels.window import kernel as window_kernel
from kernels.window import op as window_op
from kernels.window import reference as window


def act_rows(r: int, steps: int, actions: int = 11) -> list[Row]:
    """Actions and rewards of R accounts, and a window of `steps` of their rows."""
    logits, legal = torch.randn(r, actions), torch.ones(r, actions, dtype=torch.bool)
    draws = torch.randint(0, 2**32, (r,))
    cents, fees = torch.randint(-90_000, 90_000, (r,)), torch.randint(0, 900, (r,))
    slots = torch.tensor([0.01, 0.125, 0.0, 1.0, 0.0]).unbind()
    values, flags = torch.randn(2, r), torch.rand(2, r) < 0.1
    before = (*torch.randn(2, r), *(torch.rand(3, r) < 0.3))
    columns, ends = torch.randn(4, steps, r), torch.rand(2, steps, r) < 0.02
    entries = torch.randint(-1, 2, (steps, r), dtype=torch.int8)

    def whitened(of: Any) -> Callable[..., tuple[torch.Tensor, ...]]:
        state, out = torch.zeros(6, dtype=torch.float64), torch.zeros(3, r)

        def call(core: torch.Tensor, paid: torch.Tensor) -> tuple[torch.Tensor, ...]:
            state.zero_()
            of.whiten(core, paid, 5_000, True, 1e-6, *slots, state, *out)
            return (*out,)

        return call

    def moments(of: Any) -> Callable[..., torch.Tensor]:
        out = torch.zeros(len(window_op.NAMES), dtype=torch.float64)

        def call(*x: torch.Tensor) -> torch.Tensor:
            of.moments(*x, out)
            return out

        return call

    return [
        Row(f"policy {r} x {actions}", lambda *x: policy_kernel.sample(*x)[::2], lambda *x: policy.sample(*x)[::2],
            (logits, legal, draws, 0.01), r * (actions * 9 + 20), 1e-5),
        Row(f"rewards of {r}", whitened(reward_kernel), whitened(reward), (cents, fees), r * 28, 1e-5, compiled=False),
        Row(f"TD errors of {r}", reward_kernel.error, reward.error, (*values, *flags, 0.99, True, *before), r * 24,
            1e-6, compiled=False),
        Row(f"GAE {steps} x {r}", gae_kernel.gae, gae.gae, (*columns[:3], *ends, 0.99, 0.95), steps * r * 22, 1e-5),
        Row(f"moments of a window {steps} x {r}", moments(window_kernel), moments(window), (*columns, *ends, entries),
            steps * r * 19, 1e-9, compiled=False),
    ]  # fmt: skip


def minibatch_rows(r: int, atoms: int = 21, actions: int = 11) -> list[Row]:
    """Losses of R rollout rows and R replay rows, and how such rows are moved."""
    logits, values = torch.randn(r, actions), torch.randn(5, r)
    legal, chosen = torch.ones(r, actions, dtype=torch.bool), torch.arange(r) % actions
    white = torch.tensor([0.0, 1.0], dtype=torch.float64)
    batch = (logits, values[0], legal, chosen, values[1] - 3, *values[2:], white)
    z, ends = torch.randn(3, r, actions, atoms), torch.rand(2, r) < 0.1
    weights, low, scale = torch.rand(r), torch.tensor(-1.0), torch.ones(())
    past, span = c51.Transitions(chosen, legal, values[0], *ends, chosen), c51.Scale(low, -low, scale, chosen[0])
    labels = torch.randint(-1, atoms, (5000, 3))
    forward = (torch.randn(r, 3, atoms), labels, torch.randint(0, 5000, (r,)))
    columns = [torch.randn(32_768, width) for width in (128, 128, 12, 12, 1, 1)]
    held, at = ring.Ring(columns), torch.randint(0, 32_768, (r,))
    moved, words, several = 8 * r * sum(c.shape[1] for c in columns), 4 * r * atoms, 4 * r * actions * atoms
    return [
        Row(f"PPO {r} x {actions}", lambda *x: ppo_kernel.rows(*x)[:2], lambda *x: ppo.rows(*x)[:2],
            (*batch, 0.8, 1.2, 0.5, 0.01, 0.01), r * (actions * 9 + 36), 1e-5),
        Row(f"double Q {r} x {actions} x {atoms}", lambda *x: c51_kernel.rows(*x)[:2], lambda *x: c51.rows(*x)[:2],
            (*z, past, weights, span, 0.97, 1e-3, 0.6), 3 * several, 1e-4, compiled=False),
        Row(f"forward returns {r} x 3 x {atoms}", frd_kernel.gradient, frd.gradient, forward, 6 * words, 1e-5),
        Row(f"ring of 6 columns, {r} rows out", lambda x: tuple(held.take(x)), lambda x: tuple(c[x] for c in columns),
            (at,), moved),
    ]  # fmt: skip


def gradient_rows(r: int, h: int = 128) -> list[Row]:
    """The gradient of a head's layer, of few outputs and of many."""
    found = []
    for outputs in (11, 231):
        slope, x = torch.randn(r, outputs), torch.randn(r, h)
        into = torch.zeros(outputs * (h + 1))
        moved = 4 * (slope.numel() + x.numel() + into.numel())
        found.append(
            Row(f"layer gradient {r} x {outputs} x {h}", written(outer_kernel.weight_gradient, 2),
                written(outer.weight_gradient, 2), (slope, x, into), moved, 1e-5, compiled=False)
        )  # fmt: skip
    return found


def optimiser_rows(n: int, r: int) -> list[Row]:
    """What a minibatch of R rows does once, on N parameters in ten branches."""
    weights, grads = torch.randn(2, n)
    parts = [slice(n // 10 * i, n // 10 * (i + 1)) for i in range(10)]
    tables = adamw_kernel.Tables(parts, weights.device)
    constants = torch.tensor([0.9, 0.999, 1e-8, 0.01, 1.0], dtype=torch.float64)
    zeros, one = torch.zeros(n), torch.ones(1)
    stats = torch.zeros(26, dtype=torch.float64)
    state = (weights, grads, zeros, zeros.clone(), one.long(), torch.full_like(weights, 1e-3), one, constants)

    def stepped(step: Callable[..., None], where: Any) -> Callable[..., tuple[torch.Tensor, ...]]:
        def call(*x: torch.Tensor) -> tuple[torch.Tensor, ...]:
            step(*x[:-1], where, x[-1])
            return x[0], x[2], x[3]

        return call

    heads, total, out = list(torch.randn(4, r, 128)), torch.zeros(r, 128), stats[:5]
    shapes = ((512, 140), (512, 128), (231, 128), (64, 128), (63, 64), (128, 56), (128, 128), (11, 128), (56, 56))
    matrices = [torch.randn(*shape) for shape in shapes]
    vectors = [torch.nn.functional.normalize(torch.ones(len(w)), dim=0) for w in matrices]
    powers, twins = spectral_kernel.Tables(matrices, vectors), [v.clone() for v in vectors]
    pairs: list[tuple[torch.Tensor, torch.Tensor | None]] = [(weights[p], grads[p]) for p in parts]
    apart = distances_kernel.Tables(pairs)
    return [
        Row(f"AdamW {n}", stepped(adamw_kernel.step, tables), stepped(adamw.step, parts), (*state, stats), 40 * n, 1e-5,
            compiled=False),
        Row(f"norms of 4 x {r} x 128 and their sum", written(norms_kernel.norms, 1, 3), written(norms.norms, 1, 3),
            (heads, total, one, out.clone()), 4 * 5 * total.numel(), 1e-9),
        Row("power iterations of 9 matrices", lambda: powers.step(), lambda: spectral.step(matrices, twins), (),
            8 * sum(w.numel() for w in matrices), 1e-4, compiled=False),
        Row(f"distances of {n} weights in 10 branches", apart.run, lambda: distances.run(pairs), (), 8 * n, 1e-9,
            compiled=False),
    ]  # fmt: skip


def tree_rows(capacity: int, draws: int) -> list[Row]:
    tree = torch.cat([torch.zeros(capacity), torch.rand(capacity)])
    sumtree.rebuild(tree)
    u, at = torch.rand(draws), torch.randint(0, capacity, (draws,))
    count, levels, name = torch.tensor(capacity), capacity.bit_length() - 1, f"{draws} of {capacity}"
    return [
        Row(f"tree update {name}", written(sumtree_kernel.update, 0), written(sumtree.update, 0), (tree, at, u),
            8 * capacity + 12 * draws),
        Row(f"tree sample {name}", sumtree_kernel.sample, sumtree.sample, (tree, u), draws * (12 + 8 * levels)),
        Row(f"tree weights {name}", sumtree_kernel.weigh, sumtree.weigh, (tree, at, count, 0.4), draws * 16, 1e-6),
    ]  # fmt: skip
