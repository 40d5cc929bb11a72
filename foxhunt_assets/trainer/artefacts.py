"""The two run folders: what is written into them, validated there, and committed by one rename."""

from __future__ import annotations

import hashlib
import json
import platform
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch

from foxhunt_assets import storage
from foxhunt_assets.contracts.diag import contract_sha256
from foxhunt_assets.contracts.diag_rules import failures, run_rules
from foxhunt_assets.contracts.instruments import contract
from foxhunt_assets.contracts.rules.base import Columns, PhaseName
from foxhunt_assets.contracts.sidecar import read_diag, to_parquet
from foxhunt_assets.contracts.summaries import check_eval_summary, check_train_summary
from foxhunt_assets.contracts.tables import TIMING, arrow_schema
from foxhunt_assets.errors import ContractBroken
from foxhunt_assets.evaluation.summary import RunFacts, eval_summary
from foxhunt_assets.simulator.trades import TradeLog
from foxhunt_assets.trainer import checkpoint
from foxhunt_assets.trainer.checkpoint import Resume
from foxhunt_assets.trainer.diag import DiagWriter
from foxhunt_assets.trainer.equity import EquityLog
from foxhunt_assets.trainer.numbers import Row
from foxhunt_assets.trainer.rule_config import rule_config
from foxhunt_assets.trainer.run_spec import RunSpec
from foxhunt_assets.trainer.world import World
from kernels.build import kernel_hashes

TRAIN_DIAG, EVAL_DIAG = "diag.jsonl", "eval_diag.jsonl"
CONFIG, TRADES, EQUITY_FILE, TIMING_FILE = "config.json", "trades.parquet", "equity.parquet", "timing.parquet"
TRAIN_SUMMARY, EVAL_SUMMARY = "train_summary.json", "eval_summary.json"
_LOSSES = ("q", "pi", "v", "frd")


def commit_training(spec: RunSpec, world: World, resume: Resume, trades: TradeLog, row: Row) -> dict[str, Any]:
    """Write, validate and commit the train folder."""

    def write(folder: Path) -> None:
        columns = _common(folder, spec, resume.diag, TRAIN_DIAG, trades)
        facts = {**_identity(spec, world), "model": spec.config.to_json()["model"], "step": spec.config.run.n_steps}
        checkpoint.save_final(folder, world, facts)
        storage.write_json(folder / TRAIN_SUMMARY, _train_summary(spec, world, columns, row))

    def validate(folder: Path) -> None:
        columns = read_diag(folder / TRAIN_DIAG)
        config = rule_config(spec.config, world.tape.spec.root, spec.config.run.n_steps)
        _judge(folder, run_rules(columns, None, config, {"train": _trade_columns(trades)}))
        _refuse(folder / TRAIN_SUMMARY, check_train_summary(storage.read_json(folder / TRAIN_SUMMARY)))

    return storage.build_folder(Path(spec.out), write, validate, Path(spec.quarantine), manifest_identity(spec, world))


def commit_evaluation(
    spec: RunSpec, world: World, diag: Path, trades: TradeLog, equity: EquityLog, row: Row, facts: dict[str, Any]
) -> dict[str, Any]:
    """Write, validate against the training's rows too, and commit the evaluation folder."""
    train_dir = Path(spec.train_dir)

    def write(folder: Path) -> None:
        _common(folder, spec, diag, EVAL_DIAG, trades)
        table = equity.table()
        pq.write_table(table, folder / EQUITY_FILE, compression="zstd")
        summary = eval_summary(trades.table(), table, _run_facts(spec, world, row, facts))
        storage.write_json(folder / EVAL_SUMMARY, summary)

    def validate(folder: Path) -> None:
        train, evaluation = read_diag(train_dir / TRAIN_DIAG), read_diag(folder / EVAL_DIAG)
        summary = storage.read_json(folder / EVAL_SUMMARY)
        config = rule_config(spec.config, world.tape.spec.root, len(train["step"]))
        both: dict[PhaseName, Columns] = {"train": _read_trades(train_dir / TRADES), "eval": _trade_columns(trades)}
        _judge(folder, run_rules(train, evaluation, config, both, summary))
        _refuse(folder / EVAL_SUMMARY, check_eval_summary(summary))

    manifest = storage.build_folder(
        Path(spec.out), write, validate, Path(spec.quarantine), manifest_identity(spec, world)
    )
    shutil.rmtree(diag.parent, ignore_errors=True)
    return manifest


