"""The oracle on markets whose answer is known: a straight drift by hand, a generated one, a martingale."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from foxhunt_assets.contracts.instruments import contract
from foxhunt_assets.errors import BadInput
from foxhunt_assets.evaluation import report, surrogate
from foxhunt_assets.evaluation.oracle import OracleResult, oracle, wish
from foxhunt_assets.evaluation.summary import eval_summary
from foxhunt_assets.market import folds, snapshots, synthetic, tape
from foxhunt_assets.simulator.config import EnvConfig
from foxhunt_assets.simulator.market_view import MarketView
from foxhunt_assets.simulator.walk import session_end_rows
from tests.evaluation.test_summary import EQUITY_2, FACTS, TRADES_2

FEE, TICK_CENTS = 225, 1_250
COLUMNS = ("bid_px", "ask_px", "bid_sz", "ask_sz", "low_bid_px", "high_ask_px", "ts", "ts_event", "segment")


def drifting(bid: np.ndarray) -> MarketView:
    """One segment with a spread of a tick, a thousand lots a level, and the given best bids."""
    n, level = len(bid), np.arange(10)
    ts = torch.arange(n) * 250_000_000
    columns = {
        "bid_px": bid[:, None] - level, "ask_px": bid[:, None] + 1 + level,
        "bid_sz": np.full((n, 10), 1_000), "ask_sz": np.full((n, 10), 1_000),
        "low_bid_px": bid, "high_ask_px": bid + 1, "segment": np.zeros(n),
    }  # fmt: skip
    made = {name: torch.from_numpy(np.asarray(x).astype(np.int32)) for name, x in columns.items()}
    return MarketView(**made, ts=ts, ts_event=ts, fee_cents=torch.full((n,), FEE), tick_cents=TICK_CENTS)


def simulators(market: MarketView, ranges: list, accounts: int, steps: int, env: EnvConfig) -> surrogate.MakeSimulator:
    ends = session_end_rows(market.rows, [(end, "session") for _, end in ranges])
    return surrogate.simulators_of(env, market, ranges, ends, accounts, steps, 1)


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("latency", [1, 3])
def test_on_a_straight_drift_it_earns_what_arithmetic_says(sign: int, latency: int) -> None:
    """A tick a row with the pressure: four units of two lots, entered `latency` rows after each decision, one a row,
    out on the book of the last row. A lot entered at row r and left at row e gains (e - r) ticks, less the spread."""
    rows = 40
    market = drifting(20_000 + sign * np.arange(rows))
    env = EnvConfig(latency_steps=latency, min_hold_steps=0)
    found = oracle(
        simulators(market, [(0, rows)], 1, rows - 1, env), torch.full((rows,), sign, dtype=torch.int8), rows - 1
    )
    ticks = sum((rows - 1) - (latency + unit) - 1 for unit in range(4)) * 2
    assert found.account_cents == (ticks * TICK_CENTS - 8 * 2 * FEE,)


def test_without_pressure_it_does_nothing_and_against_it_closes() -> None:
    market = drifting(20_000 + np.arange(40))
    env = EnvConfig(min_hold_steps=0)
    rest = oracle(simulators(market, [(0, 40)], 2, 19, env), torch.zeros(40, dtype=torch.int8), 19)
    assert rest.account_cents == (0, 0)
    assert wish(torch.tensor([1, 0, -1])).tolist() == [6, 2, 0]
    # ten rows up, then down: decided at row 10, out at row 11, and short from row 12
    turns = drifting(20_000 + np.concatenate([np.arange(11), 10 - np.arange(1, 30)]))
    pressure = torch.tensor([1] * 10 + [-1] * 30, dtype=torch.int8)
    held = oracle(simulators(turns, [(0, 40)], 1, 39, env), pressure, 39).cents
    bid = turns.bid_px[:, 0].tolist()
    long = sum(bid[11] - (bid[r] + 1) for r in (1, 2, 3, 4)) * 2
    short = sum(bid[r] - (bid[39] + 1) for r in (12, 13, 14, 15)) * 2
    assert held == (long + short) * TICK_CENTS - 2 * 16 * FEE


def test_the_minimum_hold_binds_it_too() -> None:
    """The pressure flips every 15 rows; held 25 rows at least, the oracle cannot leave in time."""
    pressure = np.repeat(np.tile([1, -1], 5), 15)
    market = drifting(20_000 + np.append(0, np.cumsum(pressure)))
    known = torch.from_numpy(np.append(pressure, 0).astype(np.int8))
    steps = len(pressure)
    quick, slow = (
        oracle(simulators(market, [(0, steps + 1)], 1, steps, EnvConfig(min_hold_steps=hold)), known, steps)
        for hold in (0, 25)
    )
    assert slow.cents < 0 < quick.cents


def generated(folder, setting: str):
    (path,) = synthetic.write_files(folder, setting, 0, 1, 10)
    out = folder / "out"
    out.mkdir()
    snapshots.decode(path, out, contract("ES"), 250)
    info = folds.source_info("k", out)
    columns = tape.read_columns([folds.TapeSource("k", 0, info.n_rows, "")], lambda key: out, COLUMNS)
    market = MarketView(**columns, fee_cents=torch.full((info.n_rows,), FEE), tick_cents=TICK_CENTS)
    pressure = torch.from_numpy(synthetic.latent_at(synthetic.read_recipe(path), columns["ts"].numpy()))
    ranges = [(s.row_start, s.row_end) for s in info.segments]
    return market, pressure, ranges


def test_on_a_generated_market_knowledge_pays_and_on_a_martingale_it_does_not(tmp_path) -> None:
    earned = {}
    for setting in ("planted", "martingale"):
        (tmp_path / setting).mkdir()
        market, pressure, ranges = generated(tmp_path / setting, setting)
        steps = (ranges[0][1] - ranges[0][0] - 1) // 16
        make = simulators(market, ranges, 16, steps, EnvConfig(min_hold_steps=8))
        earned[setting] = oracle(make, pressure, steps)
        if setting == "planted":
            other = oracle(make, pressure.roll(600), steps)  # the wrong stretches of market
    assert earned["planted"].cents > 500_000 > max(earned["martingale"].cents, other.cents)


def test_share_and_report() -> None:
    result = OracleResult((150, 50))
    assert result.share(50) == 0.25 and result.share(-50) == -0.25 and OracleResult((-1,)).share(5) is None
    with pytest.raises(BadInput, match="3,\\) states for a tape of 40 rows"):
        make = simulators(drifting(np.full(40, 20_000)), [(0, 40)], 1, 39, EnvConfig())
        oracle(make, torch.zeros(3, dtype=torch.int8), 39)
    summary_of = eval_summary(TRADES_2, EQUITY_2, FACTS)
    text = report.markdown(summary_of, OracleResult((1_000_000,)))
    assert "10,000.00 USD" in text and "net pnl as a share of the oracle" in text
    assert "oracle" not in report.markdown(summary_of)
    assert "the oracle earns nothing" in report.markdown(summary_of, OracleResult((-5,)))
