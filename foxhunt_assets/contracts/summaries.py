"""Contracts of eval_summary.json and train_summary.json: a table of fields each, and what holds between them.

A dotted name is a nested object: `per_account.min_usd` is {"per_account": {"min_usd": ...}}. A field of type
"hashes" is an object of name -> sha256. Nothing but the fields named here may stand in the file.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from foxhunt_assets.contracts.diag import bound_fault, contract_sha256, type_fault

MIN_TRADE_DATES = 20  # fewer trade dates give no daily Sharpe ratio
FieldType = Literal["int", "float", "bool", "string", "hashes"]


@dataclass(frozen=True)
class Field:
    """One field. pattern: full match of a string. nullable: null is allowed and its meaning says when."""

    name: str
    type: FieldType
    unit: str
    meaning: str
    minimum: float | None = None
    maximum: float | None = None
    pattern: str = ""
    nullable: bool = False


_SHA256 = "[0-9a-f]{64}"
_ID = "[0-9a-f]{16}"

_IDENTITY = (
    Field("fold", "string", "1", "fold key", pattern="fold_[0-9]+"),
    Field("seed", "int", "1", "seed of the run", minimum=0),
    Field("run_id", "string", "1", "first 16 hex of sha256(configuration, inputs, code, seed)", pattern=_ID),
    Field("contract_sha256", "string", "1", "sha256 of diag_leaves.tsv", pattern=_SHA256),
    Field("code", "string", "1", "sha256 of the trainer and kernel sources", pattern=_SHA256),
    Field("config_hash", "string", "1", "sha256 of config.json of this folder", pattern=_SHA256),
    Field("inputs", "hashes", "1", "data version of each input, by name"),
    Field("synthetic", "bool", "1", "true when some source file was generated"),
    Field("accounts", "int", "accounts", "B", minimum=1),
)

EVAL_SUMMARY: tuple[Field, ...] = (
    *_IDENTITY,
    Field("eval_id", "string", "1", "the id in the folder name eval-<eval id>", pattern=_ID),
    Field("phase", "string", "1", "which evaluation range was walked", pattern="validation|test"),
    Field("n_steps", "int", "steps", "evaluation steps, the drain row not counted", minimum=1),
    Field("exploration", "string", "1", "how actions were picked", pattern="greedy"),
    Field("coverage_share", "float", "ratio", "rows walked over rows of the evaluation range", 0, 1),
    Field("n_trades", "int", "count", "rows of trades.parquet", minimum=0),
    Field("total_pnl_cents", "int", "cents", "net pnl of all trades"),
    Field("total_pnl_usd", "float", "usd", "total_pnl_cents / 100"),
    Field("fees_usd", "float", "usd", "fees of all trades, inside total_pnl_usd", minimum=0),
    Field("slippage_usd", "float", "usd", "adverse distance of all fills from mid, inside total_pnl_usd"),
    Field("max_drawdown_usd", "float", "usd", "largest fall of equity from its maximum, market time", 0),
    Field("win_rate", "float", "ratio", "trades with net pnl above 0 over n_trades; 0 without a trade", 0, 1),
    Field("avg_win_usd", "float", "usd", "mean net pnl of trades above 0; 0 without one", minimum=0),
    Field("avg_loss_usd", "float", "usd", "mean magnitude of trades at or below 0; 0 without one", minimum=0),
    Field(
        "sharpe_daily", "float", "1",
        "mean over sample std of daily marked-to-market net pnl, not annualised; "
        f"null under {MIN_TRADE_DATES} trade dates or when the std is 0",
        nullable=True,
    ),
    Field("n_trade_dates", "int", "dates", "exchange trade dates walked", minimum=1),
    Field("per_account.min_usd", "float", "usd", "least final pnl of an account"),
    Field("per_account.max_usd", "float", "usd", "largest final pnl of an account"),
    Field("per_account.mean_usd", "float", "usd", "mean final pnl over accounts"),
    Field("per_account.std_usd", "float", "usd", "population std of final pnl over accounts", minimum=0),
    Field("warmup.steps", "int", "steps", "length of the defensive window, inside n_steps", minimum=0),
    Field("warmup.pnl_usd", "float", "usd", "net pnl of trades closed inside it, part of total_pnl_usd"),
    Field(
        "break_even_fee_usd_per_side", "float", "usd",
        "fee a lot and side at which total pnl is 0: (total_pnl_usd + fees_usd) / (2 x lots closed); "
        "null without a trade",
        nullable=True,
    ),
    Field(
        "break_even_ticks_per_lot", "float", "ticks",
        "ticks a lot must gain between mids to pay its fees and slippage: "
        "(fees_usd + slippage_usd) / (lots closed x tick value); null without a trade",
        nullable=True,
    ),
)  # fmt: skip

LOSSES = ("q", "pi", "v", "frd")  # the heads that are trained

TRAIN_SUMMARY: tuple[Field, ...] = (
    *_IDENTITY,
    Field("completed_clean", "bool", "1", "true: written last, only when every step ran"),
    Field("n_steps", "int", "steps", "training steps, one row of diag.jsonl each", minimum=1),
    Field("updates", "int", "count", "optimiser steps applied", minimum=0),
    Field("transitions", "int", "count", "transitions collected: n_steps x accounts", minimum=1),
    Field("windows", "int", "count", "rollout windows finished; 0 in per_step mode", minimum=0),
    Field("total_trades", "int", "count", "rows of trades.parquet", minimum=0),
    Field("realized_pnl_usd_cum", "float", "usd", "net pnl of all training trades"),
    *(Field(f"losses.{name}", "float", "1", f"loss.{name} of the last row") for name in LOSSES),
)


def check_eval_summary(summary: Mapping[str, Any]) -> list[str]:
    """Faults of an eval_summary.json, one line each; empty when there are none."""
    faults = field_faults(EVAL_SUMMARY, summary)
    return faults or [text for text, fine in _eval_relations(summary).items() if not fine]


def check_train_summary(summary: Mapping[str, Any]) -> list[str]:
    """Faults of a train_summary.json, one line each; empty when there are none."""
    faults = field_faults(TRAIN_SUMMARY, summary)
    return faults or [text for text, fine in _train_relations(summary).items() if not fine]


def field_faults(fields: Sequence[Field], document: Mapping[str, Any]) -> list[str]:
    """Missing, unknown, wrong type, null, NaN, infinity, out of bounds: one line a fault."""
    flat = flatten_summary(fields, document)
    known = {field.name for field in fields}
    faults = [f"{name}: not in the contract" for name in flat if name not in known]
    for field in fields:
        if field.name not in flat:
            faults.append(f"{field.name}: missing")
        elif fault := _fault(field, flat[field.name]):
            faults.append(f"{field.name}: {fault}")
    return faults


def flatten_summary(fields: Sequence[Field], document: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Dotted names of a document; a "hashes" field stays one value."""
    whole = {field.name for field in fields if field.type == "hashes"}
    out: dict[str, Any] = {}
    for name, value in document.items():
        path = f"{prefix}{name}"
        if isinstance(value, Mapping) and path not in whole:
            out.update(flatten_summary(fields, value, f"{path}."))
        else:
            out[path] = value
    return out


