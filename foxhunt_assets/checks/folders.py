"""What is wrong with a committed run folder, one line a fault: for the asset checks and for `foxhunt validate`.

A fault is something wrong with a readable artefact. What cannot be read at all raises, and is never a failed check.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pandera.pandas as pa_pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from safetensors.numpy import load_file

from foxhunt_assets import storage
from foxhunt_assets.contracts import diag_rules, pandera_schemas, sidecar, summaries
from foxhunt_assets.contracts.instruments import contract
from foxhunt_assets.contracts.tables import TRADES, Column, arrow_schema
from foxhunt_assets.trainer.config import TrainerConfig
from foxhunt_assets.trainer.rule_config import rule_config

CENT = 0.005  # two dollar figures of the same cents differ by less
SHOWN = 20  # names worth reading in one line
_SAME_RUN = ("run_id", "contract_sha256", "code", "config_hash", "inputs", "fold", "seed")

Columns = Mapping[str, np.ndarray]


def diag_columns(path: Path) -> dict[str, np.ndarray]:
    """Columns of a diag.jsonl, every row held to the contract; ContractBroken names line and leaf."""
    return sidecar.read_diag(path)


def rule_faults(train_dir: Path, eval_dir: Path | None, root: str) -> tuple[list[str], int]:
    """(rules between leaves, trades and summary that do not hold, how many rules ran) of a training, and of an
    evaluation with it. A rule whose leaves are not live yet does not run and is not counted."""
    summary = storage.read_json(eval_dir / "eval_summary.json") if eval_dir else None
    trades: dict[diag_rules.PhaseName, Columns] = {"train": _trade_columns(train_dir)}
    if eval_dir:
        trades["eval"] = _trade_columns(eval_dir)
    results = diag_rules.run_rules(
        diag_columns(train_dir / "diag.jsonl"),
        diag_columns(eval_dir / "eval_diag.jsonl") if eval_dir else None,
        _rule_config(eval_dir or train_dir, train_dir, root),
        trades,
        summary,
    )
    ran = sum(result.ran for result in results)
    return [f"{r.name}: {r.text}: {r.detail}" for r in diag_rules.failures(results)], ran


def _rule_config(folder: Path, train_dir: Path, root: str) -> diag_rules.RuleConfig:
    config = TrainerConfig.of_run(storage.read_json(folder / "config.json"))
    return rule_config(config, root, storage.read_json(train_dir / "train_summary.json")["n_steps"])


def _trade_columns(folder: Path) -> Columns:
    table = pq.read_table(folder / "trades.parquet")
    return {name: table[name].to_numpy(zero_copy_only=False) for name in table.column_names}


def diag_faults(path: Path, n_rows: int) -> list[str]:
    """The leaf profile of a diagnostics file held by pandera: leaf set, types, nulls, NaN, infinity, bounds."""
    table = pa.table(diag_columns(path))
    faults = pandera_schemas.faults(pandera_schemas.profile_schema(), pandera_schemas.profile_frame(table))
    if table.num_rows != n_rows:
        faults.append(f"{path.name}: {table.num_rows} rows, {n_rows} steps were run")
    return faults


def trade_faults(path: Path, root: str) -> list[str]:
    """trades.parquet against its schema; a run may have no trade, but never another column."""
    return table_faults(path, pandera_schemas.trades_schema(contract(root).tick_cents), TRADES)


def equity_faults(path: Path, accounts: int) -> list[str]:
    """equity.parquet against its schema; it has a row an account and step."""
    return table_faults(path, pandera_schemas.equity_schema(accounts))


def table_faults(path: Path, schema: pa_pd.DataFrameSchema, may_be_empty: Sequence[Column] = ()) -> list[str]:
    """A Parquet file against its pandera schema. may_be_empty: its columns, where no rows are an answer."""
    table = pq.read_table(path)
    if may_be_empty and not table.num_rows:
        same = table.schema.remove_metadata().equals(arrow_schema(may_be_empty))
        return [] if same else [f"{path.name}: no rows, and columns {table.schema.names}"]
    return [f"{path.name}: {fault}" for fault in pandera_schemas.faults(schema, pandera_schemas.frame(table))]


def reconcile_faults(eval_dir: Path) -> list[str]:
    """Dollars of eval_summary.json, of the last diag row, of the trades and of the equity, to the cent."""
    summary = storage.read_json(eval_dir / "eval_summary.json")
    trades = pq.read_table(eval_dir / "trades.parquet", columns=["pnl_cents", "fees_cents"])
    equity = pq.read_table(eval_dir / "equity.parquet", columns=["step", "equity_cents"])
    last = equity.filter(pc.equal(equity["step"], pc.max(equity["step"])))
    cum = diag_columns(eval_dir / "eval_diag.jsonl")["trading.realized_pnl_usd_cum"]
    cents = int(np.sum(trades["pnl_cents"].to_numpy(), dtype=np.int64))
    fees = int(np.sum(trades["fees_cents"].to_numpy(), dtype=np.int64))
    rules = {
        f"total_pnl_cents {summary['total_pnl_cents']}, trades sum to {cents}": summary["total_pnl_cents"] == cents,
        f"n_trades {summary['n_trades']}, trades.parquet has {trades.num_rows}": summary["n_trades"] == trades.num_rows,
        f"fees_usd {summary['fees_usd']}, trades paid {fees / 100}": abs(summary["fees_usd"] - fees / 100) < CENT,
        f"total_pnl_cents {summary['total_pnl_cents']}, equity.parquet ends at "
        f"{int(np.sum(last['equity_cents'].to_numpy(), dtype=np.int64))}": summary["total_pnl_cents"]
        == int(np.sum(last["equity_cents"].to_numpy(), dtype=np.int64)),
    }
    text = f"total_pnl_usd {summary['total_pnl_usd']}, the last realized_pnl_usd_cum is {float(cum[-1])}"
    rules[text] = math.isclose(float(cum[-1]), summary["total_pnl_usd"], abs_tol=CENT)
    return [text for text, fine in rules.items() if not fine]


def parity_faults(train: Columns, evaluation: Columns) -> list[str]:
    """Same leaves in train and eval, and one step axis that goes on without a gap."""
    odd = sorted(set(train) ^ set(evaluation))
    faults = [f"leaves in one phase only: {', '.join(odd[:SHOWN])}"] if odd else []
    steps, evals = train["step"], evaluation["step"]
    if int(evals[0]) != int(steps[-1]) + 1:
        faults.append(f"evaluation starts at step {int(evals[0])} after training step {int(steps[-1])}")
    for name, axis in (("train", steps), ("eval", evals)):
        if not np.array_equal(np.diff(axis), np.ones(len(axis) - 1)):
            faults.append(f"{name}: step does not rise by one a row")
    return faults


def checkpoint_faults(folder: Path) -> list[str]:
    """Tensors that are not finite, and a checkpoint.json of another run, contract or code than the summary's."""
    tensors = load_file(folder / "checkpoint.safetensors")
    faults = [] if tensors else ["checkpoint.safetensors: no tensors"]
    for name, tensor in sorted(tensors.items()):
        if np.issubdtype(tensor.dtype, np.floating) and not np.isfinite(tensor).all():
            faults.append(f"checkpoint.safetensors: {name} is not finite everywhere")
    said, summary = (storage.read_json(folder / name) for name in ("checkpoint.json", "train_summary.json"))
    faults += [
        f"checkpoint.json: {key} is {said.get(key)!r}, train_summary.json says {summary[key]!r}"
        for key in _SAME_RUN
        if said.get(key) != summary[key]
    ]
    return faults


