"""Sum tree on one flat tensor: root at 1, children of n at 2n and 2n+1, leaf i at capacity + i, word 0 unused.

Sums are rebuilt bottom-up, never patched by differences: patched float32 sums drift from the leaves, and a
drifted root draws from empty slots.
"""

from __future__ import annotations

import torch


def rebuild(tree: torch.Tensor) -> None:
    """Recompute every inner node from the leaves, in place, a level at a time."""
    start = tree.numel() // 4
    while start >= 1:
        torch.add(tree[2 * start : 4 * start : 2], tree[2 * start + 1 : 4 * start : 2], out=tree[start : 2 * start])
        start //= 2


def descend(tree: torch.Tensor, mass: torch.Tensor) -> torch.Tensor:
    """Leaf numbers int64 [S] holding the cumulative mass [S]; -1 where the tree holds none.

    Mass (0 or more) is held under the total. Strictly below the left sum goes left, so mass equal to a left
    sum falls in the next leaf; where rounding points into a child of zero mass its sibling is taken.
    """
    total = tree[1]
    mass = torch.minimum(mass, torch.nextafter(total, torch.zeros_like(total)))
    capacity = tree.numel() // 2
    node = torch.ones(mass.shape, dtype=torch.int64, device=tree.device)
    for _ in range(capacity.bit_length() - 1):
        left = tree[2 * node]
        right_side = (mass >= left) & (tree[2 * node + 1] > 0)
        mass = torch.where(right_side, mass - left, mass)
        node = 2 * node + right_side
    return torch.where(total > 0, node - capacity, -1)


def stratified_mass(tree: torch.Tensor, u: torch.Tensor) -> torch.Tensor:
    """Cumulative mass [S]: draw s falls uniformly in the s-th of S equal parts of the total."""
    bins = torch.arange(u.numel(), dtype=tree.dtype, device=tree.device)
    return (bins + u) * (tree[1] / u.numel())


def sample(tree: torch.Tensor, u: torch.Tensor) -> torch.Tensor:
    """Leaf numbers int64 [S], one a stratum."""
    return descend(tree, stratified_mass(tree, u))


def weigh(
    tree: torch.Tensor, indices: torch.Tensor, count: torch.Tensor, beta: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """(leaves [S], weights [S]): the weights are (length P)^-beta over their largest, P 0 without mass."""
    capacity, total = tree.numel() // 2, tree[1]
    leaves = torch.where(indices < 0, 0.0, tree[capacity + indices.clamp_min(0)])
    p = torch.where(total > 0, leaves / total, 0.0)
    weights = (count.clamp_max(capacity).to(tree.dtype) * p) ** -beta
    return leaves, weights / weights.max()


def append(tree: torch.Tensor, count: torch.Tensor, rows: int) -> None:
    """The largest leaf, or 1, to the leaves from count on modulo the capacity; then rebuild."""
    capacity = tree.numel() // 2
    top = tree[capacity:].max()
    at = (count + torch.arange(rows, device=tree.device)) % capacity
    tree[capacity + at] = torch.where(top > 0, top, torch.ones_like(top))
    rebuild(tree)


def update(tree: torch.Tensor, indices: torch.Tensor, values: torch.Tensor) -> None:
    """Set leaves in place, the lowest batch row winning a duplicate index, then rebuild."""
    capacity, rows = tree.numel() // 2, indices.numel()
    row = torch.arange(rows, dtype=torch.int64, device=tree.device)
    owner = torch.full((capacity,), rows, dtype=torch.int64, device=tree.device)
    owner.scatter_reduce_(0, indices, row, "amin")  # an integer minimum has no order
    leaves = tree[capacity:]
    leaves.copy_(torch.where(owner < rows, values[owner.clamp(max=rows - 1)], leaves))
    rebuild(tree)


def moments(tree: torch.Tensor, draws: torch.Tensor, count: torch.Tensor) -> torch.Tensor:
    """float64 [4]: sum of the leaves, sum of their squares, the largest, how many are held and were never drawn."""
    leaves = tree[tree.numel() // 2 :].double()
    held = torch.arange(leaves.numel(), device=tree.device) < count
    never = ((draws == 0) & held).sum().double()
    return torch.stack([leaves.sum(), (leaves**2).sum(), leaves.max(), never])
