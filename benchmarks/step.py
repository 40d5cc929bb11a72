"""The training step on a GPU: captured, eager and from torch.compile, and the simulator against a bare fill.

    python -m benchmarks.step                 everything (some minutes; needs a GPU, says so where there is none)
    python -m benchmarks.step --only rows     rows | learning | training | diagnostics | digests | simulator | fill
    python -m benchmarks.step --only mode1    what a mode costs; a process of its own, as mode0 and mode2 are

benchmarks.twins holds the passes of a step against torch.compile.

Every row is measured in this process on this card, after warm-up, capture and compilation; times are medians of
CUDA-event intervals over whole replays, training rates are wall time with the diagnostics written to a file.
A compiled peer counts only where its positions and cash are bit-equal to the kernel's.
"""

from __future__ import annotations

import argparse
import dataclasses
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import torch

from foxhunt_assets.contracts.instruments import contract
from foxhunt_assets.simulator.actions import N_ACTIONS
from foxhunt_assets.simulator.trades import TradeLog
from foxhunt_assets.trainer import loop, reward
from foxhunt_assets.trainer.assemble import Assembly, assemble
from foxhunt_assets.trainer.capture import Runner
from foxhunt_assets.trainer.config import TrainerConfig, from_profile
from foxhunt_assets.trainer.diag import DiagWriter
from foxhunt_assets.trainer.outbox import Outbox
from foxhunt_assets.trainer.program import Flags
from foxhunt_assets.trainer.run_spec import RunSpec
from foxhunt_assets.trainer.world import World
from kernels.lob import op as lob
from kernels.philox import op as philox
from tests.trainer.fold_by_hand import make_fold_on_disk

ROW = ("collect", "measure", "advance")
STEPS_A_GRAPH = 64
REPLAYS = 30


# --- runs and clocks ------------------------------------------------------------------------------


class Bench:
    """Folds made once a window and horizons; runs over them on the GPU."""

    def __init__(self, home: Path, rows: int = 20_000) -> None:
        self.home, self.rows = home, rows
        self.spec: RunSpec | None = None

    def config(self, accounts: int, **learning: Any) -> TrainerConfig:
        model, rates = {"accounts": accounts}, {"rollout_steps": 32, **learning}
        return from_profile("full", {"model": model, "learning": rates, "run": {"n_steps": 1_000_000}})

    def run(self, config: TrainerConfig, captured: bool = True) -> Assembly:
        if self.spec is None:
            self.spec = make_fold_on_disk(self.home, config, sessions=4, rows=self.rows)
        run = assemble(dataclasses.replace(self.spec, config=config, device="cuda"))
        run.runner = Runner(run.program, captured)
        run.world.simulator.reset(0)
        return run


def replay_ms(call: Callable[[], Any], calls: int = 1, warm: int = 3) -> float:
    """Median milliseconds of one of `calls` calls, between two events with nothing else queued."""
    for _ in range(warm):
        call()
    times = []
    for _ in range(REPLAYS):
        torch.cuda.synchronize()
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        for _ in range(calls):
            call()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) / calls)
    return statistics.median(times)


def wall_ms(call: Callable[[], Any], calls: int) -> float:
    """Milliseconds a call, the host included."""
    call()
    torch.cuda.synchronize()
    begin = time.perf_counter()
    for _ in range(calls):
        call()
    torch.cuda.synchronize()
    return (time.perf_counter() - begin) * 1e3 / calls


def lists_ms(run: Assembly, flags: Flags, *names: str) -> float:
    """Milliseconds of stage lists, replayed."""
    return replay_ms(lambda: run.runner.run(flags, *names))


def eager_ms(run: Assembly, *names: str) -> float:
    """Milliseconds of stage lists run launch by launch, the host included."""
    return wall_ms(lambda: run.runner.run(Flags(), *names), 10)


@contextmanager
def listening(run: Assembly, folder: Path) -> Iterator[Outbox]:
    """The host side of a training: rows checked and written, trades kept."""
    writer = DiagWriter(folder / "diag.jsonl")
    log = loop.RowLog(run, writer, loop.Ticker(lambda _: None, 1 << 40, 0.0), TradeLog("train"))
    with Outbox(run.world.device, log.take) as outbox:
        yield outbox
    writer.close()