def _fault(field: Field, value: Any) -> str:
    if value is None:
        return "" if field.nullable else "null"
    if field.type == "hashes":
        return _hashes_fault(value)
    if fault := type_fault(field.type, value):
        return fault
    if field.type == "string":
        return "" if re.fullmatch(field.pattern, value) else f"{value!r} does not match {field.pattern}"
    return bound_fault(float(value), field.minimum, field.maximum)


def _hashes_fault(value: Any) -> str:
    if not isinstance(value, Mapping) or not value:
        return f"{value!r} is not an object with at least one entry"
    wrong = [k for k, v in value.items() if not isinstance(v, str) or not re.fullmatch(_SHA256, v)]
    return f"{wrong[0]} is not a sha256" if wrong else ""


def _eval_relations(s: Mapping[str, Any]) -> dict[str, bool]:
    spread = s["per_account"]
    traded = s["n_trades"] > 0
    wins = round(s["win_rate"] * s["n_trades"])
    net = wins * s["avg_win_usd"] - (s["n_trades"] - wins) * s["avg_loss_usd"]
    return {
        "contract_sha256: another contract than this program's": s["contract_sha256"] == contract_sha256(),
        "total_pnl_usd: not total_pnl_cents / 100": s["total_pnl_usd"] == s["total_pnl_cents"] / 100,
        "win_rate: wins x avg_win - losses x avg_loss is not total_pnl_usd": _near(net, s["total_pnl_usd"]),
        "win_rate: n_trades x win_rate is not a count": _near(s["win_rate"] * s["n_trades"], wins, 1e-6),
        "n_trades: pnl without a trade": traded or s["total_pnl_cents"] == 0,
        f"sharpe_daily: a number on fewer than {MIN_TRADE_DATES} trade dates": s["sharpe_daily"] is None
        or s["n_trade_dates"] >= MIN_TRADE_DATES,
        "per_account: min, mean and max out of order": spread["min_usd"] - 0.01
        <= spread["mean_usd"]
        <= spread["max_usd"] + 0.01,
        "per_account: mean x accounts is not total_pnl_usd": _near(
            spread["mean_usd"] * s["accounts"], s["total_pnl_usd"]
        ),
        "warmup.steps: more than n_steps": s["warmup"]["steps"] <= s["n_steps"],
        "break_even: null if and only if there is no trade": all(
            (s[name] is not None) == traded for name in ("break_even_fee_usd_per_side", "break_even_ticks_per_lot")
        ),
    }


def _train_relations(s: Mapping[str, Any]) -> dict[str, bool]:
    return {
        "contract_sha256: another contract than this program's": s["contract_sha256"] == contract_sha256(),
        "completed_clean: not true": s["completed_clean"] is True,
        "transitions: not n_steps x accounts": s["transitions"] == s["n_steps"] * s["accounts"],
        "realized_pnl_usd_cum: not whole cents": _near(
            s["realized_pnl_usd_cum"] * 100, round(s["realized_pnl_usd_cum"] * 100), 1e-4
        ),
        "total_trades: pnl without a trade": s["total_trades"] > 0 or s["realized_pnl_usd_cum"] == 0,
    }


def _near(a: float, b: float, absolute: float = 0.01) -> bool:
    return math.isclose(a, b, rel_tol=1e-9, abs_tol=absolute)
