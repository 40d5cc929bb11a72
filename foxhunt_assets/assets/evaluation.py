"""The evaluation op: eval_diag, eval_summary and trades of one fold and seed.

Training and evaluation are two runs: a new fee or latency makes another evaluation of the same training.
"""

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow.parquet as pq

from foxhunt_assets import gates, storage
from foxhunt_assets.assets import pictures
from foxhunt_assets.assets.metadata import column_schema
from foxhunt_assets.assets.training import committed, fold_inputs, make_spec, outputs, run_specs, same_identity
from foxhunt_assets.contracts.sameness import EVAL_RUN
from foxhunt_assets.contracts.tables import TRADES
from foxhunt_assets.errors import BadInput
from foxhunt_assets.evaluation import report
from foxhunt_assets.evaluation.summary import track_record
from foxhunt_assets.partitions import Partitions, split_run_key
from foxhunt_assets.resources import GPU_POOL, TrainerLauncher, World, partition_of, step
from foxhunt_assets.trainer.run_spec import EVALUATION_PACKAGES, RunSpec

GROUP = "evaluation"
ARTEFACTS = {"eval_diag": "eval_diag.jsonl", "eval_summary": "eval_summary.json", "trades": "trades.parquet"}
SHOWN = (
    "total_pnl_usd", "max_drawdown_usd", "n_trades", "win_rate", "sharpe_daily", "n_trade_dates", "fees_usd",
    "slippage_usd", "break_even_fee_usd_per_side", "break_even_ticks_per_lot", "coverage_share", "n_steps",
    "phase", "exploration", "eval_id", "per_account",
)  # fmt: skip


def evaluation_assets(parts: Partitions) -> list[dg.AssetsDefinition]:
    """eval_diag, eval_summary, trades."""
    descriptions = {
        "eval_diag": "One row of measured leaves an evaluation step, and the drain row.",
        "eval_summary": "Dollars, drawdown and ratios of one walk over the evaluation range, in market time.",
        "trades": "Every trade closed in evaluation.",
    }
    kinds = {"eval_diag": {"json"}, "eval_summary": {"json"}, "trades": {"parquet"}}
    deps = ["checkpoint", "diag"]

    @dg.multi_asset(
        name="evaluate",
        specs=run_specs(
            parts, GROUP, deps, descriptions, kinds, {"trades": column_schema(TRADES)}, EVALUATION_PACKAGES
        ),
        pool=GPU_POOL,
    )
    def evaluate(
        context: dg.AssetExecutionContext,
        world: dg.ResourceParam[World],
        launcher: dg.ResourceParam[TrainerLauncher],
    ) -> Iterator[dg.MaterializeResult]:
        with step(context, world):
            results = run_evaluation(context, world, launcher, partition_of(context))
        yield from results

    return [evaluate]


def run_evaluation(
    context: dg.AssetExecutionContext, world: World, launcher: TrainerLauncher, key: str
) -> list[dg.MaterializeResult]:
    """Evaluate the current training of one fold and seed; every output, or an error."""
    spec = evaluation_spec(context.instance, world, key)
    launcher.run(context, world, spec)
    folder = committed(spec.out, [*ARTEFACTS.values(), "equity.parquet"])
    summary = storage.read_json(folder / "eval_summary.json")
    same_identity(spec, summary["eval_id"])
    values = {
        "eval_diag": {"dagster/row_count": summary["n_steps"] + 1},
        "eval_summary": {**{name: summary[name] for name in SHOWN}, "equity": equity_picture(folder, summary)},
        "trades": {"dagster/row_count": summary["n_trades"], "total_pnl_cents": summary["total_pnl_cents"]},
    }
    return outputs(world, folder, EVAL_RUN, ARTEFACTS, summary, values)


def evaluation_spec(instance: dg.DagsterInstance, world: World, key: str) -> RunSpec:
    """Orders of one evaluation of what is trained now, on the inputs it was trained on."""
    fold, seed = split_run_key(key)
    checkpoint = gates.require(instance, "checkpoint", key)
    gates.require(instance, "diag", key)
    inputs = fold_inputs(instance, fold)
    trained_on = storage.read_json(checkpoint.folder / "train_summary.json")["inputs"]
    if trained_on != inputs:
        raise BadInput(f"{key}: the fold has changed since it was trained on; train it again before evaluating")
    inputs["checkpoint"] = checkpoint.data_version
    spec = make_spec("evaluate", world, world.eval_config, fold, seed, inputs)
    out = checkpoint.folder.parent / f"eval-{spec.run_id}"
    return dataclasses.replace(
        spec, out=str(out), train_dir=str(checkpoint.folder), resume=str(world.layout.resume(spec.run_id))
    )


def equity_picture(folder: Path, summary: dict[str, Any]) -> dg.MarkdownMetadataValue:
    """The one track record of the evaluation: equity of the accounts laid end to end in market time."""
    record = track_record(pq.read_table(folder / "equity.parquet"))
    title = f"{summary['fold']} seed {summary['seed']}"
    return pictures.embed(lambda dpi: report.equity_picture(record, title, summary["synthetic"], dpi), "equity")
