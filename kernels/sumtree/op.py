"""Prioritised sampling on a power-of-two sum tree: float32 [2 capacity], leaf i (priority^alpha) at capacity + i.

Leaves are finite and not negative; zero is an empty slot. Nothing here synchronises with the host.
"""

from __future__ import annotations

import torch

from kernels import build
from kernels.arguments import check
from kernels.sumtree import kernel, reference


def _check_tree(tree: torch.Tensor) -> None:
    check("tree", tree, (None,), torch.float32)
    words = tree.numel()
    if words < 2 or words & (words - 1):
        raise ValueError(f"tree: {words} words, expected twice a power of two")


def rebuild(tree: torch.Tensor) -> None:
    """Recompute every inner node from the leaves, in place, pairwise a level at a time."""
    _check_tree(tree)
    (kernel if build.on_gpu(tree) else reference).rebuild(tree)


def sample(tree: torch.Tensor, u: torch.Tensor) -> torch.Tensor:
    """Leaf numbers int64 [S], one draw from each of S equal parts of the total mass; -1 where there is no mass.

    u: float32 [S] uniforms in [0, 1), one a part (the stratification is done here, not by the caller).
    Schaul et al. 2016 (1511.05952), section 3.3. A leaf of zero mass is never drawn.
    """
    _check_tree(tree)
    check("u", u, (None,), tree.dtype)
    return (kernel if build.on_gpu(tree) else reference).sample(tree, u)


def update(tree: torch.Tensor, indices: torch.Tensor, values: torch.Tensor) -> None:
    """Write values float32 [S] to leaves indices int64 [S] and rebuild, in place.

    The lowest batch row wins a duplicate index: on a device the last writer would be whichever came last.
    """
    _check_tree(tree)
    check("indices", indices, (None,), torch.int64)
    check("values", values, tuple(indices.shape), tree.dtype)
    if indices.numel() == 0:
        raise ValueError("indices: none given")
    (kernel if build.on_gpu(tree) else reference).update(tree, indices, values)


def append(tree: torch.Tensor, count: torch.Tensor, rows: int) -> None:
    """Give leaves count .. count + rows (modulo the capacity) the largest one held, 1 where none is, and rebuild.

    count: int64 [1] on the device, what was appended before. Schaul et al. 2016, Algorithm 1, line 6.
    """
    _check_tree(tree)
    check("count", count, (1,), torch.int64)
    if not 0 < rows <= tree.numel() // 2:
        raise ValueError(f"rows: {rows}, expected 1 to the capacity {tree.numel() // 2}")
    (kernel if build.on_gpu(tree) else reference).append(tree, count, rows)


def weigh(
    tree: torch.Tensor, indices: torch.Tensor, count: torch.Tensor, beta: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """(leaves [S], importance weights [S]) of the leaves drawn, int64 [S].

    w = (N P)^-beta over the largest of them, P(i) = leaf / total, N = count int64 [1] held to the capacity.
    Schaul et al. 2016, section 3.4.
    """
    _check_tree(tree)
    check("indices", indices, (None,), torch.int64)
    check("count", count, (1,), torch.int64)
    return (kernel if build.on_gpu(tree) else reference).weigh(tree, indices, count, beta)


def moments(tree: torch.Tensor, draws: torch.Tensor, count: torch.Tensor) -> torch.Tensor:
    """float64 [4]: sum of the leaves, sum of their squares, the largest, and how many are held and were never drawn.

    draws: int32 [capacity], how often each leaf was. count: int64 [1], what was appended.
    """
    _check_tree(tree)
    check("draws", draws, (tree.numel() // 2,), torch.int32)
    check("count", count, (1,), torch.int64)
    return (kernel if build.on_gpu(tree) else reference).moments(tree, draws, count)
