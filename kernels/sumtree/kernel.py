"""Host side of sumtree.cu: the functions of reference.py."""

from __future__ import annotations

import torch

from kernels import build

_THREADS = 32  # a draw is a chain of dependent reads: spread them over the chip
_CLAIM_THREADS = 128  # that look through the lower rows of one
_BLOCK = 256
_SHARE = 1024  # leaves a block looks through for the largest
_DEPTH = 11  # levels one block rebuilds: 1,024 nodes on the lowest it writes


def rebuild(tree: torch.Tensor) -> None:
    """Recompute every inner node, in place; a launch a group of levels."""
    below = tree.numel() // 2  # nodes on the level that is known
    while below > 1:
        depth = min(_DEPTH, below.bit_length() - 1)
        roots = below >> depth
        build.launch("sumtree", "sumtree_rebuild", (roots,), (1 << (depth - 1),), tree, roots, depth)
        below = roots


def sample(tree: torch.Tensor, u: torch.Tensor) -> torch.Tensor:
    """Leaf numbers int64 [S]."""
    u = u.contiguous()
    draws = u.numel()
    leaf = torch.empty(draws, dtype=torch.int64, device=tree.device)
    grid = (build.ceil_div(draws, _THREADS),)
    build.launch("sumtree", "sumtree_sample", grid, (_THREADS,), tree, u, tree.numel() // 2, draws, leaf)
    return leaf


def update(tree: torch.Tensor, indices: torch.Tensor, values: torch.Tensor) -> None:
    """Set leaves, the lowest batch row winning a duplicate index, then rebuild."""
    args = (tree, indices.contiguous(), values.contiguous(), tree.numel() // 2)
    build.launch("sumtree", "sumtree_set_leaves", (indices.numel(),), (_CLAIM_THREADS,), *args)
    rebuild(tree)


def append(tree: torch.Tensor, count: torch.Tensor, rows: int) -> None:
    """The largest leaf to those from count on, then rebuild."""
    capacity = tree.numel() // 2
    blocks = build.ceil_div(capacity, _SHARE)
    tops = tree.new_empty(blocks)
    build.launch("sumtree", "sumtree_largest", (blocks,), (_BLOCK,), tree, capacity, _SHARE, tops)
    build.launch("sumtree", "sumtree_append", (1,), (_BLOCK,), tree, tops, blocks, count, capacity, rows)
    rebuild(tree)


def weigh(
    tree: torch.Tensor, indices: torch.Tensor, count: torch.Tensor, beta: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """(leaves [S], weights [S])."""
    rows = indices.numel()
    leaves, weights = tree.new_empty(rows), tree.new_empty(rows)
    args = (tree, indices.contiguous(), count, tree.numel() // 2, rows, beta, leaves, weights)
    build.launch("sumtree", "sumtree_weigh", (1,), (_BLOCK,), *args)
    return leaves, weights


def moments(tree: torch.Tensor, draws: torch.Tensor, count: torch.Tensor) -> torch.Tensor:
    """float64 [4]."""
    capacity = tree.numel() // 2
    blocks = build.ceil_div(capacity, _SHARE)
    parts = torch.empty(blocks, 4, dtype=torch.float64, device=tree.device)
    out = torch.empty(4, dtype=torch.float64, device=tree.device)
    args = (tree, draws, count, capacity, _SHARE, parts)
    build.launch("sumtree", "sumtree_moments", (blocks,), (_BLOCK,), *args)
    build.launch("sumtree", "sumtree_moments_finish", (1,), (_BLOCK,), parts, blocks, out)
    return out
