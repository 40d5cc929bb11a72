"""Training and evaluation, top to bottom: collect a row, learn when a window is full, measure, advance."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from foxhunt_assets import storage
from foxhunt_assets.contracts.diag import flatten
from foxhunt_assets.errors import BadInput
from foxhunt_assets.simulator.trades import TradeLog
from foxhunt_assets.trainer import artefacts, checkpoint, slots
from foxhunt_assets.trainer.assemble import Assembly, assemble
from foxhunt_assets.trainer.checkpoint import Resume
from foxhunt_assets.trainer.config import TrainerConfig
from foxhunt_assets.trainer.diag import DiagWriter
from foxhunt_assets.trainer.equity import EquityLog
from foxhunt_assets.trainer.numbers import Row
from foxhunt_assets.trainer.outbox import Outbox
from foxhunt_assets.trainer.program import Flags
from foxhunt_assets.trainer.run_spec import RunSpec

Say = Callable[[str], None]
_PROGRESS_S = 2.0


def train(spec: RunSpec, say: Say) -> dict[str, Any]:
    """Train one fold and seed and commit spec.out; returns its manifest. A finished run is not run again."""
    if manifest := _finished(spec, say):
        return manifest
    with storage.lock(Path(spec.lock), f"device {spec.device}"), storage.lock(_key_lock(spec), "this training"):
        if manifest := _finished(spec, say):  # by another process, while this one waited to start
            return manifest
        storage.sweep(Path(spec.out))
        run = assemble(spec)
        resume = Resume(Path(spec.resume))
        resume.folder.mkdir(parents=True, exist_ok=True)
        trades, done = TradeLog("train"), _resume(run, resume, say)
        if done:
            trades.load(done.pop("trades"))
        else:
            resume.diag.unlink(missing_ok=True)
            run.world.simulator.reset(0)
        row = _training_steps(spec, run, resume, trades, done, say)
        manifest = artefacts.commit_training(spec, run.world, resume, trades, row)
        resume.clear()
    say(f"committed {spec.out}")
    return manifest


def _training_steps(
    spec: RunSpec, run: Assembly, resume: Resume, trades: TradeLog, done: dict[str, Any], say: Say
) -> Row:
    """Steps [done, n_steps); the last row of diagnostics."""
    c = spec.config
    first = done.get("step", 0)
    ticker = Ticker(say, c.run.n_steps, done.get("elapsed_s", 0.0))
    writer = DiagWriter(resume.diag)
    log = RowLog(run, writer, ticker, trades)
    with Outbox(run.world.device, log.take) as outbox:
        for step in range(first, c.run.n_steps):
            flags = Flags(closes=(step + 1) % c.learning.window_rows == 0, last=step == c.run.n_steps - 1)
            _training_row(run, flags)
            outbox.post(run.diag.outgoing)
            if (step + 1) % c.run.checkpoint_every == 0 and not flags.last:
                outbox.flush()
                meta = {
                    "step": step + 1, "elapsed_s": ticker.elapsed, "diag_bytes": writer.flush(),
                    "machine": artefacts.machine(run.world),
                }  # fmt: skip
                resume.save(run.world, trades.state(), meta)
        outbox.flush()
    writer.close()
    return log.row


def _training_row(run: Assembly, flags: Flags) -> None:
    """One row with frozen weights; once it fills the window, epochs x minibatches of learning. Then the row is
    measured and ended accounts start anew."""
    if not flags.closes:
        run.runner.run(flags, "collect", "measure", "advance")
        return
    c = run.world.config.learning
    if c.per_step:
        run.runner.run(flags, "collect", "shuffle", "learn", "measure", "advance")
        return
    run.runner.run(flags, "collect")
    for _ in range(c.epochs):
        run.runner.run(Flags(), "shuffle")
        for _ in range(c.minibatches):
            run.runner.run(Flags(), "learn")
    run.runner.run(flags, "measure", "advance")


class RowLog:
    """What becomes of a row on the host: its trades, in evaluation its equity, its line of diagnostics, progress."""

    def __init__(
        self, run: Assembly, writer: DiagWriter, ticker: Ticker, trades: TradeLog, equity: EquityLog | None = None
    ) -> None:
        self.run, self.writer, self.ticker, self.trades, self.equity = run, writer, ticker, trades, equity
        self.row: Row = {}  # the last one

    def take(self, sent: torch.Tensor) -> None:
        """DiagBuilder.outgoing of one row."""
        tables = self.run.diag.packing.tables(sent)
        self.trades.add(tables["trades"], tables["mask"].bool())
        if self.equity is not None:
            self.equity.add(tables["equity"])
        self.row = self.run.diag.row(sent)
        self.writer.write(self.row, self.ticker.elapsed)
        self.ticker.tell(self.row)


def _resume(run: Assembly, resume: Resume, say: Say) -> dict[str, Any]:
    """What a checkpoint of the same libraries and device left to go on from; one of others is said and dropped."""
    meta = resume.newest()
    if meta is None:
        return {}
    if meta["machine"] != artefacts.machine(run.world):
        say(f"starting anew: the checkpoint of step {meta['step']} was made with other libraries or on another device")
        resume.clear()
        resume.folder.mkdir(parents=True)
        return {}
    trades = resume.load(run.world)
    say(f"resuming from step {meta['step']}")
    return {**meta, "trades": trades}


def evaluate(spec: RunSpec, say: Say) -> dict[str, Any]:
    """Walk the evaluation range once with a finished training's frozen weights and commit spec.out."""
    if manifest := _finished(spec, say):
        return manifest
    train_dir = Path(spec.train_dir)
    storage.verify(train_dir)
    last = artefacts.last_row(train_dir / artefacts.TRAIN_DIAG)
    with storage.lock(Path(spec.lock), f"device {spec.device}"), storage.lock(_key_lock(spec), "this evaluation"):
        storage.sweep(Path(spec.out))
        run = assemble(spec, flatten(last))
        facts = checkpoint.load_final(train_dir, run.world)
        _check_same_model(spec, facts)
        slots.set_evaluation(run.world.buffers["isv_full"])
        n, first = run.world.eval_walk.n_steps, int(last["step"]) + 1
        run.world.clock.set(step=first)
        run.world.simulator.reset(first)
        trades, equity = TradeLog("eval"), EquityLog(run.world.tape.trade_dates)
        work = Path(spec.resume)
        work.mkdir(parents=True, exist_ok=True)
        writer = artefacts.fresh_writer(work / artefacts.EVAL_DIAG)
        log = RowLog(run, writer, Ticker(say, n + 1, 0.0, first), trades, equity)
        with Outbox(run.world.device, log.take) as outbox:
            for i in range(n + 1):
                run.runner.run(Flags(last=i == n, drain=i == n), "collect", "measure", "advance")
                outbox.post(run.diag.outgoing)
            outbox.flush()
        writer.close()
        manifest = artefacts.commit_evaluation(spec, run.world, writer.path, trades, equity, log.row, facts)
    say(f"committed {spec.out}")
    return manifest


