"""Pandera schemas built from the plain tables: names, types and order from `tables` and `diag`, values from here.

Only `checks/` imports this module. Pandas backend, strict and ordered, never coercing: pandera's lazy frames check
no data, coercion truncates 1.5 to 1, and a one-sided bound lets infinity through. Fixed-size lists become one
column a level, so that each is judged.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise

import numpy as np
import pandas as pd
import pandera.errors
import pandera.pandas as pa_pd
import pyarrow as pa

from foxhunt_assets.contracts.diag import Leaf, live_leaves
from foxhunt_assets.contracts.profile import COUNTS, PROFILE_COLUMNS, leaf_profile
from foxhunt_assets.contracts.tables import (
    ABSENT_PX,
    EQUITY,
    FEATURE_NORM,
    LEVELS,
    NO_SEGMENT,
    SEGMENTS,
    SNAPSHOTS,
    TRADES,
    Column,
    label_columns,
)

N_CASES = 5  # failing values shown a check
_INT32 = 2**31 - 1
_PANDAS = {"string": "str", "int": "int64", "float": "float64", "bool": "bool"}
RowCheck = Callable[[pd.DataFrame], pd.Series]


def frame(table: pa.Table) -> pd.DataFrame:
    """A pandas frame of an Arrow table; a column that is a fixed-size list of n becomes n columns `<name>_<i>`."""
    parts: dict[str, np.ndarray | pd.Series] = {}
    for name in table.column_names:
        column = table.column(name)
        if pa.types.is_fixed_size_list(column.type):
            n = column.type.list_size
            flat = column.combine_chunks().flatten().to_numpy(zero_copy_only=False)
            parts.update({f"{name}_{i}": flat.reshape(-1, n)[:, i] for i in range(n)})
        else:
            parts[name] = column.to_pandas()
    return pd.DataFrame(parts)


def faults(schema: pa_pd.DataFrameSchema, data: pd.DataFrame, limit: int = 20) -> list[str]:
    """What a schema finds wrong, one line a column and check with the first values; empty when nothing is."""
    if not len(data):
        return ["no rows"]
    try:
        schema.validate(data, lazy=True)
    except pandera.errors.SchemaErrors as error:
        lines = _lines(error.failure_cases)
        return lines[:limit] + ([f"and {len(lines) - limit} more"] if len(lines) > limit else [])
    return []


def _lines(cases: pd.DataFrame) -> list[str]:
    """One line a column and check; a check on whole rows, which pandera repeats for every column, is one line."""
    whole_rows = (cases["schema_context"] == "DataFrameSchema") & cases["index"].notna()
    lines = []
    for key, group in cases[~whole_rows].astype({"column": str}).groupby(["column", "check"], sort=False):
        values = ", ".join(str(v) for v in group["failure_case"].head(N_CASES))
        lines.append(": ".join([*map(str, key), values]))
    for check, group in cases[whole_rows].groupby("check", sort=False):
        lines.append(f"{check!s}: row {', '.join(str(v) for v in group['index'].unique()[:N_CASES])}")
    return lines


def profile_schema() -> pa_pd.DataFrameSchema:
    """Contract of a leaf profile: each path once, expected, there once, rightly typed, no bad cell, some row."""
    exact = {"expected": 1, "present": 1, "dtype_ok": 1, **dict.fromkeys(COUNTS, 0)}
    columns = {
        "path": pa_pd.Column("str", unique=True),
        "rows": pa_pd.Column("int64", pa_pd.Check.gt(0, n_failure_cases=N_CASES)),
        **{name: pa_pd.Column("int64", pa_pd.Check.eq(v, n_failure_cases=N_CASES)) for name, v in exact.items()},
    }
    return _schema("leaf profile", {name: columns[name] for name in PROFILE_COLUMNS})


def profile_frame(table: pa.Table, contract: Sequence[Leaf] | None = None) -> pd.DataFrame:
    """The leaf profile of a diagnostics table as `profile_schema` judges it, indexed by row."""
    return pd.DataFrame(leaf_profile(table, contract), columns=list(PROFILE_COLUMNS)).astype({"path": "str"})


def diag_schema(contract: Sequence[Leaf] | None = None) -> pa_pd.DataFrameSchema:
    """Every leaf as a column, to name single bad cells; the profile is the fast form of the same verdict."""
    leaves = live_leaves() if contract is None else contract
    columns = {
        leaf.path: pa_pd.Column(
            _PANDAS[leaf.dtype], [] if leaf.dtype == "bool" else [_within(leaf.minimum, leaf.maximum)]
        )
        for leaf in leaves
    }
    return _schema("diag", columns)


def snapshots_schema() -> pa_pd.DataFrameSchema:
    """es_snapshots: sizes and counts from 0, best prices first, an absent level whole, time that never runs back."""
    bounds: dict[str, tuple[float | None, float | None]] = {
        **{
            f"{side}_{what}_{i}": (0, _INT32) for side in ("bid", "ask") for what in ("sz", "ct") for i in range(LEVELS)
        },
        **dict.fromkeys(("buy_lots", "sell_lots", "n_trades", "n_events"), (0, _INT32)),
        **dict.fromkeys(("ts_event", "ts_recv", "ts", "source_row"), (0, None)),
        "segment": (NO_SEGMENT, _INT32),
    }
    rows: dict[str, RowCheck] = {
        "ts_recv is not after ts": lambda d: d["ts_recv"] <= d["ts"],
        "ts never falls": lambda d: d["ts"].diff().fillna(0) >= 0,
        "bid prices fall level by level": lambda d: _levels_in_order(d, "bid", -1),
        "ask prices rise level by level": lambda d: _levels_in_order(d, "ask", 1),
        "an absent level has no size and no count": _absent_levels_are_empty,
        "a lot traded is in a trade": lambda d: (d["n_trades"] > 0) | (d["buy_lots"] + d["sell_lots"] == 0),
        "the interval holds its own touch": _interval_holds_touch,
    }
    return _table("es_snapshots", SNAPSHOTS, bounds, rows)


def segments_schema() -> pa_pd.DataFrameSchema:
    """segments.parquet: numbered from 0, in order, no two over one row, each with at least one row."""
    bounds = {"segment": (0, None), "row_start": (0, None), "tick": (1, None), "multiplier_cents": (1, None)}
    rows: dict[str, RowCheck] = {
        "numbered from 0": lambda d: d["segment"] == np.arange(len(d)),
        "at least one row": lambda d: d["row_end"] > d["row_start"],
        "starts at or after the end before": lambda d: d["row_start"] >= d["row_end"].shift(fill_value=0),
    }
    known = {
        "ended_by": pa_pd.Check.isin(("session", "reset", "gap", "roll", "file")),
        "trade_date": pa_pd.Check.str_matches(r"^\d{4}-\d{2}-\d{2}$"),
    }
    return _table("segments", SEGMENTS, bounds, rows, known)


def labels_schema(horizons: Sequence[int], atoms: int) -> pa_pd.DataFrameSchema:
    """frd_labels: atoms 0 to atoms - 1, or -1 for none."""
    columns = label_columns(horizons)
    return _table("frd_labels", columns, {c.name: (-1, atoms - 1) for c in columns}, {})


def trades_schema(tick_cents: int) -> pa_pd.DataFrameSchema:
    """trades.parquet: in order of closing, entry before exit, the pnl identity of every row in cents."""
    bounds = {
        "trade": (0, None),
        "account": (0, None),
        "lots": (1, None),
        "fees_cents": (0, None),
        "entry_step": (0, None),
    }
    rows: dict[str, RowCheck] = {
        "numbered from 0": lambda d: d["trade"] == np.arange(len(d)),
        "entry before exit, on one book only where the close is forced": _entry_before_exit,
        "the exit is an action for a close by policy, else its reason": _exit_named,
        "in order of closing": lambda d: d["exit_step"].diff().fillna(0) >= 0,
        "pnl is side x (exit - entry) x tick value - fees": lambda d: (
            d["pnl_cents"]
            == d["side"].astype("int64") * (d["exit_tick_lots"] - d["entry_tick_lots"]) * tick_cents - d["fees_cents"]
        ),
    }
    known = {
        "side": pa_pd.Check.isin((-1, 1)),
        "phase": pa_pd.Check.isin(("train", "eval")),
        "reason": pa_pd.Check.isin(("policy", "trail", "session", "length", "gap", "blown", "phase_end")),
        "actions": pa_pd.Check.str_matches(r"^a(0|1|5|6)>(a([0-9]|10)|[a-z_]+)$"),
    }
    return _table("trades", TRADES, bounds, rows, known)


def equity_schema(accounts: int) -> pa_pd.DataFrameSchema:
    """equity.parquet: each account once a step, accounts 0 to B - 1."""
    bounds = {"step": (0, None), "account": (0, accounts - 1), "ts": (0, None), "action": (-1, 10)}
    rows: dict[str, RowCheck] = {
        "each account once a step": lambda d: ~d.duplicated(["step", "account"]),
        "every account on every step": lambda d: d.groupby("step")["account"].transform("size") == accounts,
    }
    known = {"trade_date": pa_pd.Check.str_matches(r"^\d{4}-\d{2}-\d{2}$")}
    return _table("equity", EQUITY, bounds, rows, known)


def norm_schema(features: Sequence[str]) -> pa_pd.DataFrameSchema:
    """feature_norm.parquet: the features in table order, finite means, finite deviations from 0."""
    finite = float(np.finfo(np.float64).max)
    bounds = {"mean": (-finite, finite), "std": (0.0, finite)}
    rows: dict[str, RowCheck] = {
        "the features in table order": lambda d: (
            d["feature"] == pd.Series(list(features), dtype="str").reindex(range(len(d)))
        ),
        "one row a feature": lambda d: pd.Series(len(d) == len(features), index=d.index),
    }
    return _table("feature_norm", FEATURE_NORM, bounds, rows)


def _table(
    name: str,
    columns: Sequence[Column],
    bounds: Mapping[str, tuple[float | None, float | None]],
    rows: Mapping[str, RowCheck],
    checks: Mapping[str, pa_pd.Check] | None = None,
) -> pa_pd.DataFrameSchema:
    """Strict schema of a column table. bounds: inclusive. rows: text -> a frame's good rows. checks: by column."""
    built = {}
    for column in columns:
        for flat, dtype in _flat(column):
            found = [_within(*bounds[flat])] if flat in bounds else []
            found += [checks[flat]] if checks and flat in checks else []
            built[flat] = pa_pd.Column(dtype, found)
    frame_checks = [pa_pd.Check(fn, error=text, n_failure_cases=N_CASES) for text, fn in rows.items()]
    return _schema(name, built, frame_checks)