def summary_faults(folder: Path, name: str) -> list[str]:
    """A summary against its contract, and against the config.json beside it."""
    summary = storage.read_json(folder / name)
    check = summaries.check_eval_summary if name == "eval_summary.json" else summaries.check_train_summary
    faults = [f"{name}: {fault}" for fault in check(summary)]
    if not faults and summary["config_hash"] != storage.file_sha256(folder / "config.json"):
        faults.append(f"{name}: config_hash is not the sha256 of config.json")
    return faults


def train_faults(folder: Path, root: str) -> list[str]:
    """Everything a train folder can be held to without an evaluation beside it."""
    storage.verify(folder)
    faults = summary_faults(folder, "train_summary.json")
    if faults:
        return faults
    n_steps = storage.read_json(folder / "train_summary.json")["n_steps"]
    faults = diag_faults(folder / "diag.jsonl", n_steps) + checkpoint_faults(folder)
    return faults + trade_faults(folder / "trades.parquet", root) + rule_faults(folder, None, root)[0]


def eval_faults(folder: Path, train_dir: Path, root: str) -> list[str]:
    """Everything an evaluation folder can be held to, with the training it belongs to."""
    storage.verify(folder)
    faults = summary_faults(folder, "eval_summary.json")
    if faults:
        return faults
    summary = storage.read_json(folder / "eval_summary.json")
    train, evaluation = diag_columns(train_dir / "diag.jsonl"), diag_columns(folder / "eval_diag.jsonl")
    return [
        *diag_faults(folder / "eval_diag.jsonl", summary["n_steps"] + 1),
        *equity_faults(folder / "equity.parquet", summary["accounts"]),
        *trade_faults(folder / "trades.parquet", root),
        *reconcile_faults(folder),
        *parity_faults(train, evaluation),
        *rule_faults(train_dir, folder, root)[0],
    ]