def train(run: Assembly, steps: int, folder: Path, measured: bool = True) -> float:
    """Seconds of so many training rows, after two warm windows; measured: with the diagnostics of every row."""
    window = run.world.config.learning.window_rows
    names = ROW if measured else ("collect", "advance")

    def row(step: int, outbox: Outbox) -> None:
        flags = Flags(closes=(step + 1) % window == 0)
        if measured:
            loop._training_row(run, flags)
            outbox.post(run.diag.outgoing)
        elif not flags.closes:
            run.runner.run(flags, *names)
        else:
            c = run.world.config.learning
            run.runner.run(flags, "collect")
            for _ in range(c.window_epochs):
                run.runner.run(Flags(), "shuffle")
                for _ in range(c.window_minibatches):
                    run.runner.run(Flags(), "learn")
            run.runner.run(flags, "advance")

    warm = 3 * window if window > 1 else 8
    with listening(run, folder) as outbox:
        for step in range(warm):
            row(step, outbox)
        outbox.flush()
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for step in range(warm, warm + steps):
            row(step, outbox)
        outbox.flush()
        torch.cuda.synchronize()
        return time.perf_counter() - begin


# --- what is measured -----------------------------------------------------------------------------


def rows(bench: Bench, say: Callable[..., None]) -> None:
    """A collection row with its diagnostics: captured, without them, eager."""
    for accounts in (128, 1024):
        run, eager = (bench.run(bench.config(accounts), captured) for captured in (True, False))
        whole, bare = lists_ms(run, Flags(), *ROW), lists_ms(run, Flags(), "collect", "advance")
        slow = eager_ms(eager, *ROW)
        say(f"collection row, B={accounts}, captured", ms=whole)
        say(f"collection row, B={accounts}, captured, diagnostics off", ms=bare)
        say(f"collection row, B={accounts}, eager", ms=slow, ratio=slow / whole, of="eager / captured")


def filled(run: Assembly) -> Assembly:
    """A run whose window has closed once: there is something to learn from."""
    window = run.world.config.learning.window_rows
    for step in range(window):
        run.runner.run(Flags(closes=step == window - 1), "collect")
        run.runner.run(Flags(closes=step == window - 1), "measure", "advance")
    run.runner.run(Flags(), "shuffle")
    return run


def learning(bench: Bench, say: Callable[..., None]) -> None:
    """A minibatch of 1,024 rollout and 1,024 replay rows, and an update a row."""
    run = filled(bench.run(bench.config(128)))
    captured = lists_ms(run, Flags(), "learn")
    slow = eager_ms(filled(bench.run(bench.config(128), captured=False)), "learn")
    say("learning minibatch, 1,024 + 1,024 rows, captured", ms=captured)
    say("learning minibatch, 1,024 + 1,024 rows, eager", ms=slow, ratio=slow / captured, of="eager / captured")
    for accounts in (128, 1024):
        run = bench.run(bench.config(accounts, mode="per_step", replay_rows=accounts))
        whole = lists_ms(run, Flags(closes=True), "collect", "shuffle", "learn", "measure", "advance")
        update = lists_ms(run, Flags(), "shuffle", "learn")
        say(f"per_step row and update, B={accounts}, captured", ms=whole)
        say(f"per_step update alone, B={accounts}, captured", ms=update)


def training(bench: Bench, say: Callable[..., None]) -> None:
    """Transitions a second of whole trainings, diagnostics written."""
    for accounts in (128, 1024):
        run = bench.run(bench.config(accounts))
        n = 32 * 8
        seconds = train(run, n, bench.home)
        say(f"rollout training, T=32, 4 x 4, B={accounts}", per_s=n * accounts / seconds, unit="transitions/s")
    run = bench.run(bench.config(1024, mode="per_step", replay_rows=1024))
    seconds = train(run, 256, bench.home)
    say("per_step training, B=1024", per_s=256 * 1024 / seconds, unit="transitions/s")


