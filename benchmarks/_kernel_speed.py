"""Microseconds of a row's kernel, of its twin, and of the twin through torch.compile."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from benchmarks.kernel_rows import Row

CALLS, REPLAYS = 20, 20
FEW_CALLS, LONG_US = 2, 2_000  # of a graph, where one eager call takes longer than that


def captured_us(call: Callable[[], Any], calls: int = CALLS) -> float:
    """Microseconds a call inside a captured graph of so many."""
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(3):
            call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kept = [call() for _ in range(calls)]
    graph.replay()
    times = []
    for _ in range(REPLAYS):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) * 1000 / calls)
    del kept
    return statistics.median(times)


def eager_us(call: Callable[[], Any]) -> float:
    """Microseconds a call from Python, host included."""
    call()
    torch.cuda.synchronize()
    begin = time.perf_counter()
    for _ in range(CALLS):
        call()
    torch.cuda.synchronize()
    return (time.perf_counter() - begin) * 1e6 / CALLS


def copy_bandwidth() -> float:
    """Bytes a second of a large device copy, read and written. By a kernel: a captured memcpy node is slower."""
    source = torch.randn(1 << 28, device="cuda")
    target = torch.empty_like(source)
    return 8 * source.numel() / (captured_us(lambda: torch.add(source, 1.0, out=target)) * 1e-6)


def measure(row: Row, bandwidth: float, with_compile: bool) -> dict[str, Any]:
    """One row of the report; AssertionError where kernel and twin disagree."""
    agree(row)
    out: dict[str, Any] = {"name": row.name, "floor_us": row.moved / bandwidth * 1e6, "bytes": row.moved}
    for name, call in (("kernel", row.kernel), ("twin", row.twin)):
        once = partial(call, *row.args)
        eager = out[f"{name}_eager_us"] = eager_us(once)
        out[f"{name}_us"] = captured_us(once, CALLS if eager < LONG_US else FEW_CALLS)
    if with_compile and row.compiled:
        begin = time.perf_counter()
        torch._dynamo.reset()
        fused = torch.compile(row.peer or row.twin, fullgraph=True)
        try:
            fused(*row.args)
            out["compiled_us"] = captured_us(lambda: fused(*row.args))
        except Exception as error:  # a twin torch.compile refuses is a finding, not a failure of the kernel
            out["compile_error"] = str(error).strip().splitlines()[0][:200]
        out["compile_s"] = time.perf_counter() - begin
    return out


def agree(row: Row) -> None:
    """AssertionError where kernel and twin are further apart than the row allows."""
    want, got = (call(*(x.clone() if isinstance(x, torch.Tensor) else x for x in row.args))
                 for call in (row.oracle or row.twin, row.kernel))  # fmt: skip
    pairs = [(got, want)] if isinstance(got, torch.Tensor) else list(zip(got, want, strict=True))
    for ours, twin in pairs:
        if not twin.is_floating_point():
            assert torch.equal(ours.to(twin.dtype), twin.to(ours.device)), f"{row.name}: not equal to the twin"
            continue
        apart = float((ours.double() - twin.double()).abs().max() / twin.double().abs().max().clamp_min(1e-30))
        assert apart <= row.tolerance, f"{row.name}: {apart} from the twin"
