"""Each table's schema accepts a small good table and names each change that breaks it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pandas as pd
import pandera.pandas as pa_pd
import pyarrow as pa
import pytest

from foxhunt_assets.contracts import pandera_schemas as schemas
from foxhunt_assets.contracts.tables import (
    ABSENT_PX,
    EQUITY,
    FEATURE_NORM,
    LEVELS,
    SEGMENTS,
    SNAPSHOTS,
    TRADES,
    Column,
    arrow_schema,
    label_columns,
)


def table(columns: tuple[Column, ...], values: dict[str, list[Any]]) -> pa.Table:
    schema = arrow_schema(columns)
    return pa.table({f.name: pa.array(values[f.name], f.type) for f in schema}, schema=schema)


def _snapshots() -> pa.Table:
    """Two rows around 20,000 ticks; the second has nine ask levels."""
    down, up = list(range(0, -LEVELS, -1)), list(range(1, LEVELS + 1))
    asks = [[20_000 + x for x in up], [20_001 + x for x in up[:-1]] + [ABSENT_PX]]
    full, nine = [3] * LEVELS, [3] * (LEVELS - 1) + [0]
    return table(
        SNAPSHOTS,
        {
            "ts_event": [100, 190], "ts_recv": [110, 200], "ts": [250, 500], "source_row": [4, 9],
            "instrument_id": [17, 17], "bid_px": [[20_000 + x for x in down], [20_001 + x for x in down]],
            "ask_px": asks, "bid_sz": [full, full], "ask_sz": [full, nine], "bid_ct": [full, full],
            "ask_ct": [full, nine], "action": [65, 84], "side": [66, 65], "flags": [128, 128], "depth": [0, 1],
            "buy_lots": [0, 2], "sell_lots": [0, 0], "n_trades": [0, 1], "n_events": [5, 2],
            "low_bid_px": [20_000, 19_999], "high_ask_px": [20_001, 20_003], "ofi": [full, full], "segment": [-1, 0],
        },
    )  # fmt: skip


SEGMENT_ROWS = table(
    SEGMENTS,
    {
        "segment": [0, 1], "symbol": ["ESH4", "ESH4"], "instrument_id": [17, 17],
        "trade_date": ["2024-01-02", "2024-01-03"], "row_start": [0, 50], "row_end": [50, 90],
        "ended_by": ["session", "file"], "tick": [250_000_000] * 2, "multiplier_cents": [5_000] * 2,
    },
)  # fmt: skip
# A long of 2 lots up 3 ticks: 2 x 3 x 1250 - 900 = 6600. A short of 1 lot up 1 tick: -1250 - 450.
TRADE_ROWS = table(
    TRADES,
    {
        "trade": [0, 1], "account": [3, 0], "phase": ["eval", "eval"], "side": [1, -1], "lots": [2, 1],
        "entry_step": [5, 9], "exit_step": [8, 9], "entry_ts": [100, 900], "exit_ts": [400, 900],
        "entry_tick_lots": [40_000, 20_000], "exit_tick_lots": [40_006, 20_001], "fees_cents": [900, 450],
        "pnl_cents": [6_600, -1_700], "reason": ["policy", "phase_end"], "actions": ["a6>a3", "a1>phase_end"],
    },
)  # fmt: skip
EQUITY_ROWS = table(
    EQUITY,
    {
        "step": [7, 7, 8, 8], "account": [0, 1, 0, 1], "ts": [1, 2, 3, 4], "segment": [0] * 4,
        "trade_date": ["2024-01-02"] * 4, "equity_cents": [0, -450, 1250, -450], "action": [6, 2, 10, -1],
    },
)  # fmt: skip

TABLES: dict[str, tuple[pa_pd.DataFrameSchema, pa.Table]] = {
    "snapshots": (schemas.snapshots_schema(), _snapshots()),
    "segments": (schemas.segments_schema(), SEGMENT_ROWS),
    "labels": (
        schemas.labels_schema((8, 32), 21),
        table(label_columns((8, 32)), {"h8": [0, 20, -1], "h32": [-1, -1, 10]}),
    ),
    "trades": (schemas.trades_schema(1_250), TRADE_ROWS),
    "equity": (schemas.equity_schema(2), EQUITY_ROWS),
    "norm": (
        schemas.norm_schema(("a", "b")),
        table(FEATURE_NORM, {"feature": ["a", "b"], "mean": [0.5, -2.0], "std": [1.0, 0.0]}),
    ),
}


def cell(column: str, row: int, value: Any) -> Callable[[pd.DataFrame], None]:
    def change(data: pd.DataFrame) -> None:
        data.loc[row, column] = value

    return change


MUTATIONS: list[tuple[str, Callable[[pd.DataFrame], None], str]] = [
    ("snapshots", cell("bid_sz_3", 0, -1), "bid_sz_3"),
    ("snapshots", cell("ask_ct_0", 0, 0), "an absent level has no size and no count"),
    ("snapshots", cell("ask_sz_9", 1, 1), "an absent level has no size and no count"),
    ("snapshots", cell("bid_px_1", 0, 20_000), "bid prices fall level by level"),
    ("snapshots", cell("ask_px_4", 1, ABSENT_PX), "ask prices rise level by level"),
    ("snapshots", cell("ts", 1, 240), "ts never falls"),
    ("snapshots", cell("ts_recv", 0, 251), "ts_recv is not after ts"),
    ("snapshots", cell("n_trades", 1, 0), "a lot traded is in a trade"),
    ("snapshots", cell("low_bid_px", 0, 20_001), "the interval holds its own touch"),
    ("snapshots", cell("high_ask_px", 1, 20_001), "the interval holds its own touch"),
    ("snapshots", cell("segment", 0, -2), "segment"),
    ("snapshots", cell("source_row", 0, -1), "source_row"),
    ("segments", cell("row_start", 1, 49), "starts at or after the end before"),
    ("segments", cell("row_end", 0, 0), "at least one row"),
    ("segments", cell("segment", 1, 2), "numbered from 0"),
    ("segments", cell("ended_by", 1, "lunch"), "ended_by"),
    ("segments", cell("trade_date", 0, "20240102"), "trade_date"),
    ("segments", cell("tick", 0, 0), "tick"),
    ("labels", cell("h8", 1, 21), "h8"),
    ("labels", cell("h32", 0, -2), "h32"),
    ("trades", cell("pnl_cents", 0, 6_601), "pnl is side x (exit - entry) x tick value - fees"),
    ("trades", cell("exit_step", 0, 5), "entry before exit"),
    ("trades", cell("exit_ts", 0, 100), "entry before exit"),
    ("trades", cell("exit_ts", 1, 899), "entry before exit"),
    ("trades", cell("exit_step", 0, 10), "in order of closing"),
    ("trades", cell("lots", 1, 0), "lots"),
    ("trades", cell("side", 1, 0), "side"),
    ("trades", cell("reason", 1, "whim"), "reason"),
    ("trades", cell("actions", 0, "a2>a3"), "actions"),
    ("trades", cell("actions", 0, "a6>trail"), "the exit is an action for a close by policy, else its reason"),
    ("trades", cell("actions", 1, "a1>a10"), "the exit is an action for a close by policy, else its reason"),
    ("trades", cell("phase", 0, "test"), "phase"),
    ("equity", cell("account", 1, 0), "each account once a step"),
    ("equity", cell("step", 3, 9), "every account on every step"),
    ("equity", cell("account", 3, 2), "account"),
    ("equity", cell("action", 0, 11), "action"),
    ("norm", cell("mean", 0, float("inf")), "mean"),
    ("norm", cell("mean", 1, float("nan")), "mean"),
    ("norm", cell("std", 0, -0.1), "std"),
    ("norm", cell("feature", 1, "c"), "the features in table order"),
    ("norm", cell("feature", 2, "a"), "the features in table order"),
]


@pytest.mark.parametrize("name", TABLES)
def test_a_good_table_passes(name: str) -> None:
    schema, good = TABLES[name]
    assert schemas.faults(schema, schemas.frame(good)) == []


@pytest.mark.parametrize(("name", "change", "said"), MUTATIONS)
def test_each_change_is_named(name: str, change: Callable[[pd.DataFrame], None], said: str) -> None:
    schema, good = TABLES[name]
    data = schemas.frame(good)
    change(data)
    found = schemas.faults(schema, data)
    assert any(said in line for line in found), found


@pytest.mark.parametrize("name", TABLES)
def test_missing_extra_misplaced_and_mistyped_columns_and_no_rows_fail(name: str) -> None:
    schema, good = TABLES[name]
    data = schemas.frame(good)
    first, last = data.columns[0], data.columns[-1]
    assert schemas.faults(schema, data.drop(columns=[last]))
    assert schemas.faults(schema, data.assign(extra=1))
    assert schemas.faults(schema, data[[*data.columns[1:], first]])
    number = data.select_dtypes("number").columns[0]
    assert schemas.faults(schema, data.astype({number: "float32"}))
    assert schemas.faults(schema, data.iloc[:0]) == ["no rows"]


def test_the_report_is_bounded() -> None:
    data = schemas.frame(EQUITY_ROWS)
    many = pd.concat([data.assign(account=-5)] * 100, ignore_index=True)
    found = schemas.faults(schemas.equity_schema(2), many)
    assert sum(len(line) for line in found) < 1_000


def test_a_missing_feature_is_named() -> None:
    schema, good = TABLES["norm"]
    assert schemas.faults(schema, schemas.frame(good).iloc[:1]) == ["one row a feature: row 0"]