def _schema(name: str, columns: dict, checks: Sequence[pa_pd.Check] = ()) -> pa_pd.DataFrameSchema:
    return pa_pd.DataFrameSchema(columns, checks=list(checks), strict=True, ordered=True, coerce=False, name=name)


def _flat(column: Column) -> list[tuple[str, str]]:
    if column.type.startswith("fixed_size_list"):
        return [(f"{column.name}_{i}", "int32") for i in range(LEVELS)]
    return [(column.name, _PANDAS.get(column.type, column.type))]


def _within(low: float | None, high: float | None) -> pa_pd.Check:
    """Inclusive bounds that also refuse NaN and infinity, which a one-sided comparison would let through."""

    def inside(values: pd.Series) -> pd.Series:
        good = np.isfinite(values)
        if low is not None:
            good &= values >= low
        if high is not None:
            good &= values <= high
        return good

    text = f"finite, {'' if low is None else f'>= {low}'} {'' if high is None else f'<= {high}'}".rstrip(", ")
    return pa_pd.Check(inside, error=text, n_failure_cases=N_CASES)


def _levels_in_order(data: pd.DataFrame, side: str, sign: int) -> pd.Series:
    """Present prices in strict order, and no present level behind an absent one."""
    good = np.ones(len(data), bool)
    for near, far in pairwise(range(LEVELS)):
        a, b = data[f"{side}_px_{near}"].to_numpy(), data[f"{side}_px_{far}"].to_numpy()
        good &= (b == ABSENT_PX) | ((a != ABSENT_PX) & (sign * (b.astype(np.int64) - a) > 0))
    return pd.Series(good, index=data.index)