class Ticker:
    """Progress to whoever watches, and the only clock of a run. elapsed goes on over a resume; first: the phase's
    first step."""

    def __init__(self, say: Say, total: int, before: float, first: int = 0) -> None:
        self.say, self.total, self.before, self.first = say, total, before, first
        self.start = self.last = time.monotonic()
        self.begun: int | None = None

    @property
    def elapsed(self) -> float:
        return self.before + time.monotonic() - self.start

    def tell(self, row: Row) -> None:
        now, done = time.monotonic(), int(row["step"]) - self.first + 1
        if self.begun is None:
            self.begun = done - 1
        if now - self.last < _PROGRESS_S and done != self.total:
            return
        self.last = now
        rate = (done - self.begun) / max(now - self.start, 1e-9)
        pnl, trades, wins = (row[f"trading.{k}"] for k in ("realized_pnl_usd_cum", "total_trades", "win_rate"))
        self.say(f"step {done}/{self.total}  {rate:.1f} steps/s  pnl {pnl:,.2f} USD  trades {trades}  wins {wins:.0%}")


def _finished(spec: RunSpec, say: Say) -> dict[str, Any] | None:
    if not (Path(spec.out) / storage.MANIFEST).exists():
        return None
    say(f"already finished: {spec.out}")
    return storage.verify(Path(spec.out))


def _key_lock(spec: RunSpec) -> Path:
    return Path(spec.resume).with_suffix(".lock")


def _check_same_model(spec: RunSpec, facts: dict[str, Any]) -> None:
    """An evaluation may have another fee, latency, length or equity; the model and what the slots hold are trained."""
    wants = spec.config.to_json()["model"]
    if facts["model"] != wants:
        raise BadInput(f"{spec.train_dir}: trained with model {facts['model']}, this evaluation wants {wants}")
    trained = slots.configured(TrainerConfig.of_run(storage.read_json(Path(spec.train_dir) / artefacts.CONFIG)))
    names = {slot.index: slot.name for slot in slots.slots()}
    for index, value in slots.configured(spec.config).items():
        if value != trained[index]:
            raise BadInput(
                f"{spec.train_dir}: trained with {names[index]} {trained[index]}, this evaluation wants {value}; "
                "move it from evaluation.overrides to training.overrides and train again"
            )
