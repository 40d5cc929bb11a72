"""The kernels on a CUDA device: equal to their twins, bit-equal in a captured graph, the same from either compiler."""

import pytest
import torch

from kernels import build
from kernels.adamw import op as adamw
from kernels.digest import op as digest
from kernels.distances import op as distances
from kernels.policy import op as policy
from kernels.policy import reference as policy_reference
from kernels.ring import op as ring
from kernels.spectral import op as spectral
from tests.kernels.cases import CASES, made, ulps_apart

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no NVIDIA GPU"),
]
CAPTURED = [name for name, case in CASES.items() if case.captured]


@pytest.fixture(autouse=True)
def deterministic():
    """Also fills fresh memory with NaN, so that an output left unwritten shows."""
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


def _on_device(name, seed=0):
    return {key: x.cuda() for key, x in made(name, seed).items()}


@pytest.mark.parametrize("name", CASES)
def test_a_kernel_agrees_with_its_twin(name, monkeypatch):
    case, launched, launch = CASES[name], set(), build.launch

    def spy(family, function, *rest, **more):
        launched.add(function)
        launch(family, function, *rest, **more)

    monkeypatch.setattr(build, "launch", spy)
    got = case.call(_on_device(name))
    assert launched == case.kernels
    for one, twin in zip(got, case.call(made(name)), strict=True):
        assert ulps_apart(one.cpu(), twin) <= case.ulps


@pytest.mark.parametrize("name", CAPTURED)
def test_a_captured_graph_repeats_the_eager_bits(name):
    case, x = CASES[name], _on_device(name)
    eager = case.call(x)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        got = case.call(x)
    for key, other in _on_device(name, seed=1).items():  # the graph reads what lies there when it runs
        x[key].copy_(other)
    graph.replay()
    moved = [out.clone() for out in got]
    for key, first in _on_device(name).items():
        x[key].copy_(first)
    graph.replay()
    torch.cuda.synchronize()
    for out, expected in zip(got, eager, strict=True):
        assert torch.equal(out.view(torch.uint8), expected.view(torch.uint8))
    assert any(not torch.equal(a, b) for a, b in zip(moved, got))


def test_digests_of_fixed_buffers_run_in_a_captured_graph():
    buffers = list(_on_device("digests").values())
    digests = digest.Digests(buffers, range(len(buffers)))
    digests.run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = digests.run()
    for change in (0, 1):
        buffers[-1][7] += change
        graph.replay()
        expected = [digest.reference.digest64(x.cpu(), seed) for seed, x in enumerate(buffers)]
        assert [d % 2**64 for d in out.tolist()] == expected


def _ring(x):
    columns = [torch.zeros(9, 3, device="cuda"), torch.zeros(9, dtype=torch.int64, device="cuda")]
    rows, sources = ring.Ring(columns), [x["words"], x["whole"]]

    def run():
        rows.put(sources, x["start"], 9)
        return rows.take(x["at"] % 9)

    return sources[:1], columns, run


def _adamw(x):
    rates = x["rates"]
    adam = adamw.AdamW(
        {"a": slice(0, 9), "b": slice(9, len(rates))},
        rates,
        beta1=0.9,
        beta2=0.99,
        eps=1e-8,
        weight_decay=0.1,
        clip=1.0,
    )
    state = [x["weights"], torch.zeros_like(rates), torch.zeros_like(rates), torch.zeros_like(x["grads"][0, :1]).long()]
    stats = torch.zeros(len(adam.names), dtype=torch.float64, device="cuda")

    def run():
        adam.step(state[0], x["grads"][1], *state[1:], x["gates"][0], stats)
        return [*state, stats]

    return [x["grads"]], [*state, stats], run


def _chain(x):
    found = digest.Digests([[x["odd"], x["long"]], x["long"]], [x["seed"], 0], narrow=[1])
    return [x["long"]], [x["seed"]], lambda: [found.run(), x["seed"]]


def _distances(x):
    found = distances.Distances([(x["a"], x["b"]), (x["b"], None)])
    return [x["b"]], [], lambda: [found.run()]


def _powers(x):
    powers = spectral.Powers([x["tall"]], [x["u_tall"]])
    return [x["tall"]], [x["u_tall"]], lambda: [powers.step(), x["u_tall"]]


@pytest.mark.parametrize("name, prepare", [
    ("ring_rows", _ring), ("adamw_updates", _adamw), ("digests_of_lists", _chain), ("distances_of_pairs", _distances),
    ("power_iterations", _powers),
])  # fmt: skip
def test_what_was_prepared_over_fixed_buffers_runs_in_a_captured_graph(name, prepare):
    """prepare: the buffers that change, the state that a run moves, and the run itself."""
    changing, state, run = prepare(_on_device(name))
    start = [x.clone() for x in state]

    def outcome(go):
        for x, first in zip(state, start):
            x.copy_(first)
        return [x.clone() for x in go()]

    eager = outcome(run)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = run()

    def replay():
        graph.replay()
        return captured

    for change in range(2):
        again = outcome(replay)
        assert all(torch.equal(a.view(torch.uint8), b.view(torch.uint8)) for a, b in zip(again, eager, strict=True))
        for x in changing:
            x.mul_(2)  # the graph reads what lies there when it runs
        eager, before = outcome(run), eager
        assert change or any(not torch.equal(a, b) for a, b in zip(eager, before))


def test_the_action_drawn_is_that_of_the_probabilities_given():
    x = _on_device("policy_probabilities")
    pi, action, _ = policy.sample(x["logits"], x["legal"], x["draws"], x["floor"])
    u = policy_reference.uniform(x["draws"].cpu())
    assert torch.equal(action.cpu(), policy_reference.inverse_cdf(pi.cpu(), u))


@pytest.mark.parametrize("name", CASES)
def test_nvrtc_gives_the_bits_of_nvcc(name, monkeypatch):
    """Where nvcc is missing the same source is compiled in process."""
    expected = CASES[name].call(_on_device(name))
    monkeypatch.setattr(build.shutil, "which", lambda _: None)
    for cached in (build._module, build._function):
        cached.cache_clear()
    try:
        got = CASES[name].call(_on_device(name))
    finally:
        for cached in (build._module, build._function):
            cached.cache_clear()
    for one, other in zip(got, expected, strict=True):
        assert torch.equal(one.view(torch.uint8), other.view(torch.uint8))


def test_arguments_on_two_devices_are_refused():
    with pytest.raises(build.KernelError, match="lots_now lies on cpu, the arguments before on cuda:0"):
        words = torch.zeros(2, dtype=torch.int32)
        build.launch("lob", "lob_take", (1,), (32,), words.cuda(), words.long().cuda(), 2, words)
