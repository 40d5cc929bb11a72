"""Columns of every table the project writes, as plain data. Types are Arrow's own names.

es_snapshots (Arrow IPC), segments.parquet, frd_labels (Arrow IPC), feature_norm.parquet, trades.parquet,
equity.parquet and timing.parquet. pyarrow schemas are built from here by `arrow_schema`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

LEVELS = 10
ABSENT_PX = -(2**31)  # price of a level that is not there; its size and count are 0
NO_SEGMENT = -1  # segment of a row outside every session

_LEVEL_LIST = f"fixed_size_list<int32>[{LEVELS}]"


@dataclass(frozen=True)
class Column:
    """One column: name, Arrow type, unit and meaning. Nothing the project writes is nullable."""

    name: str
    type: str
    unit: str
    meaning: str


def _columns(*rows: tuple[str, str, str, str]) -> tuple[Column, ...]:
    return tuple(Column(*row) for row in rows)


SNAPSHOTS = _columns(
    ("ts_event", "int64", "ns UTC", "exchange time of the last event in the row"),
    ("ts_recv", "int64", "ns UTC", "capture time of the last event in the row"),
    ("ts", "int64", "ns UTC", "instant the row is known: grid instant, or ts_recv on the event clock"),
    ("source_row", "int64", "record", "index in the source file of the record that made the row"),
    ("instrument_id", "uint32", "1", "exchange instrument id"),
    *((f"{side}_px", _LEVEL_LIST, "ticks", f"{side} prices, best first") for side in ("bid", "ask")),
    *((f"{side}_sz", _LEVEL_LIST, "lots", f"{side} sizes") for side in ("bid", "ask")),
    *((f"{side}_ct", _LEVEL_LIST, "orders", f"{side} order counts") for side in ("bid", "ask")),
    ("action", "uint8", "ascii", "action of the last event: A C M R T F N"),
    ("side", "uint8", "ascii", "side of the last event: A B N"),
    ("flags", "uint8", "bits", "DBN flags of the last event"),
    ("depth", "uint8", "level", "level the last event touched"),
    ("buy_lots", "int32", "lots", "lots traded by buying aggressors since the row before"),
    ("sell_lots", "int32", "lots", "lots traded by selling aggressors since the row before"),
    ("n_trades", "int32", "count", "trades since the row before"),
    ("n_events", "int32", "count", "events (F_LAST groups) since the row before"),
    ("low_bid_px", "int32", "ticks", "lowest best bid since the row before, this row's own included"),
    ("high_ask_px", "int32", "ticks", "highest best ask since the row before, this row's own included"),
    ("ofi", _LEVEL_LIST, "lots", "order-flow imbalance of each level summed since the row before (Cont 2014)"),
    ("segment", "int32", "1", "row of segments.parquet, -1 outside every session"),
)

SEGMENTS = _columns(
    ("segment", "int32", "1", "number in this file, from 0"),
    ("symbol", "string", "1", "raw symbol, e.g. ESH4"),
    ("instrument_id", "uint32", "1", "exchange instrument id"),
    ("trade_date", "string", "date", "exchange trade date, YYYY-MM-DD"),
    ("row_start", "int64", "row", "first snapshot row"),
    ("row_end", "int64", "row", "one past the last snapshot row"),
    ("ended_by", "string", "1", "session | reset | gap | roll | file"),
    ("tick", "int64", "1e-9 points", "price tick"),
    ("multiplier_cents", "int64", "cents", "value of one point of one lot"),
)

TRADES = _columns(
    ("trade", "int64", "1", "row number, from 0, in order of closing"),
    ("account", "int32", "1", "account"),
    ("phase", "string", "1", "train | eval"),
    ("side", "int8", "1", "+1 long, -1 short"),
    ("lots", "int32", "lots", "lots closed by this row"),
    ("entry_step", "int64", "step", "step of the entry fill"),
    ("exit_step", "int64", "step", "step of the exit fill"),
    ("entry_ts", "int64", "ns UTC", "ts of the book the entry filled on"),
    ("exit_ts", "int64", "ns UTC", "ts of the book the exit filled on"),
    ("entry_tick_lots", "int64", "ticks x lots", "sum of entry price x lot over the lots of this row"),
    ("exit_tick_lots", "int64", "ticks x lots", "sum of exit price x lot over the lots of this row"),
    ("fees_cents", "int64", "cents", "exit fee plus this row's share of the entry fee"),
    ("pnl_cents", "int64", "cents", "side x (exit - entry) x tick value - fees"),
    ("reason", "string", "1", "policy | trail | session | length | gap | blown | phase_end"),
    ("actions", "string", "1", "entry action and exit action, e.g. a6>a3"),
)

EQUITY = _columns(
    ("step", "int64", "step", "evaluation step on the shared axis"),
    ("account", "int32", "1", "account"),
    ("ts", "int64", "ns UTC", "ts of the book the account stands on when the row ends"),
    ("segment", "int32", "1", "tape segment of that book"),
    ("trade_date", "string", "date", "exchange trade date of that book"),
    ("action", "int8", "1", "executed action of the row, -1 on the drain row"),
    ("equity_cents", "int64", "cents", "realised plus open net pnl since the phase began"),
)

FEATURE_NORM = _columns(
    ("feature", "string", "1", "name in the feature table"),
    ("mean", "float64", "feature unit", "mean over the fold's training rows"),
    ("std", "float64", "feature unit", "standard deviation (ddof 0) over the fold's training rows"),
)

TIMING = _columns(
    ("step", "int64", "step", "step on the shared axis"),
    ("elapsed_s", "float64", "s", "wall clock since the process began"),
)


def label_columns(horizons: Sequence[int]) -> tuple[Column, ...]:
    """Columns of frd_labels: one int8 atom (-1 where there is no label) a horizon."""
    return _columns(*((f"h{h}", "int8", "atom", f"forward-return atom {h} snapshots on, -1 if none") for h in horizons))


_SCALARS = {
    "int8": pa.int8(), "uint8": pa.uint8(), "int32": pa.int32(), "uint32": pa.uint32(), "int64": pa.int64(),
    "float32": pa.float32(), "float64": pa.float64(), "string": pa.string(),
    _LEVEL_LIST: pa.list_(pa.field("item", pa.int32(), nullable=False), LEVELS),
}  # fmt: skip


def arrow_schema(columns: Sequence[Column], metadata: dict[str, str] | None = None) -> pa.Schema:
    """The pyarrow schema of a column table; every field is non-nullable."""
    fields = [pa.field(c.name, _SCALARS[c.type], nullable=False) for c in columns]
    return pa.schema(fields, metadata=metadata)