def diagnostics(bench: Bench, say: Callable[..., None]) -> None:
    """Trainings with the diagnostics of every row and without any, in turns."""
    on, off = (bench.run(bench.config(128)) for _ in range(2))
    n, rounds = 32 * 8, 5
    seconds = [(train(on, n, bench.home), train(off, n, bench.home, measured=False)) for _ in range(rounds)]
    with_rows, without = (statistics.median(column) for column in zip(*seconds))
    say("training row, B=128, diagnostics on", ms=with_rows / n * 1e3)
    say("training row, B=128, diagnostics off", ms=without / n * 1e3)
    say("diagnostics on / off, training, B=128", ratio=with_rows / without, of="seconds")


def digest_all(bench: Bench, say: Callable[..., None]) -> None:
    """What a digest of everything costs."""
    run = bench.run(bench.config(128))
    from kernels.digest import op as digest

    digests = digest.Digests(list(run.world.buffers.values()), [0] * len(run.world.buffers))
    digests.run()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        digests.run()
    ms = replay_ms(graph.replay)
    moved = sum(x.numel() * x.element_size() for x in run.world.buffers.values())
    say(f"digest of all {len(run.world.buffers)} buffers, {moved / 1e6:.0f} MB", ms=ms)


def mode_price(bench: Bench, say: Callable[..., None], mode: int) -> None:
    """Seconds of the same training under one mode of run.deterministic; a process each."""
    config = bench.config(128)
    config = dataclasses.replace(config, run=dataclasses.replace(config.run, deterministic=mode))
    seconds = train(bench.run(config), 32 * 8, bench.home)
    say(f"FOXHUNT_DETERMINISTIC={mode}, training, B=128", ms=seconds / 256 * 1e3)


def simulator(bench: Bench, say: Callable[..., None]) -> None:
    """The simulator alone, everything it does: 64 steps with random actions in one graph."""
    for accounts in (128, 8_192, 131_072):
        world = bench.run(bench.config(accounts, replay_capacity=1 << 17, rollout_steps=32)).world
        sim, clock = world.simulator, world.clock
        actions = torch.randint(0, N_ACTIONS, (STEPS_A_GRAPH, accounts), device="cuda")
        signs = torch.zeros(accounts, 3, dtype=torch.int8, device="cuda")

        def steps(sim: Any = sim, clock: Any = clock, actions: torch.Tensor = actions, signs: torch.Tensor = signs):
            for i in range(STEPS_A_GRAPH):
                sim.step(actions[i], clock.step, signs, False)
                sim.advance(clock.step)
                clock.row_done()

        ms = replay_ms(captured(steps).replay) / STEPS_A_GRAPH
        say(f"simulator alone, B={accounts:,}", ms=ms, per_s=accounts / ms * 1e3, unit="account-steps/s")
        ms = replay_ms(captured(partial(_act_to_reward, world)).replay) / STEPS_A_GRAPH
        say(f"random action to reward, B={accounts:,}", ms=ms, per_s=accounts / ms * 1e3, unit="account-steps/s")


def _act_to_reward(world: World) -> None:
    """64 steps: a random action, the simulator with observation and legal actions, whitened reward, next episodes."""
    b, point_lot_cents = world.buffers, contract(world.tape.spec.root).multiplier_cents
    rows = torch.arange(world.config.model.accounts, device=world.device)
    for _ in range(STEPS_A_GRAPH):
        actions = philox.words(world.seed, "action", world.clock.step, rows, 1)[:, 0] % N_ACTIONS
        o = world.simulator.step(actions, world.clock.step, b["entry_signs"], False)
        reward.apply(b, o.core_cents, o.fee_cents, point_lot_cents, learn=True)
        world.simulator.advance(world.clock.step)
        world.clock.row_done()


def captured(call: Callable[[], Any]) -> torch.cuda.CUDAGraph:
    call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    return graph


