"""Hand-made trades and equity curves whose figures are worked out beside them."""

import dataclasses
import math

import numpy as np
import pyarrow as pa
import pytest

from foxhunt_assets.contracts.summaries import check_eval_summary
from foxhunt_assets.contracts.tables import EQUITY, TRADES, arrow_schema
from foxhunt_assets.errors import ContractBroken
from foxhunt_assets.evaluation import summary

FACTS = summary.RunFacts(
    fold="fold_0", seed=7, run_id="0" * 16, eval_id="1" * 16, code="a" * 64, config_hash="b" * 64,
    inputs={"fold_spec": "c" * 64}, synthetic=True, accounts=2, phase="test", n_steps=3, coverage_share=1.0,
    slippage_cents=2_500, warmup_steps=1, tick_cents=1_250,
)  # fmt: skip


def trades_table(*rows):
    """rows: (account, side, lots, exit_step, ticks gained a lot, fees_cents) on ES, 1,250 cents a tick."""
    out = [
        {
            "trade": i, "account": account, "phase": "eval", "side": side, "lots": lots, "entry_step": exit_step - 1,
            "exit_step": exit_step, "entry_ts": 0, "exit_ts": 1, "entry_tick_lots": 20_000 * lots,
            "exit_tick_lots": (20_000 + side * ticks) * lots, "fees_cents": fees,
            "pnl_cents": ticks * lots * 1_250 - fees, "reason": "policy", "actions": "a6>a3",
        }
        for i, (account, side, lots, exit_step, ticks, fees) in enumerate(rows)
    ]  # fmt: skip
    return pa.Table.from_pylist(out, schema=arrow_schema(TRADES))


def equity_table(curves, dates=None, first_step=100):
    """curves: cents a row for each account; account i's rows follow account i-1's in market time."""
    out = []
    for account, curve in enumerate(curves):
        for i, cents in enumerate(curve):
            row = sum(len(c) - 1 for c in curves[:account]) + i
            out.append(
                {
                    "step": first_step + i, "account": account, "ts": row * 250_000_000, "segment": 0,
                    "trade_date": dates[account][i] if dates else "2024-01-02", "action": 2, "equity_cents": cents,
                }
            )  # fmt: skip
    return pa.Table.from_pylist(out, schema=arrow_schema(EQUITY))


# Account 0: one winning long of 2 lots, +3 ticks: 2 x 3 x 1,250 - 900 = 6,600 cents.
# Account 1: a losing short of 1 lot, -4 ticks: -5,000 - 450 = -5,450; a flat one of 1 lot: 0 - 450 = -450.
TRADES_2 = trades_table((0, 1, 2, 102, 3, 900), (1, -1, 1, 100, -4, 450), (1, 1, 1, 103, 0, 450))
EQUITY_2 = equity_table([[-900, 4_000, 6_600, 6_600], [-5_450, -5_450, -7_000, -5_900]])


def test_a_hand_made_evaluation():
    s = summary.eval_summary(TRADES_2, EQUITY_2, FACTS)
    assert (s["total_pnl_cents"], s["total_pnl_usd"], s["n_trades"], s["fees_usd"]) == (700, 7.0, 3, 18.0)
    assert (s["win_rate"], s["avg_win_usd"], s["avg_loss_usd"]) == (1 / 3, 66.0, 29.5)
    # One record: -900 4000 6600 6600 | 1150 1150 -400 700. Highest 6600, lowest after it -400.
    assert s["max_drawdown_usd"] == 70.0
    assert s["per_account"] == {"min_usd": -59.0, "max_usd": 66.0, "mean_usd": 3.5, "std_usd": 62.5}
    assert s["warmup"] == {"steps": 1, "pnl_usd": -54.5}  # only the trade closed on the first step
    assert s["break_even_fee_usd_per_side"] == 25.0 / 8  # gross 25.00 over 4 lots, two sides each
    assert s["break_even_ticks_per_lot"] == (1_800 + 2_500) / (4 * 1_250)
    assert s["sharpe_daily"] is None and s["n_trade_dates"] == 1
    assert check_eval_summary(s) == []


def test_the_break_even_fee_brings_the_total_to_zero():
    fee = summary.eval_summary(TRADES_2, EQUITY_2, FACTS)["break_even_fee_usd_per_side"]
    gross = 700 + 1_800
    assert gross - fee * 100 * 2 * 4 == 0


def test_drawdown_is_of_market_time_not_of_steps():
    # Account 0 loses 100 USD, account 1 makes 100 USD at the same steps: by steps the fleet never moves.
    equity = equity_table([[0, -5_000, -10_000, -10_000], [0, 5_000, 10_000, 10_000]])
    record = summary.track_record(equity)
    assert record.equity_cents.tolist() == [0, -5_000, -10_000, -10_000, -10_000, -5_000, 0, 0]
    assert record.drawdown_cents.max() == 10_000
    by_step = np.array([0, 0, 0, 0])
    assert (np.maximum.accumulate(by_step) - by_step).max() == 0
    # Two accounts that each lose 100 USD are 200 USD down, though neither fell by more than 100.
    both = summary.track_record(equity_table([[0, -10_000], [0, -10_000]]))
    assert both.drawdown_cents.max() == 20_000


