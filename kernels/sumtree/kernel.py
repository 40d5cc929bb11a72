"""Host side of sumtree.cu: the functions of reference.py."""

from __future__ import annotations

import torch

from kernels import build

_THREADS = 32  # a draw is a chain of dependent reads: spread them over the chip
_CLAIM_THREADS = 128  # that look through the lower rows of one
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


def probabilities(tree: torch.Tensor, indices: torch.Tensor) -> torch.Tensor:
    """P(i) float32 [S]."""
    indices = indices.contiguous()
    rows = indices.numel()
    p = torch.empty(rows, dtype=torch.float32, device=tree.device)
    grid = (build.ceil_div(rows, _THREADS),)
    build.launch("sumtree", "sumtree_probabilities", grid, (_THREADS,), tree, indices, tree.numel() // 2, rows, p)
    return p
