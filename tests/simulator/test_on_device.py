"""A captured graph of a step on a CUDA device (so without host synchronisation) gives the bits of the CPU."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

from foxhunt_assets.simulator import measure
from foxhunt_assets.simulator.config import EnvConfig
from foxhunt_assets.simulator.market_view import MarketView
from foxhunt_assets.simulator.simulator import Simulator
from foxhunt_assets.simulator.walk import TrainWalk, session_end_rows
from tests.simulator import tapes

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no NVIDIA GPU"),
]
ACCOUNTS, WINDOW, STEPS = 64, 3, 120
ENV = EnvConfig(min_hold_steps=2, episode_length=30, latency_steps=2, lots_large=3, trail_initial_mult=1.0)


class Bench:
    """Simulator and counters on one device; `run` makes a step from buffers, the same code eager and captured."""

    def __init__(self, device):
        tape, ranges, ends = tapes.random_tape(np.random.default_rng(1))
        host = tapes.view(tape)
        fields = {f.name: getattr(host, f.name) for f in dataclasses.fields(host)}
        moved = {n: v.to(device) if isinstance(v, torch.Tensor) else v for n, v in fields.items()}
        market = MarketView(**moved)
        self.buffers = {n: t.to(device) for n, t in tapes.buffers(ACCOUNTS, ENV).items()}
        for s in measure.specs():
            self.buffers[s.name] = torch.full(s.shape, s.fill, dtype=getattr(torch, s.dtype), device=device)
        walk = TrainWalk(market, ranges, session_end_rows(market.rows, ends), self.buffers, 3, WINDOW)
        self.sim = Simulator(ENV, market, walk, self.buffers, ACCOUNTS, WINDOW)
        self.counters = measure.Counters(ENV, ACCOUNTS, 1250, self.buffers)
        self.actions = torch.full((ACCOUNTS,), 2, device=device)
        self.signs = torch.zeros(ACCOUNTS, 3, dtype=torch.int8, device=device)
        self.step = torch.zeros((), dtype=torch.int64, device=device)
        self.sim.reset(0)
        self.counters.reset()

    def run(self):
        seen = self.sim.observe().clone(), self.sim.legal_mask().clone()  # the step writes over them
        out = self.sim.step(self.actions, self.step, self.signs, False)
        self.counters.update(self.sim, out)
        self.sim.advance(self.step)
        words = {f.name: getattr(out, f.name) for f in dataclasses.fields(out)}
        return *seen, *(words | {"trades": words["trades"] * words["trade_mask"][:, :, None]}).values()


def _captured(bench):
    kept = {name: t.clone() for name, t in bench.buffers.items()}
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        bench.run()
    torch.cuda.current_stream().wait_stream(stream)
    for name, t in kept.items():
        bench.buffers[name].copy_(t)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        results = bench.run()
    return graph, results


def test_a_captured_step_gives_the_bits_of_the_cpu():
    host, device = Bench("cpu"), Bench("cuda")
    graph, results = _captured(device)
    rng, closes = np.random.default_rng(2), 0
    for step in range(STEPS):
        actions = torch.from_numpy(rng.integers(0, 11, ACCOUNTS))
        signs = torch.from_numpy(rng.integers(-1, 2, (ACCOUNTS, 3))).to(torch.int8)
        for bench in (host, device):
            bench.actions.copy_(actions)
            bench.signs.copy_(signs)
            bench.step.fill_(step)
        wanted = host.run()
        graph.replay()
        closes += int(host.buffers["diag_sim_totals"][0])
        for ours, theirs in zip(results, wanted, strict=True):
            assert torch.equal(ours.cpu().view(torch.uint8), theirs.contiguous().view(torch.uint8))
        for name, t in host.buffers.items():
            if name != "diag_sim_floats":
                assert torch.equal(device.buffers[name].cpu(), t), name
    assert closes > 1000
    assert host.counters.leaves("train") == pytest.approx(device.counters.leaves("train"))
