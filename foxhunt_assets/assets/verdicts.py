"""What is concluded from evaluations: tier1_5_verdict and eval_report of one fold and seed, policy_quality of all."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow.parquet as pq
import torch

from foxhunt_assets import audits, gates, storage
from foxhunt_assets.assets.market import REPORT_FILE as DECODE_FILE
from foxhunt_assets.assets.metadata import folder_metadata
from foxhunt_assets.assets.versions import json_sha256
from foxhunt_assets.contracts.diag import flatten
from foxhunt_assets.errors import BadInput, FoxhuntError
from foxhunt_assets.evaluation import report, surrogate, verdicts
from foxhunt_assets.evaluation.oracle import OracleResult, oracle
from foxhunt_assets.evaluation.summary import track_record
from foxhunt_assets.market import synthetic
from foxhunt_assets.partitions import Partitions, split_run_key
from foxhunt_assets.resources import World, partition_of, step
from foxhunt_assets.simulator.walk import session_end_rows
from foxhunt_assets.trainer.config import TrainerConfig
from foxhunt_assets.trainer.tape import Tape, load_tape

GROUP = "verdicts"
VERDICT_FILE, QUALITY_FILE, REPORT_FILE = "verdict.json", "policy_quality.json", "report.md"


def verdict_assets(parts: Partitions) -> list[dg.AssetsDefinition]:
    """tier1_5_verdict, eval_report, policy_quality."""

    @dg.asset(
        partitions_def=parts.runs,
        deps=["eval_summary", "eval_diag", "trades"],
        group_name=GROUP,
        kinds={"json"},
        description="May this evaluation be believed: do four routes to its dollars agree, does it earn after fees, "
        "does the reward line up, and does it beat its own actions on the wrong stretches of market.",
    )
    def tier1_5_verdict(context: dg.AssetExecutionContext, world: dg.ResourceParam[World]) -> dg.MaterializeResult:
        with step(context, world):
            return make_tier(context.instance, world, partition_of(context))

    @dg.asset(
        partitions_def=parts.runs,
        deps=["eval_summary", "tier1_5_verdict"],
        group_name=GROUP,
        kinds={"markdown"},
        description="The evaluation on one page: figures, verdict with its reasons, equity and drawdown.",
    )
    def eval_report(context: dg.AssetExecutionContext, world: dg.ResourceParam[World]) -> dg.MaterializeResult:
        with step(context, world):
            return make_report(context.instance, world, partition_of(context))

    @dg.asset(
        deps=[
            dg.AssetDep("eval_summary", partition_mapping=dg.AllPartitionMapping()),
            dg.AssetDep("tier1_5_verdict", partition_mapping=dg.AllPartitionMapping()),
        ],
        group_name=GROUP,
        kinds={"json"},
        description="All folds and seeds together; names those that are missing, and is INCOMPLETE while one is.",
    )
    def policy_quality(context: dg.AssetExecutionContext, world: dg.ResourceParam[World]) -> dg.MaterializeResult:
        with step(context, world):
            return make_quality(context.instance, world, parts)

    return [tier1_5_verdict, eval_report, policy_quality]


def make_tier(instance: dg.DagsterInstance, world: World, key: str) -> dg.MaterializeResult:
    """Judge the current evaluation of one fold and seed and commit <run>/verdict-<eval id>."""
    evaluated = gates.require(instance, "eval_summary", key)
    for name in ("eval_diag", "trades"):
        gates.require(instance, name, key)
    summary = storage.read_json(evaluated.folder / "eval_summary.json")
    gate, marginal = surrogates(world, evaluated.folder, summary)
    verdict = verdicts.tier1_5_verdict(
        diag_rows(evaluated.folder / "eval_diag.parquet"),
        summary,
        pq.read_table(evaluated.folder / "trades.parquet"),
        gate,
        marginal,
    )
    folder = evaluated.folder.parent / f"verdict-{summary['eval_id']}"
    _commit(world, folder, VERDICT_FILE, verdict, {"eval_summary": evaluated.data_version})
    values = {
        "verdict": verdict["verdict"],
        "p_value": gate.p_value,
        "permutations": len(gate.surrogate_cents),
        "total_pnl_usd": summary["total_pnl_usd"],
        "reasons": verdict["reasons"],
        "signals": verdict["signals"],
        "synthetic": summary["synthetic"],
    }
    return _result(world, folder, verdict, values)


def surrogates(
    world: World, eval_dir: Path, summary: Mapping[str, Any]
) -> tuple[surrogate.SurrogateResult, surrogate.SurrogateResult]:
    """(permutation test, matched-marginal test) of the actions an evaluation recorded, on the market it walked."""
    make, _ = walk_again(world, eval_dir, summary)
    actions = surrogate.recorded_actions(pq.read_table(eval_dir / "equity.parquet"))
    seed = int(summary["seed"])
    return (
        surrogate.permutation_test(actions, make, surrogate.MIN_PERMUTATIONS, seed),
        surrogate.matched_marginal_test(actions, make, surrogate.MIN_ROLLOUTS, seed),
    )


def walk_again(world: World, eval_dir: Path, summary: Mapping[str, Any]) -> tuple[surrogate.MakeSimulator, Tape]:
    """(simulators of an evaluation's own environment and walk, its tape)."""
    config = TrainerConfig.of_run(storage.read_json(eval_dir / "config.json"))
    tape = load_tape(world.layout.fold(summary["fold"]), _Folders(world), config, "cpu")
    ends = session_end_rows(tape.market.rows, [(s.row_end, s.ended_by) for s in tape.spec.segments])
    accounts, n_steps = summary["accounts"], summary["n_steps"]
    return surrogate.simulators_of(
        config.env, tape.market, tape.spec.test, ends, accounts, n_steps, config.model.window
    ), tape


def oracle_of(world: World, eval_dir: Path, summary: Mapping[str, Any]) -> OracleResult | None:
    """What the oracle earns on the walk of an evaluation; None where no drift can be known: a real market, a
    martingale, or generated files without their recipes."""
    spec = audits.read_fold(world.layout.fold(summary["fold"]) / "spec")
    recipes = [_recipe(world.layout.snapshots(source.key)) for source in spec.sources]
    if not all(recipe is not None and synthetic.EDGE[recipe.setting] for recipe in recipes):
        return None
    make, tape = walk_again(world, eval_dir, summary)
    pressure = torch.zeros(tape.market.rows, dtype=torch.int8)
    at = 0
    for source, recipe in zip(spec.sources, recipes, strict=True):
        assert recipe is not None
        end = at + source.row_end - source.row_start
        pressure[at:end] = torch.from_numpy(synthetic.latent_at(recipe, tape.market.ts[at:end].numpy()))
        at = end
    return oracle(make, pressure, summary["n_steps"])


def _recipe(folder: Path) -> synthetic.Recipe | None:
    report_file = folder / DECODE_FILE
    raw = storage.read_json(report_file).get("recipe") if report_file.is_file() else None
    return synthetic.Recipe(**raw) if raw else None


class _Folders(dict[str, str]):
    """Source key -> snapshots folder, for whichever keys a fold names."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self._layout = world.layout

    def __missing__(self, key: str) -> str:
        return str(self._layout.snapshots(key))


def diag_rows(path: Path) -> list[dict[str, Any]]:
    """Flat leaves of every row, from the Parquet form of a diagnostics file."""
    return [flatten(row) for row in pq.read_table(path).to_pylist()]


def make_report(instance: dg.DagsterInstance, world: World, key: str) -> dg.MaterializeResult:
    """Commit <run>/report-<eval id>: report.md and equity.png."""
    evaluated = gates.require(instance, "eval_summary", key)
    judged = gates.require(instance, "tier1_5_verdict", key)
    summary = storage.read_json(evaluated.folder / "eval_summary.json")
    verdict = storage.read_json(judged.folder / VERDICT_FILE)
    if verdict["eval_id"] != summary["eval_id"]:
        raise BadInput(f"{key}: its verdict is of another evaluation; materialise tier1_5_verdict again")
    record = track_record(pq.read_table(evaluated.folder / "equity.parquet"))
    title = f"{summary['fold']} seed {summary['seed']}, evaluation {summary['eval_id']}"
    measured = oracle_of(world, evaluated.folder, summary)
    text = report_text(title, summary, verdict, measured)

    def write(out: Path) -> None:
        storage.write_text(out / REPORT_FILE, text)
        (out / "equity.png").write_bytes(report.equity_picture(record, title, summary["synthetic"]))

    folder = evaluated.folder.parent / f"report-{summary['eval_id']}"
    inputs = {"eval_summary": evaluated.data_version, "tier1_5_verdict": judged.data_version}
    storage.build_folder(
        folder,
        write,
        lambda out: None,
        world.layout.quarantine,
        {"asset": "eval_report", "inputs": inputs},
        replace=True,
    )
    return _result(world, folder, inputs, {"report": dg.MetadataValue.md(text), "verdict": verdict["verdict"],
         **({"oracle_usd": measured.cents / 100} if measured else {})})  # fmt: skip


def report_text(
    title: str, summary: Mapping[str, Any], verdict: Mapping[str, Any], measured: OracleResult | None = None
) -> str:
    """The page, in markdown."""
    reasons = [f"- {reason}" for reason in verdict["reasons"]] or ["- every signal passed"]
    figures = report.markdown(summary, measured).strip()
    parts = [f"# {title}", figures, f"## Verdict: {verdict['verdict']}", "\n".join(reasons)]
    return "\n\n".join([*parts, "![equity and drawdown](equity.png)"]) + "\n"


def make_quality(instance: dg.DagsterInstance, world: World, parts: Partitions) -> dg.MaterializeResult:
    """Put together what is there; a fold and seed whose verdict is not of its current evaluation is missing."""
    judged: dict[tuple[str, int], dict[str, Any]] = {}
    summaries: dict[tuple[str, int], dict[str, Any]] = {}
    left_out: dict[str, str] = {}
    inputs: dict[str, str] = {}
    for key in parts.run_keys:
        try:
            evaluated = gates.require(instance, "eval_summary", key)
            verdict_now = gates.require(instance, "tier1_5_verdict", key)
        except FoxhuntError as error:
            left_out[key] = str(error)
            continue
        summary = storage.read_json(evaluated.folder / "eval_summary.json")
        verdict = storage.read_json(verdict_now.folder / VERDICT_FILE)
        if verdict["eval_id"] != summary["eval_id"]:
            left_out[key] = "its verdict is of another evaluation; materialise tier1_5_verdict again"
            continue
        judged[split_run_key(key)], summaries[split_run_key(key)] = verdict, summary
        inputs[key] = verdict_now.data_version
    quality = verdicts.policy_quality(judged, summaries, [split_run_key(key) for key in parts.run_keys])
    folder = world.verdicts / "policy_quality"
    _commit(world, folder, QUALITY_FILE, {**quality, "left_out": left_out}, inputs)
    values = {name: value for name, value in quality.items() if name != "runs"}
    return _result(world, folder, quality, {**values, "left_out": left_out, "runs": quality["runs"][:50]})


def _commit(world: World, folder: Path, name: str, body: dict[str, Any], inputs: Mapping[str, str]) -> None:
    storage.build_folder(
        folder,
        lambda out: storage.write_json(out / name, body),
        lambda out: None,  # a verdict of any kind is a result
        world.layout.quarantine,
        {"asset": folder.name, "inputs": dict(inputs)},
        replace=True,
    )


def _result(world: World, folder: Path, body: Any, values: dict[str, Any]) -> dg.MaterializeResult:
    return dg.MaterializeResult(
        data_version=dg.DataVersion(json_sha256(body)), metadata=folder_metadata(world, folder, values)
    )
