"""The trades table and its way through a checkpoint."""

from __future__ import annotations

import pyarrow as pa
import torch

from foxhunt_assets.contracts.tables import TRADES, arrow_schema
from foxhunt_assets.simulator.trades import TradeLog
from foxhunt_assets.simulator.units import REASONS, TRADE_FIELDS

POLICY = {
    "account": 1, "side": -1, "lots": 2, "entry_step": 3, "exit_step": 9, "entry_ts": 30, "exit_ts": 90,
    "entry_tick_lots": 40_001, "exit_tick_lots": 39_990, "fees_cents": 900, "pnl_cents": 12_850,
    "reason": REASONS.index("policy"), "entry_action": 0, "exit_action": 4, "sign_h1": 1, "sign_h2": 0, "sign_h3": -1,
}  # fmt: skip
TRAIL = POLICY | {"account": 0, "reason": REASONS.index("trail"), "exit_action": 2}


def _step(*rows):
    trades = torch.zeros(2, 3, len(TRADE_FIELDS), dtype=torch.int64)
    mask = torch.zeros(2, 3, dtype=torch.bool)
    for row in rows:
        slot = int(mask[row["account"]].sum()) + 1  # a hole before each row
        trades[row["account"], slot] = torch.tensor([row[name] for name in TRADE_FIELDS])
        mask[row["account"], slot] = True
    return trades, mask


def test_rows_become_the_table_of_the_contract():
    log = TradeLog("eval")
    assert log.add(*_step(POLICY, TRAIL)) == 2
    assert log.add(*_step()) == 0
    table = log.table()
    assert table.schema == arrow_schema(TRADES)
    first, second = table.to_pylist()
    assert first["actions"] == "a0>trail" and first["reason"] == "trail" and first["account"] == 0
    assert second["actions"] == "a0>a4" and second["trade"] == 1 and second["phase"] == "eval"
    for name in ("side", "lots", "entry_step", "exit_step", "entry_ts", "exit_ts", "fees_cents", "pnl_cents"):
        assert second[name] == POLICY[name]
    assert (second["entry_tick_lots"], second["exit_tick_lots"]) == (40_001, 39_990)


def test_no_trade_is_an_empty_table_of_the_same_schema():
    assert TradeLog("train").table().schema == arrow_schema(TRADES) and TradeLog("train").table().num_rows == 0


def test_a_resumed_log_goes_on_where_it_was():
    whole, first, resumed = TradeLog("train"), TradeLog("train"), TradeLog("train")
    for log in (whole, first):
        log.add(*_step(POLICY, TRAIL))
    state = first.state()
    assert state.dtype == torch.int64 and state.shape == (2, len(TRADE_FIELDS))
    resumed.load(state)
    for log in (whole, resumed):
        log.add(*_step(TRAIL))
    assert resumed.table().equals(whole.table())
    empty = TradeLog("train")
    empty.load(TradeLog("train").state())
    assert isinstance(empty.table(), pa.Table) and empty.table().num_rows == 0
