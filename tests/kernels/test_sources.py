"""The CUDA sources themselves, run on the CPU: they agree with their twins whatever the order of blocks and threads."""

import shutil
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from kernels import build
from kernels.lob import op as lob
from kernels.policy import op as policy
from kernels.policy import reference as policy_reference
from tests.kernels import shim
from tests.kernels.cases import CASES, made, ulps_apart

ONE = torch.ones(1).long()


@pytest.fixture(scope="module", autouse=True)
def compiled():
    shim.compile_all()


@pytest.mark.parametrize("name", CASES)
def test_a_source_agrees_with_its_twin_under_every_schedule(name, monkeypatch):
    case = CASES[name]
    twin = case.call(made(name))
    results = []
    for poison in shim.POISONS:
        with shim.installed(monkeypatch, poison) as launched:
            results.append(case.call(made(name)))
        assert set(launched) == case.kernels
    for one, other, expected in zip(*results, twin, strict=True):
        assert torch.equal(one.view(torch.uint8), other.view(torch.uint8)), "reads or leaves memory nobody wrote"
        assert ulps_apart(one, expected) <= case.ulps


def test_every_kernel_has_a_case():
    declared = {name for family in build.families() for name in build.signatures(build.source_path(family))}
    assert declared == frozenset().union(*(case.kernels for case in CASES.values()))


def test_the_action_drawn_is_that_of_the_probabilities_given(monkeypatch):
    """Where a draw falls on a rounding of the probabilities, the action follows the kernel's own, not the twin's."""
    x = made("policy_probabilities")
    with shim.installed(monkeypatch, shim.POISONS[0]):
        pi, action, _ = policy.sample(x["logits"], x["legal"], x["draws"], x["floor"])
    assert torch.equal(action, policy_reference.inverse_cdf(pi, policy_reference.uniform(x["draws"])))
    assert (action[0], action[1]) == (x["legal"][0].nonzero()[0], x["legal"][1].nonzero()[-1])


@pytest.mark.parametrize("name, call", [
    ("logits", lambda: CASES["double_q"].call(made("double_q") | {"logits": torch.ones(3, 37, 11, 129)})),
    ("logits", lambda: policy.sample(torch.ones(1, 129), torch.ones(1, 129) > 0, torch.zeros(1).long(), 0.0)),
    ("px", lambda: lob.fill(ONE, ONE, *torch.ones(2, 1, 1281).int(), ONE > 0)),
])  # fmt: skip
def test_a_row_wider_than_a_block_holds_is_refused(name, call, monkeypatch):
    with shim.installed(monkeypatch, shim.POISONS[0], schedules=1), pytest.raises(ValueError, match=rf"^{name}: "):
        call()


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not installed")
def test_nvcc_compiles_every_target(tmp_path):
    targets = [f"sm_{arch}" for arch in build.ARCHITECTURES] + [f"compute_{build.ARCHITECTURES[-1]}"]
    pairs = [(family, target) for family in build.families() for target in targets]
    nvcc = shutil.which("nvcc")
    with ThreadPoolExecutor(2) as pool:
        compiled = list(pool.map(lambda pair: build.compile_ahead(*pair, nvcc, tmp_path), pairs))
    for (family, _), path in zip(pairs, compiled):
        for name in build.signatures(build.source_path(family)):
            assert name.encode() in path.read_bytes()
    assert set(tmp_path.iterdir()) == set(compiled)  # nothing half-written is left