def test_start_equity_counts_for_drawdown():
    assert summary.track_record(equity_table([[-800, -500]])).drawdown_cents.tolist() == [800, 500]


DAILY = [1200, -800, 500, -300, 900, -400, 700, 100]  # USD


def test_sharpe_and_drawdown_of_the_published_example():
    assert summary.sharpe_ratio(np.array(DAILY)) == pytest.approx(0.338853778, abs=1e-9)
    annual = summary.sharpe_ratio(np.array(DAILY)) * math.sqrt(summary.TRADE_DATES_PER_YEAR)
    assert annual == pytest.approx(5.379136966, abs=1e-9)
    curve = (np.cumsum(DAILY) * 100).tolist()
    dates = [[f"2024-01-{d:02d}" for d in range(1, 9)]]
    record = summary.track_record(equity_table([curve], dates))
    assert (record.daily_cents == np.array(DAILY) * 100).all()
    assert record.drawdown_cents.max() == 80_000


def test_daily_pnl_is_marked_to_market_and_joins_the_chunks_of_a_date():
    dates = [["2024-01-02", "2024-01-02", "2024-01-03"], ["2024-01-03", "2024-01-03", "2024-01-04"]]
    record = summary.track_record(equity_table([[100, 300, 250], [10, -40, 60]], dates))
    assert record.dates == ["2024-01-02", "2024-01-03", "2024-01-04"]
    assert record.daily_cents.tolist() == [300, -50 - 40, 100]
    assert record.daily_cents.sum() == 250 + 60


def test_no_sharpe_under_twenty_dates_nor_without_spread():
    daily = np.array(DAILY * 3, dtype=float)
    assert summary.daily_sharpe(daily[:19]) is None
    assert summary.daily_sharpe(daily[:20]) == pytest.approx(np.mean(daily[:20]) / np.std(daily[:20], ddof=1))
    assert summary.daily_sharpe(np.full(20, 5.0)) is None


def test_no_trade_at_all():
    flat = equity_table([[0, 0, 0, 0], [0, 0, 0, 0]])
    s = summary.eval_summary(trades_table(), flat, dataclasses.replace(FACTS, slippage_cents=0))
    assert (s["n_trades"], s["total_pnl_cents"], s["win_rate"], s["max_drawdown_usd"]) == (0, 0, 0.0, 0.0)
    assert s["break_even_fee_usd_per_side"] is None and s["break_even_ticks_per_lot"] is None
    assert check_eval_summary(s) == []


def test_training_trades_are_left_out():
    train = TRADES_2.set_column(2, "phase", pa.array(["train"] * 3)).cast(TRADES_2.schema)
    both = pa.concat_tables([TRADES_2, train])
    assert summary.eval_summary(both, EQUITY_2, FACTS)["total_pnl_cents"] == 700


@pytest.mark.parametrize(
    ("equity", "says"),
    [
        (equity_table([[-900, 4_000, 6_600, 6_599], [0, 0, 0, -5_900]]), "earned 6600 cents by trades and 6599"),
        (equity_table([[0, 0, 0, 6_600], [0, 0, -5_900]]), "misses a step"),
        (equity_table([[0, 0, 6_600], [0, 0, -5_900]]), "2 accounts of 3 rows"),
        (EQUITY_2.drop_columns("ts"), "no column ts"),
        (EQUITY_2.slice(0, 0), "no rows"),
    ],
)  # fmt: skip
def test_what_does_not_add_up_is_refused(equity, says):
    with pytest.raises(ContractBroken, match=says):
        summary.eval_summary(TRADES_2, equity, FACTS)


def test_money_moved_between_accounts_is_found():
    # The totals agree; account by account they do not.
    equity = equity_table([[0, 0, 0, 6_500], [0, 0, 0, -5_800]])
    with pytest.raises(ContractBroken, match="2 accounts differ"):
        summary.eval_summary(TRADES_2, equity, FACTS)


def test_chunks_that_overlap_or_run_backwards_are_refused():
    ts = EQUITY_2["ts"].to_numpy().copy()
    i = EQUITY_2.schema.get_field_index("ts")
    ts[4:] = ts[:4]
    with pytest.raises(ContractBroken, match="account 1 walks market that account 0 walked"):
        summary.track_record(EQUITY_2.set_column(i, "ts", pa.array(ts)))
    ts = EQUITY_2["ts"].to_numpy().copy()
    ts[2] = -1
    with pytest.raises(ContractBroken, match="account 0 goes back in time after row 1"):
        summary.track_record(EQUITY_2.set_column(i, "ts", pa.array(ts)))


def test_order_of_rows_in_the_file_does_not_matter():
    shuffled = EQUITY_2.take(np.random.default_rng(0).permutation(8))
    a, b = summary.track_record(shuffled), summary.track_record(EQUITY_2)
    assert (a.equity_cents == b.equity_cents).all() and (a.ts == b.ts).all()
