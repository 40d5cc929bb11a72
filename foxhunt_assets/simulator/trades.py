"""From closed rows on the device to trades.parquet's table. Host side; nothing here runs inside a step."""

from __future__ import annotations

from typing import Literal

import pyarrow as pa
import torch

from foxhunt_assets.contracts.tables import TRADES, arrow_schema
from foxhunt_assets.simulator.units import REASONS, TRADE_FIELDS

_COPIED = (
    "account", "side", "lots", "entry_step", "exit_step", "entry_ts", "exit_ts", "entry_tick_lots",
    "exit_tick_lots", "fees_cents", "pnl_cents",
)  # fmt: skip


class TradeLog:
    """Closed rows of one phase in order of closing: by step, then account, then stops before orders before forced
    closes, the oldest unit first. `state` and `load` carry it through a resumable checkpoint."""

    def __init__(self, phase: Literal["train", "eval"]):
        self.phase = phase
        self._rows: list[torch.Tensor] = []

    def add(self, trades: torch.Tensor, mask: torch.Tensor) -> int:
        """Take one step's trades [B, M, fields] and mask [B, M] (StepOutcome's); returns how many rows there were."""
        rows = trades.cpu()[mask.cpu()]
        if rows.shape[0]:
            self._rows.append(rows)
        return rows.shape[0]

    def state(self) -> torch.Tensor:
        """int64 [rows, fields]: all of it, to be saved."""
        return torch.cat(self._rows) if self._rows else torch.zeros(0, len(TRADE_FIELDS), dtype=torch.int64)

    def load(self, state: torch.Tensor) -> None:
        """Become what `state` returned when it was saved."""
        self._rows = [state.clone()] if state.shape[0] else []

    def table(self) -> pa.Table:
        """The trades table (contracts.tables.TRADES)."""
        values = dict(zip(TRADE_FIELDS, self.state().T.tolist()))
        reasons = [REASONS[code] for code in values["reason"]]
        actions = zip(values["entry_action"], values["exit_action"], reasons)
        columns = {
            **{name: values[name] for name in _COPIED},
            "trade": list(range(len(reasons))),
            "phase": [self.phase] * len(reasons),
            "reason": reasons,
            "actions": [f"a{entry}>{f'a{left}' if why == 'policy' else why}" for entry, left, why in actions],
        }
        return pa.table({c.name: columns[c.name] for c in TRADES}, schema=arrow_schema(TRADES))
