"""eval_summary.json from trades.parquet and equity.parquet: exact cents, drawdown and Sharpe in market time.

The B accounts walk contiguous stretches of one evaluation range laid end to end, account 0 first. Put one after
the other they are one track record: its equity is what the accounts before have earned plus what this one has.
Adding the accounts up step by step instead would mix dates and hide every loss another date made good.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from foxhunt_assets.contracts.diag import contract_sha256
from foxhunt_assets.contracts.summaries import MIN_TRADE_DATES
from foxhunt_assets.contracts.tables import EQUITY, TRADES, Column
from foxhunt_assets.errors import ContractBroken

TRADE_DATES_PER_YEAR = 252


@dataclass(frozen=True)
class RunFacts:
    """What the tables do not hold: the identity of the evaluation and of its contract.

    n_steps: evaluation steps, the drain row not counted. coverage_share: rows walked over rows of the range.
    slippage_cents: adverse distance of all fills from mid. tick_cents: value of a tick of one lot.
    """

    fold: str
    seed: int
    run_id: str
    eval_id: str
    code: str
    config_hash: str
    inputs: Mapping[str, str]
    synthetic: bool
    accounts: int
    phase: str
    n_steps: int
    coverage_share: float
    slippage_cents: int
    warmup_steps: int
    tick_cents: int


@dataclass(frozen=True)
class TrackRecord:
    """One row a grid row walked, in market time; the first three arrays are of equal length.

    ts: int64 ns UTC. date_index: into dates. equity_cents: int64, running over the accounts laid end to end, from 0.
    final_cents: int64 [B], what each account ended with on its own. dates: the trade dates walked, in order.
    """

    ts: np.ndarray
    date_index: np.ndarray
    equity_cents: np.ndarray
    final_cents: np.ndarray
    dates: list[str]

    @property
    def drawdown_cents(self) -> np.ndarray:
        """int64, how far equity lies under its highest so far; the start counts as 0."""
        return np.maximum.accumulate(np.maximum(self.equity_cents, 0)) - self.equity_cents

    @property
    def daily_cents(self) -> np.ndarray:
        """int64 [dates], marked-to-market net pnl of each trade date."""
        daily = np.zeros(len(self.dates), dtype=np.int64)
        np.add.at(daily, self.date_index, np.diff(self.equity_cents, prepend=0))
        return daily


def track_record(equity: pa.Table) -> TrackRecord:
    """The track record of an equity table (rows in any order). ContractBroken where it is not one walk."""
    _check_columns("equity.parquet", EQUITY, equity)
    account, step, ts, cents = (_int64(equity, c) for c in ("account", "step", "ts", "equity_cents"))
    order = np.lexsort((step, account))
    account, step, ts, cents = account[order], step[order], ts[order], cents[order]
    n_accounts, n_rows = _check_whole(account, step)
    last = cents.reshape(n_accounts, n_rows)[:, -1]
    carried = np.cumsum(last) - last
    _check_market_time(ts.reshape(n_accounts, n_rows))
    dates, date_index = _dates(equity)
    return TrackRecord(ts, date_index[order], cents + np.repeat(carried, n_rows), last, dates)


def daily_sharpe(daily: np.ndarray) -> float | None:
    """Mean over sample standard deviation (ddof 1) of daily pnl; None under MIN_TRADE_DATES dates or without spread.

    Futures pnl is an excess return already. Times sqrt(252) it is the annualised ratio.
    """
    if len(daily) < MIN_TRADE_DATES:
        return None
    return sharpe_ratio(daily)


def sharpe_ratio(pnl: np.ndarray) -> float | None:
    """Mean over sample standard deviation (ddof 1), not annualised; None when every value is the same."""
    values = [float(x) for x in pnl]
    if len(set(values)) < 2:
        return None
    mean = math.fsum(values) / len(values)
    return mean / math.sqrt(math.fsum((x - mean) ** 2 for x in values) / (len(values) - 1))


def eval_summary(trades: pa.Table, equity: pa.Table, facts: RunFacts) -> dict[str, Any]:
    """The dictionary of eval_summary.json (contracts.summaries.EVAL_SUMMARY).

    trades: the eval rows of trades.parquet. equity: equity.parquet. ContractBroken when the two disagree by a cent
    in any account, or when a table is not what the contract says.
    """
    _check_columns("trades.parquet", TRADES, trades)
    trades = trades.filter(pc.equal(trades["phase"], "eval"))
    record = track_record(equity)
    _check_size(record, facts)
    _check_accounts(trades, record.final_cents)
    pnl = _int64(trades, "pnl_cents")
    total, fees, lots = int(pnl.sum()), _total(trades, "fees_cents"), _total(trades, "lots")
    return {
        **_identity(facts),
        "n_trades": len(pnl),
        "total_pnl_cents": total,
        "total_pnl_usd": total / 100,
        "fees_usd": fees / 100,
        "slippage_usd": facts.slippage_cents / 100,
        "max_drawdown_usd": int(record.drawdown_cents.max()) / 100,
        **_wins_and_losses(pnl),
        "sharpe_daily": daily_sharpe(record.daily_cents / 100),
        "n_trade_dates": len(record.dates),
        "per_account": _spread(record.final_cents),
        "warmup": {"steps": facts.warmup_steps, "pnl_usd": _warmup_cents(trades, equity, facts) / 100},
        "break_even_fee_usd_per_side": (total + fees) / (2 * lots) / 100 if lots else None,
        "break_even_ticks_per_lot": (fees + facts.slippage_cents) / (lots * facts.tick_cents) if lots else None,
    }


def _identity(facts: RunFacts) -> dict[str, Any]:
    return {
        "fold": facts.fold,
        "seed": facts.seed,
        "run_id": facts.run_id,
        "eval_id": facts.eval_id,
        "contract_sha256": contract_sha256(),
        "code": facts.code,
        "config_hash": facts.config_hash,
        "inputs": dict(facts.inputs),
        "synthetic": facts.synthetic,
        "accounts": facts.accounts,
        "phase": facts.phase,
        "n_steps": facts.n_steps,
        "exploration": "greedy",
        "coverage_share": facts.coverage_share,
    }


def _wins_and_losses(pnl: np.ndarray) -> dict[str, float]:
    wins, losses = pnl[pnl > 0], pnl[pnl <= 0]
    return {
        "win_rate": len(wins) / len(pnl) if len(pnl) else 0.0,
        "avg_win_usd": int(wins.sum()) / len(wins) / 100 if len(wins) else 0.0,
        "avg_loss_usd": -int(losses.sum()) / len(losses) / 100 if len(losses) else 0.0,
    }


def _spread(finals: np.ndarray) -> dict[str, float]:
    """Over the last equity of each account, in USD; std is of the population."""
    mean = int(finals.sum()) / len(finals)
    variance = math.fsum((float(x) - mean) ** 2 for x in finals) / len(finals)
    return {
        "min_usd": int(finals.min()) / 100,
        "max_usd": int(finals.max()) / 100,
        "mean_usd": mean / 100,
        "std_usd": math.sqrt(variance) / 100,
    }


def _check_size(record: TrackRecord, facts: RunFacts) -> None:
    n_accounts = len(record.final_cents)
    rows = len(record.ts) // n_accounts
    if n_accounts != facts.accounts or rows != facts.n_steps + 1:
        raise ContractBroken(
            f"equity.parquet: {n_accounts} accounts of {rows} rows; {facts.accounts} accounts of {facts.n_steps} steps "
            "and the drain row were walked"
        )


def _warmup_cents(trades: pa.Table, equity: pa.Table, facts: RunFacts) -> int:
    end = pc.min(equity["step"]).as_py() + facts.warmup_steps
    return _total(trades.filter(pc.less(trades["exit_step"], end)), "pnl_cents")


def _total(table: pa.Table, column: str) -> int:
    return int(_int64(table, column).sum())


def _dates(equity: pa.Table) -> tuple[list[str], np.ndarray]:
    """Distinct trade dates in order, and the index of each row's own."""
    coded = pc.dictionary_encode(equity["trade_date"].combine_chunks())
    names = np.array(coded.dictionary.to_pylist(), dtype=str)
    rank = np.empty(len(names), dtype=np.int64)
    rank[np.argsort(names)] = np.arange(len(names))
    return sorted(str(name) for name in names), rank[coded.indices.to_numpy()]


