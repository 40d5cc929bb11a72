"""Training and evaluation, top to bottom: collect a row, learn when a window is full, measure, advance."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from foxhunt_assets import storage
from foxhunt_assets.contracts.diag import flatten
from foxhunt_assets.errors import BadInput
from foxhunt_assets.simulator.trades import TradeLog
from foxhunt_assets.trainer import artefacts, checkpoint, slots
from foxhunt_assets.trainer.assemble import Assembly, assemble
from foxhunt_assets.trainer.checkpoint import Resume
from foxhunt_assets.trainer.config import TrainerConfig
from foxhunt_assets.trainer.diag import DiagWriter, Row
from foxhunt_assets.trainer.program import Scalars
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
    ticker = Ticker(say, c.run.n_steps, done.get("elapsed_s", 0.0))
    s = Scalars(step=done.get("step", 0), update=done.get("update", 0))
    writer = DiagWriter(resume.diag)
    while s.step < c.run.n_steps:
        s.last = s.step == c.run.n_steps - 1
        # ROLLOUT: one row with frozen weights
        run.program.run("collect", s)
        # LEARN: epochs x minibatches once the window is full
        if (s.step + 1) % c.learning.rollout_steps == 0:
            for s.minibatch in range(c.learning.epochs * c.learning.minibatches):
                run.program.run("learn", s)
                s.update += 1
        # MEASURE, then let ended accounts start anew
        trades.add(run.collector.outcome.trades, run.collector.outcome.trade_mask)
        run.program.run("measure", s)
        writer.write(run.diag.row, ticker.elapsed)
        run.program.run("advance", s)
        ticker.tell(s.step + 1, run.diag.row)
        s.step += 1
        if s.step % c.run.checkpoint_every == 0 and not s.last:
            meta = {
                "step": s.step, "update": s.update, "elapsed_s": ticker.elapsed, "diag_bytes": writer.flush(),
                "machine": artefacts.machine(run.world),
            }  # fmt: skip
            resume.save(run.world, trades.state(), meta)
    writer.close()
    return run.diag.row


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
        run.world.simulator.reset(first)
        trades, equity = TradeLog("eval"), artefacts.EquityLog(run.world)
        work = Path(spec.resume)
        work.mkdir(parents=True, exist_ok=True)
        writer = artefacts.fresh_writer(work / artefacts.EVAL_DIAG)
        ticker = Ticker(say, n + 1, 0.0)
        for i in range(n + 1):
            drain = i == n
            s = Scalars(step=first + i, eval_step=i, evaluating=True, last=drain, drain=drain)
            run.program.run("collect", s)
            trades.add(run.collector.outcome.trades, run.collector.outcome.trade_mask)
            equity.add(run.collector.outcome, s)
            run.program.run("measure", s)
            writer.write(run.diag.row, ticker.elapsed)
            run.program.run("advance", s)
            ticker.tell(i + 1, run.diag.row)
        writer.close()
        manifest = artefacts.commit_evaluation(spec, run.world, writer.path, trades, equity, run.diag.row, facts)
    say(f"committed {spec.out}")
    return manifest


class Ticker:
    """Progress to whoever watches, and the only clock of a run. elapsed goes on over a resume."""

    def __init__(self, say: Say, total: int, before: float) -> None:
        self.say, self.total, self.before = say, total, before
        self.start = self.last = time.monotonic()
        self.first_step: int | None = None

    @property
    def elapsed(self) -> float:
        return self.before + time.monotonic() - self.start

    def tell(self, step: int, row: Row) -> None:
        now = time.monotonic()
        if self.first_step is None:
            self.first_step = step - 1
        if now - self.last < _PROGRESS_S and step != self.total:
            return
        self.last = now
        rate = (step - self.first_step) / max(now - self.start, 1e-9)
        pnl, trades, wins = (row[f"trading.{k}"] for k in ("realized_pnl_usd_cum", "total_trades", "win_rate"))
        self.say(f"step {step}/{self.total}  {rate:.1f} steps/s  pnl {pnl:,.2f} USD  trades {trades}  wins {wins:.0%}")


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