def _entry_before_exit(trades: pd.DataFrame) -> pd.Series:
    """A forced close may follow the entry on the very book it filled on; policy and stop need a later one."""
    step, ts = trades["exit_step"] - trades["entry_step"], trades["exit_ts"] - trades["entry_ts"]
    chosen = trades["reason"].isin(("policy", "trail"))
    return ((step > 0) & (ts > 0)) | (~chosen & (step >= 0) & (ts >= 0))


def _exit_named(trades: pd.DataFrame) -> pd.Series:
    way_out = trades["actions"].str.split(">").str[-1]
    return (way_out == trades["reason"]) | ((trades["reason"] == "policy") & way_out.str.match("a[0-9]"))


def _absent_levels_are_empty(data: pd.DataFrame) -> pd.Series:
    good = np.ones(len(data), bool)
    for side in ("bid", "ask"):
        for i in range(LEVELS):
            absent = data[f"{side}_px_{i}"].to_numpy() == ABSENT_PX
            held = (data[f"{side}_sz_{i}"].to_numpy() > 0) & (data[f"{side}_ct_{i}"].to_numpy() > 0)
            empty = (data[f"{side}_sz_{i}"].to_numpy() == 0) & (data[f"{side}_ct_{i}"].to_numpy() == 0)
            good &= np.where(absent, empty, held)
    return pd.Series(good, index=data.index)


def _interval_holds_touch(data: pd.DataFrame) -> pd.Series:
    bid, ask = data["bid_px_0"], data["ask_px_0"]
    low = (bid == ABSENT_PX) | (data["low_bid_px"] <= bid)
    return low & ((ask == ABSENT_PX) | (data["high_ask_px"] >= ask))
