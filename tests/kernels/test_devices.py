"""Ops of a step, on a CUDA device in a captured graph (so without host synchronisation), agree with the CPU."""

import pytest
import torch

from kernels.c51 import op as c51
from kernels.gae import op as gae
from kernels.lob import op as lob
from kernels.philox import op as philox
from kernels.scan import op as scan
from kernels.sumtree import op as sumtree

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no NVIDIA GPU"),
]


def _inputs():
    """Inputs of every case, drawn on the host so that both devices get the same."""
    g = torch.Generator().manual_seed(0)
    leaves = torch.rand(64, generator=g) * (torch.rand(64, generator=g) < 0.5)
    px = torch.arange(10, dtype=torch.int32).repeat(32, 1) + torch.randint(-5, 5, (32, 1), generator=g)
    return {
        "a": torch.rand(8, 32, 16, generator=g),
        "b": torch.randn(8, 32, 16, generator=g),
        "rollout": torch.randn(3, 20, 6, generator=g),
        "flags": torch.rand(2, 20, 6, generator=g) < 0.2,
        "probs": torch.randn(32, 21, generator=g).softmax(1),
        "r": torch.randn(32, generator=g),
        "discounts": torch.full((32,), 0.97),
        "v_max": torch.tensor(1.5),
        "tree": torch.cat([torch.zeros(64), leaves]),
        "u": torch.rand(16, generator=g),
        "rows": torch.randint(0, 64, (16,), generator=g),
        "px": torch.where(torch.arange(10) < torch.randint(0, 11, (32, 1), generator=g), px, lob.ABSENT).int(),
        "sz": torch.randint(1, 9, (32, 10), generator=g, dtype=torch.int32),
        "side": torch.randint(-1, 2, (32,), generator=g),
        "lots": torch.randint(0, 60, (32,), generator=g),
        "force": torch.rand(32, generator=g) < 0.5,
    }


def _scan(x):
    pair = [x[name].clone().requires_grad_() for name in ("a", "b")]
    h = scan.selective_scan(*pair)
    return h.detach(), *torch.autograd.grad((h * x["b"]).sum(), pair)


def _gae(x):
    return gae.gae(*x["rollout"], *x["flags"], 0.99, 0.95)


def _c51(x):
    m = c51.project(x["probs"], x["r"], x["discounts"], -x["v_max"], x["v_max"])
    return m, c51.cross_entropy(x["probs"], m)


def _sumtree(x):
    tree = x["tree"].clone()
    sumtree.rebuild(tree)
    drawn = sumtree.sample(tree, x["u"])
    sumtree.update(tree, x["rows"], x["u"])
    return drawn, tree


def _lob(x):
    sz = torch.where(x["px"] == lob.ABSENT, 0, x["sz"])
    avail, memory = lob.available(lob.new_memory(*sz.shape, sz.device), x["px"], sz)
    got = lob.fill(x["side"], x["lots"], x["px"], avail, x["force"])
    left, _ = lob.available(lob.take(memory, got.per_level), x["px"], sz)
    return *got, left, *lob.mid_half_ticks(x["px"][:, 0], x["px"][:, 1])


def _philox(x):
    drawn = philox.words(7, "action", 3, x["rows"], 4)
    return drawn, philox.uniform(drawn)


@pytest.fixture
def deterministic():
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize("case, exact", [
    (_scan, False), (_gae, False), (_c51, False), (_sumtree, True), (_lob, True), (_philox, True),
])  # fmt: skip
def test_a_captured_graph_agrees_with_the_cpu(case, exact, deterministic):
    x = _inputs()
    expected = case(x)
    on_device = {name: v.cuda() for name, v in x.items()}
    side_stream = torch.cuda.Stream()
    with torch.cuda.stream(side_stream):
        case(on_device)  # warm-up outside the capture
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        got = case(on_device)
    graph.replay()
    torch.cuda.synchronize()
    tolerance = {"rtol": 0, "atol": 0} if exact else {"rtol": 1e-5, "atol": 1e-5}
    torch.testing.assert_close([v.cpu() for v in got], list(expected), **tolerance)