def _int64(table: pa.Table, column: str) -> np.ndarray:
    return table[column].to_numpy().astype(np.int64)


def _check_columns(name: str, columns: tuple[Column, ...], table: pa.Table) -> None:
    for column in columns:
        if column.name not in table.column_names:
            raise ContractBroken(f"{name}: no column {column.name}; the run that wrote it must be made again")
        if table[column.name].null_count:
            raise ContractBroken(f"{name}: {column.name} holds nulls; the run that wrote it must be made again")


def _check_whole(account: np.ndarray, step: np.ndarray) -> tuple[int, int]:
    """(accounts, rows each) of rows sorted by account, then step; every account must have every step once."""
    if not len(account):
        raise ContractBroken("equity.parquet: no rows; the evaluation walked nothing")
    n_accounts = int(account[-1]) + 1
    n_rows = len(account) // n_accounts
    steps = int(step[0]) + np.arange(n_rows)
    whole = len(account) == n_accounts * n_rows and bool(
        np.array_equal(account, np.repeat(np.arange(n_accounts), n_rows))
        and np.array_equal(step, np.tile(steps, n_accounts))
    )
    if not whole:
        raise ContractBroken("equity.parquet: an account misses a step or has one twice; a walk has one row of each")
    return n_accounts, n_rows


def _check_market_time(ts: np.ndarray) -> None:
    """ts [accounts, rows]: forward inside a chunk, and no chunk begins before the one before it took its last step."""
    back = np.argwhere(np.diff(ts, axis=1) < 0)
    if len(back):
        account, row = back[0]
        raise ContractBroken(f"equity.parquet: account {account} goes back in time after row {row} of its walk")
    overlap = np.flatnonzero(ts[1:, 0] < ts[:-1, -2:][:, 0])  # the last row of a chunk is its drain row
    if len(overlap):
        i = overlap[0]
        raise ContractBroken(
            f"equity.parquet: account {i + 1} walks market that account {i} walked; chunks must lie end to end"
        )


def _check_accounts(trades: pa.Table, finals: np.ndarray) -> None:
    """Net pnl by trades equals the last equity, account by account, to the cent."""
    by_trades = np.zeros(len(finals), dtype=np.int64)
    account = _int64(trades, "account")
    if len(account) and (account.min() < 0 or account.max() >= len(finals)):
        raise ContractBroken(f"trades.parquet: account {account.max()} of {len(finals)}")
    np.add.at(by_trades, account, _int64(trades, "pnl_cents"))
    wrong = np.flatnonzero(by_trades != finals)
    if len(wrong):
        i = wrong[0]
        raise ContractBroken(
            f"trades.parquet: account {i} earned {by_trades[i]} cents by trades and {finals[i]} by equity.parquet "
            f"({len(wrong)} accounts differ); money went missing"
        )
