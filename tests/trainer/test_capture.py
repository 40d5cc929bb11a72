"""Which runs of a list are eager and which a graph; what a broken capture says. The bits: test_on_devices.py."""

import pytest
import torch

from foxhunt_assets.contracts.buffers import BufferSpec
from foxhunt_assets.trainer.capture import Runner
from foxhunt_assets.trainer.program import Flags, Program, Registry, Stage, StageFault
from kernels.build import KernelError

GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")


def _program(device: str, work) -> tuple[Program, torch.Tensor, list[str]]:
    registry, calls = Registry(device), []
    registry.add(BufferSpec("x", (4,), "float32", "account"))
    program = Program(registry)
    for name in ("a", "b"):
        program.add(name, [Stage("only", lambda flags, name=name: (calls.append(name), work(registry["x"], flags)))])
    return program, registry["x"], calls


def test_on_a_cpu_every_run_is_eager():
    program, x, calls = _program("cpu", lambda x, _: x.add_(1))
    runner = Runner(program, captured=False)
    for _ in range(5):
        runner.run(Flags(), "a", "b")
    assert calls == ["a", "b"] * 5 and x.tolist() == [10.0] * 4


@pytest.mark.gpu
@GPU
def test_the_second_run_is_captured_and_flags_have_graphs_of_their_own():
    program, x, calls = _program("cuda", lambda x, flags: x.add_(10 if flags.closes else 1))
    runner = Runner(program, captured=True)
    for _ in range(6):
        runner.run(Flags(), "a", "b")
    runner.run(Flags(closes=True), "a")
    assert calls == ["a", "b"] * 2 + ["a"]  # eager, captured, then only replayed
    assert x.tolist() == [22.0] * 4


@pytest.mark.gpu
@GPU
def test_a_stage_that_breaks_its_capture_is_named():
    def work(x, _):
        if torch.cuda.is_current_stream_capturing():
            raise KernelError("kernel no_such: first launched inside a graph capture")
        x.add_(1)

    runner = Runner(_program("cuda", work)[0], captured=True)
    runner.run(Flags(), "a")
    with pytest.raises(StageFault, match=r"stage a\.only: kernel no_such"):
        runner.run(Flags(), "a")


@pytest.mark.gpu
@GPU
def test_a_stage_that_asks_the_device_cannot_be_captured_and_is_named():
    program, _, _ = _program("cuda", lambda x, _: x.add_(float(x[0])))
    runner = Runner(program, captured=True)
    runner.run(Flags(), "a")
    with pytest.raises(StageFault, match=r"stage a\.only|capture of a"):
        runner.run(Flags(), "a")
