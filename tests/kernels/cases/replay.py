"""The tree of priorities and the ring of rows."""

import torch

from kernels.ring import op as ring
from kernels.sumtree import op as sumtree
from tests.kernels.cases.registry import case


def _tree_inputs(capacity, draws, g):
    leaves = torch.rand(capacity, generator=g) * (torch.rand(capacity, generator=g) < 0.5)
    return {
        "tree": torch.cat([torch.zeros(capacity), leaves]), "u": torch.rand(draws, generator=g),
        "rows": torch.randint(0, capacity, (draws,), generator=g), "count": torch.tensor([capacity - 1]),
    }  # fmt: skip


def _tree_call(x):
    tree = x["tree"].clone()
    empty = torch.zeros_like(tree)
    sumtree.rebuild(tree)
    drawn, none = sumtree.sample(tree, x["u"]), sumtree.sample(empty, x["u"])
    sumtree.update(tree, x["rows"], x["u"])
    weights = sumtree.weigh(tree, drawn, x["count"], 0.4)
    updated = tree.clone()
    sumtree.append(tree, x["count"], min(5, tree.numel() // 2))
    times = torch.zeros(tree.numel() // 2, dtype=torch.int32, device=tree.device)
    times[:3] = 1
    moments = sumtree.moments(tree, times, x["count"]).split(1)
    return drawn, none, updated, *weights, tree, *sumtree.weigh(empty, x["rows"], x["count"], 0.0), *moments


_TREE = (
    "sumtree_rebuild", "sumtree_sample", "sumtree_set_leaves", "sumtree_largest", "sumtree_append", "sumtree_weigh",
    "sumtree_moments", "sumtree_moments_finish",
)  # fmt: skip


@case(*_TREE, ulps=2)
class sum_tree:
    def inputs(g):
        return _tree_inputs(64, 50, g)  # 50 rows on 64 leaves: duplicates

    call = _tree_call


@case(*_TREE, ulps=2)
class sum_tree_of_several_blocks:
    def inputs(g):
        return _tree_inputs(4096, 33, g)

    call = _tree_call


@case(*_TREE[1:], ulps=2)
class sum_tree_of_one_leaf:
    def inputs(g):
        return {
            "tree": torch.tensor([0.0, 2.0]), "u": torch.rand(2, generator=g), "rows": torch.zeros(2).long(),
            "count": torch.tensor([9]),
        }  # fmt: skip

    call = _tree_call


@case("ring_put", "ring_take", "ring_tally", captured=False)
class ring_rows:
    def inputs(g):
        n = 9  # an odd width, a wide one, a scalar, flags, words of four, and what starts off a boundary
        shapes = {"odd": (7,), "wide": (12,), "scalar": (), "words": (3,)}
        rows = {name: torch.randn(n, *shape, generator=g) for name, shape in shapes.items()}
        raw = torch.randint(0, 99, (8 * n + 1,), generator=g, dtype=torch.uint8)
        return {
            **rows, "whole": torch.randint(-(2**62), 2**62, (1,), generator=g), "flags": rows["odd"] > 0, "raw": raw,
            "start": torch.tensor([17]), "at": torch.randint(0, 21, (30,), generator=g),
        }  # fmt: skip

    def call(x):
        sources = [x["odd"], x["wide"], x["scalar"], x["words"], x["whole"], x["flags"], x["raw"][1:].view(9, 8), None]
        kinds = [torch.zeros(1, dtype=torch.int32, device=x["at"].device) if s is None else s[:1] for s in sources]
        columns = [torch.ones(21, *k.shape[1:], dtype=k.dtype, device=k.device) for k in kinds]
        tally = torch.zeros(21, dtype=torch.int32, device=x["at"].device)
        rows = ring.Ring(columns)
        rows.put(sources, x["start"], 9)  # wraps
        rows.put(sources, x["start"], 9, scale=2, offset=-40)  # slots -6 .. 2
        ring.tally(x["at"], tally)
        ring.tally(x["at"][:7], tally)
        return *columns, *rows.take(x["at"]), *rows.take_run(x["start"], 9, scale=2, offset=-40), tally
