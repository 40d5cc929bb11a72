"""The equity log of an evaluation: one row an account and step, where it stands, what it did, what it is worth."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import torch

from foxhunt_assets.contracts.tables import EQUITY, arrow_schema
from foxhunt_assets.simulator.simulator import StepOutcome
from foxhunt_assets.trainer.program import Flags
from foxhunt_assets.trainer.world import World


def equity_columns(world: World, outcome: StepOutcome, flags: Flags) -> torch.Tensor:
    """int64 [B, 6] of a step, on the device: step, account, ts, segment, action (-1 in the drain row), cents."""
    at = outcome.next_row
    action = torch.full_like(outcome.executed, -1) if flags.drain else outcome.executed
    columns = (
        world.clock.step.expand_as(at), torch.arange(at.numel(), device=at.device), world.tape.market.ts[at],
        world.tape.segment[at].long(), action, outcome.phase_equity_cents,
    )  # fmt: skip
    return torch.stack(columns, dim=1)


class EquityLog:
    """Rows of `equity_columns` as they reach the host, and the table of them all."""

    def __init__(self, trade_dates: tuple[str, ...]) -> None:
        self.trade_dates = trade_dates
        self.rows: list[torch.Tensor] = []

    def add(self, columns: torch.Tensor) -> None:
        self.rows.append(columns.clone())

    def table(self) -> pa.Table:
        """The equity table (contracts.tables.EQUITY)."""
        step, account, ts, segment, action, cents = torch.cat(self.rows).T.contiguous().numpy()
        dates = np.array(self.trade_dates, dtype=object)[segment]
        columns = {
            "step": step, "account": account.astype(np.int32), "ts": ts, "segment": segment.astype(np.int32),
            "trade_date": dates, "action": action.astype(np.int8), "equity_cents": cents,
        }  # fmt: skip
        return pa.table({c.name: pa.array(columns[c.name]) for c in EQUITY}, schema=arrow_schema(EQUITY))