def _common(folder: Path, spec: RunSpec, diag: Path, name: str, trades: TradeLog) -> dict[str, np.ndarray]:
    """config.json, the JSONL with its Parquet form, trades and timing; returns the diagnostics' columns."""
    storage.write_json(folder / CONFIG, {**spec.config.to_json(), "seed": spec.seed, "fold": spec.fold})
    shutil.copyfile(diag, folder / name)
    columns = read_diag(folder / name)
    to_parquet(folder / name.replace(".jsonl", ".parquet"), columns)
    pq.write_table(trades.table(), folder / TRADES, compression="zstd")
    timing = {"step": columns["step"], "elapsed_s": columns["elapsed_s"]}
    pq.write_table(pa.table(timing, schema=arrow_schema(TIMING)), folder / TIMING_FILE, compression="zstd")
    return columns


def _identity(spec: RunSpec, world: World) -> dict[str, Any]:
    return {
        "fold": spec.fold, "seed": spec.seed, "run_id": spec.run_id, "contract_sha256": contract_sha256(),
        "code": spec.code, "config_hash": config_sha256(spec), "inputs": spec.inputs,
        "synthetic": world.tape.spec.synthetic, "accounts": spec.config.model.accounts,
    }  # fmt: skip


def config_sha256(spec: RunSpec) -> str:
    """sha256 of config.json's bytes."""
    body = {**spec.config.to_json(), "seed": spec.seed, "fold": spec.fold}
    return hashlib.sha256(storage.readable_json(body).encode()).hexdigest()


def manifest_identity(spec: RunSpec, world: World) -> dict[str, Any]:
    """What made this folder: code, configuration, inputs, libraries and device; compared, never byte by byte."""
    return {
        **_identity(spec, world), "kind": spec.kind, **machine(world), "threads": spec.config.run.threads,
        "kernels": kernel_hashes(),
    }  # fmt: skip


def machine(world: World) -> dict[str, Any]:
    """Libraries and device: they move bits and are no part of a run id, so one run must not be made of two of them."""
    cuda = world.device.type == "cuda"
    return {
        "libraries": {"python": platform.python_version(), "torch": torch.__version__, "numpy": np.__version__},
        "device": torch.cuda.get_device_name(world.device) if cuda else f"cpu {platform.machine()}",
        "driver": torch.version.cuda if cuda else None,
    }


def _train_summary(spec: RunSpec, world: World, columns: dict[str, np.ndarray], row: Row) -> dict[str, Any]:
    n, accounts = len(columns["step"]), spec.config.model.accounts
    return {
        **_identity(spec, world),
        "completed_clean": n == spec.config.run.n_steps,
        "n_steps": n,
        "updates": int(world.buffers["adam_t"][0]),
        "transitions": n * accounts,
        "windows": int(row["rollout.windows_cum"]),
        "total_trades": int(row["trading.total_trades"]),
        "realized_pnl_usd_cum": row["trading.realized_pnl_usd_cum"],
        "losses": {name: row[f"loss.{name}"] for name in _LOSSES},
    }


def _run_facts(spec: RunSpec, world: World, row: Row, facts: dict[str, Any]) -> RunFacts:
    return RunFacts(
        fold=spec.fold, seed=spec.seed, run_id=facts["run_id"], eval_id=spec.run_id, code=spec.code,
        config_hash=config_sha256(spec), inputs=spec.inputs, synthetic=world.tape.spec.synthetic,
        accounts=spec.config.model.accounts, phase="test", n_steps=world.eval_walk.n_steps,
        coverage_share=world.eval_walk.coverage, slippage_cents=round(float(row["trading.slippage_usd_cum"]) * 100),
        warmup_steps=min(spec.config.run.warmup_steps, world.eval_walk.n_steps // 10),
        tick_cents=contract(world.tape.spec.root).tick_cents,
    )  # fmt: skip


def last_row(path: Path) -> dict[str, Any]:
    """The last row of a JSONL file, nested as written."""
    with path.open("rb") as f:
        return json.loads(f.read().splitlines()[-1])


def fresh_writer(path: Path) -> DiagWriter:
    path.unlink(missing_ok=True)
    return DiagWriter(path)


def _trade_columns(trades: TradeLog) -> dict[str, np.ndarray]:
    return _columns(trades.table())


def _read_trades(path: Path) -> dict[str, np.ndarray]:
    return _columns(pq.read_table(path))


def _columns(table: pa.Table) -> dict[str, np.ndarray]:
    return {name: table.column(name).to_numpy() for name in table.column_names}


def _judge(folder: Path, results: list[Any]) -> None:
    _refuse(folder, [f"rule {r.name}: {r.detail}" for r in failures(results)])


def _refuse(where: Path, faults: list[str]) -> None:
    if faults:
        raise ContractBroken(f"{where.name}: {faults[0]}" + (f" (and {len(faults) - 1} more)" if faults[1:] else ""))
