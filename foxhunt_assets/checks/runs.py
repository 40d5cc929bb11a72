"""Checks of what training and evaluation wrote."""

from __future__ import annotations

from pathlib import Path

import dagster as dg

from foxhunt_assets import gates, storage
from foxhunt_assets.checks import folders, sql
from foxhunt_assets.checks.factory import CheckRule, Found
from foxhunt_assets.checks.models import config_model, sql_found
from foxhunt_assets.contracts.diag import live_leaves
from foxhunt_assets.gates import Current
from foxhunt_assets.resources import World
from foxhunt_assets.trainer.config import TrainerConfig


def checkpoint_contract(instance: dg.DagsterInstance, world: World, now: Current) -> Found:
    return Found(folders.checkpoint_faults(now.folder) + folders.summary_faults(now.folder, "train_summary.json"))


def diag_contract(instance: dg.DagsterInstance, world: World, now: Current) -> Found:
    n_steps = storage.read_json(now.folder / "train_summary.json")["n_steps"]
    faults = folders.diag_faults(now.folder / "diag.jsonl", n_steps)
    broken, ran = folders.rule_faults(now.folder, None, world.settings.data.root)
    return Found(faults + broken, {"rows": n_steps, "leaves": len(live_leaves()), "rules_run": ran})


def train_trades_contract(instance: dg.DagsterInstance, world: World, now: Current) -> Found:
    return Found(folders.trade_faults(now.folder / "trades.parquet", world.settings.data.root))


def eval_diag_contract(instance: dg.DagsterInstance, world: World, now: Current) -> Found:
    train_dir = gates.current(instance, "diag", now.partition).folder
    n_rows = storage.read_json(now.folder / "eval_summary.json")["n_steps"] + 1  # and the drain row
    faults = folders.diag_faults(now.folder / "eval_diag.jsonl", n_rows)
    broken, ran = folders.rule_faults(train_dir, now.folder, world.settings.data.root)
    return Found(faults + broken, {"rows": n_rows, "leaves": len(live_leaves()), "rules_run": ran})


def train_eval_parity(instance: dg.DagsterInstance, world: World, now: Current) -> Found:
    train = folders.diag_columns(gates.current(instance, "diag", now.partition).folder / "diag.jsonl")
    evaluation = folders.diag_columns(now.folder / "eval_diag.jsonl")
    return Found(folders.parity_faults(train, evaluation), {"leaves": len(train)})


def eval_summary_contract(instance: dg.DagsterInstance, world: World, now: Current) -> Found:
    faults = folders.summary_faults(now.folder, "eval_summary.json")
    if faults:
        return Found(faults)
    accounts = storage.read_json(now.folder / "eval_summary.json")["accounts"]
    return Found(folders.equity_faults(now.folder / "equity.parquet", accounts))


def cents_reconcile(instance: dg.DagsterInstance, world: World, now: Current) -> Found:
    return Found(folders.reconcile_faults(now.folder))


def trades_contract(instance: dg.DagsterInstance, world: World, now: Current) -> Found:
    return Found(folders.trade_faults(now.folder / "trades.parquet", world.settings.data.root))


def train_sql(instance: dg.DagsterInstance, world: World, now: Current) -> Found:
    return sql_found(train_models(world, now.folder), TRAIN_MODELS)


def eval_sql(instance: dg.DagsterInstance, world: World, now: Current) -> Found:
    train_dir = gates.current(instance, "diag", now.partition).folder
    models = {
        **train_models(world, train_dir),
        "eval_diag": now.folder / "eval_diag.parquet",
        "eval_trades": now.folder / "trades.parquet",
        "equity": now.folder / "equity.parquet",
        "eval_summary": now.folder / "eval_summary.json",
    }
    return sql_found(models, tuple(name for name in models if name not in TRAIN_MODELS))


TRAIN_MODELS = ("diag", "trades", "train_summary")


def train_models(world: World, folder: Path) -> dict[str, sql.Source]:
    """The models of dbt_like_checks/ that a train folder gives."""
    return {
        "diag": folder / "diag.parquet",
        "trades": folder / "trades.parquet",
        "train_summary": folder / "train_summary.json",
        "config": config_model(world, TrainerConfig.of_run(storage.read_json(folder / "config.json"))),
    }


RULES = (
    CheckRule(
        "checkpoint", "checkpoint_contract", "Every tensor is finite; train_summary.json is what its contract says.",
        checkpoint_contract,
    ),
    CheckRule(
        "diag", "diag_contract", "Every row holds the live leaves in type and bounds, and the rules between them hold.",
        diag_contract,
    ),
    CheckRule("diag", "train_sql", "The rules of dbt_like_checks/ over diagnostics and trades of training.", train_sql,
              also_reads=("train_trades", "checkpoint")),
    CheckRule("train_trades", "train_trades_contract", "Cents of every trade follow from its ticks and fees.",
              train_trades_contract),
    CheckRule(
        "eval_diag", "eval_diag_contract",
        "Every row holds the live leaves in type and bounds, and the rules with training, trades and summary hold.",
        eval_diag_contract, also_reads=("diag",),
    ),
    CheckRule(
        "eval_diag", "train_eval_parity", "The same leaves in both phases, on one step axis.", train_eval_parity,
        also_reads=("diag",),
    ),
    CheckRule("eval_summary", "eval_summary_contract", "Fields, bounds and relations of eval_summary.json.",
              eval_summary_contract),
    CheckRule(
        "eval_summary", "cents_reconcile", "Summary, trades, equity and diagnostics agree to the cent.",
        cents_reconcile, also_reads=("eval_diag", "trades"),
    ),
    CheckRule(
        "eval_summary", "eval_sql",
        "The rules of dbt_like_checks/ over the evaluation, and over what ties it to its training.", eval_sql,
        also_reads=("diag", "eval_diag", "trades"),
    ),
    CheckRule("trades", "trades_contract", "Cents of every trade follow from its ticks and fees.", trades_contract),
)  # fmt: skip