def fill(bench: Bench, say: Callable[..., None]) -> None:
    """The same market orders through ten levels: our kernel and a torch.compile loop, positions and cash compared."""
    rows_, levels = 1 << 20, 10
    g = torch.Generator(device="cuda").manual_seed(0)
    px = 20_000 + torch.arange(levels, device="cuda", dtype=torch.int32).expand(rows_, levels).contiguous()
    sz = torch.randint(1, 60, (rows_, levels), device="cuda", dtype=torch.int32, generator=g)
    for accounts in (8_192, 131_072):
        lots = torch.randint(0, 300, (STEPS_A_GRAPH, accounts), device="cuda", generator=g)
        anchors = torch.randint(0, rows_ - STEPS_A_GRAPH, (accounts,), device="cuda", generator=g)
        p, c, ours = _filled(_our_fill, px, sz, anchors, lots)
        q, d, theirs = _filled(torch.compile(_bare_fill, fullgraph=True), px, sz, anchors, lots)
        assert torch.equal(p, q) and torch.equal(c, d), "the peer's positions or cash differ: its row does not count"
        name = f"bare fill of ten levels, B={accounts:,}"
        say(f"{name}, ours", ms=ours, per_s=accounts / ours * 1e3, unit="fills/s")
        say(f"{name}, torch.compile, captured by hand", ms=theirs, per_s=accounts / theirs * 1e3, unit="fills/s",
            ratio=theirs / ours, of="compiled / ours")  # fmt: skip


def _filled(one: Callable[..., None], px: torch.Tensor, sz: torch.Tensor, anchors: torch.Tensor, lots: torch.Tensor
            ) -> tuple[torch.Tensor, torch.Tensor, float]:  # fmt: skip
    """(positions, cash after 64 steps from nothing, milliseconds a step)."""
    pos, cash = (torch.zeros(lots.shape[1], dtype=torch.int64, device="cuda") for _ in range(2))

    def steps() -> None:
        for i in range(STEPS_A_GRAPH):
            one(px, sz, anchors + i, lots[i], pos, cash)

    graph = captured(steps)
    pos.zero_()
    cash.zero_()
    graph.replay()
    return pos.clone(), cash.clone(), replay_ms(graph.replay) / STEPS_A_GRAPH


def _our_fill(px: torch.Tensor, sz: torch.Tensor, at: torch.Tensor, lots: torch.Tensor, pos: torch.Tensor,
              cash: torch.Tensor) -> None:  # fmt: skip
    done = lob.fill(torch.ones_like(lots), lots, px[at], sz[at], torch.zeros_like(lots, dtype=torch.bool))
    pos.add_(done.filled)
    cash.sub_(done.tick_lots * 1_250)


def _bare_fill(px: torch.Tensor, sz: torch.Tensor, at: torch.Tensor, lots: torch.Tensor, pos: torch.Tensor,
               cash: torch.Tensor) -> None:  # fmt: skip
    left, cost = lots, torch.zeros_like(lots)
    for level in range(px.shape[1]):
        got = torch.minimum(left, sz[at, level].to(torch.int64))
        cost = cost + got * px[at, level].to(torch.int64)
        left = left - got
    pos.add_(lots - left)
    cash.sub_(cost * 1_250)


SECTIONS = {
    "rows": rows, "learning": learning, "training": training, "diagnostics": diagnostics, "digests": digest_all,
    "simulator": simulator, "fill": fill,
}  # fmt: skip


def _say(name: str, ms: float | None = None, per_s: float | None = None, unit: str = "", ratio: float | None = None,
         of: str = "") -> None:  # fmt: skip
    parts = [f"{name:66s}"]
    parts += [f"{ms:9.4f} ms"] if ms is not None else []
    parts += [f"{per_s:16,.0f} {unit}"] if per_s is not None else []
    parts += [f"{ratio:7.3f} x ({of})"] if ratio is not None else []
    print("  ".join(parts), flush=True)


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument(
        "--only",
        choices=(*SECTIONS, "mode0", "mode1", "mode2"),
        nargs="*",
        default=list(SECTIONS),
    )
    args = parser.parse_args(argv)
    if not torch.cuda.is_available():
        print("no NVIDIA GPU: the captured step was not measured")
        return 2
    print(f"{torch.cuda.get_device_name()}  torch {torch.__version__}")
    with tempfile.TemporaryDirectory() as home:
        bench = Bench(Path(home))
        for name in args.only:
            if name.startswith("mode"):
                mode_price(bench, _say, int(name[-1]))
            else:
                SECTIONS[name](bench, _say)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
