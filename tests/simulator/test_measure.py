"""Leaves: by hand on a small tape, and the invariants of the diagnostics contract over random runs."""

from __future__ import annotations

import dataclasses
import math
import statistics

import numpy as np
import pytest
import torch

from foxhunt_assets.contracts.diag import leaves as contract_leaves
from foxhunt_assets.simulator import measure
from foxhunt_assets.simulator.config import EnvConfig
from foxhunt_assets.simulator.measure_leaves import LEAVES
from foxhunt_assets.simulator.simulator import Simulator
from foxhunt_assets.simulator.trades import TradeLog
from foxhunt_assets.simulator.walk import EvalWalk, TrainWalk, session_end_rows
from tests.simulator import tapes
from tests.simulator.test_simulator import ENV, FLAT_LONG, HOLD, LONG, LONG_LARGE, SHORT, TIGHTEN, Run, book

ACCOUNTS, WINDOW = 8, 3


def _counters(env, accounts, tick_cents=1250):
    buffers = {s.name: torch.full(s.shape, s.fill, dtype=getattr(torch, s.dtype)) for s in measure.specs()}
    counters = measure.Counters(env, accounts, tick_cents, buffers)
    counters.reset()
    return counters


class Phase:
    """A whole phase with random actions: rows of leaves, trades and outcomes. signs agree with the action's side."""

    def __init__(self, kind, env, seed, steps=70, tick_cents=1250):
        rng = np.random.default_rng(seed)
        tape, ranges, ends = tapes.random_tape(rng)
        tape["fee_cents"] = tape["fee_cents"] * tick_cents // 1250
        market, self.tick_cents = tapes.view(tape, tick_cents), tick_cents
        buffers = tapes.buffers(ACCOUNTS, env)
        session_end = session_end_rows(market.rows, ends)
        if kind == "eval":
            walk = EvalWalk(market, ranges, session_end, buffers)
        else:
            walk = TrainWalk(market, ranges, session_end, buffers, seed, WINDOW)
        sim = Simulator(env, market, walk, buffers, ACCOUNTS, WINDOW)
        sim.reset(0)
        counters, self.log = _counters(env, ACCOUNTS, tick_cents), TradeLog(kind)
        steps = walk.n_steps + 1 if kind == "eval" else steps
        self.rows, self.outs, self.env = [], [], env
        for step in range(steps):
            last = step == steps - 1
            weights = torch.from_numpy(rng.random((ACCOUNTS, 11))) * sim.legal_mask()
            signs = torch.from_numpy(rng.integers(-1, 2, (ACCOUNTS, 3))).to(torch.int8)
            out = sim.step(weights.argmax(1), step, signs, last, drain=last and kind == "eval")
            counters.update(sim, out)
            self.log.add(out.trades, out.trade_mask)
            self.rows.append(counters.leaves(kind))
            self.outs.append(out)
            sim.advance(step)
        self.trades = self.log.table().to_pylist()

    def __getitem__(self, path):
        return [row[path] for row in self.rows]


@pytest.fixture(scope="module", params=["train", "eval", "eval_odd_tick"])
def phase(request):
    env = EnvConfig(min_hold_steps=2, episode_length=30, lots_large=3, trail_initial_mult=1.0)
    kind, *odd = request.param.split("_", 1)
    return Phase(kind, env, seed=3, tick_cents=125 if odd else 1250)


def _cents(values):
    cents = [round(100 * v) for v in values]
    assert all(abs(100 * v - c) < 1e-6 for v, c in zip(values, cents))
    return cents


def test_leaves_are_the_contracts_paths_types_and_bounds(phase):
    contract = {leaf.path: leaf for leaf in contract_leaves()}
    kinds = {"int": int, "float": float, "bool": bool}
    for row in phase.rows:
        assert tuple(row) == LEAVES
        for path, value in row.items():
            leaf = contract[path]
            assert type(value) is kinds[leaf.dtype], path
            assert math.isfinite(value), path
            assert leaf.minimum is None or value >= leaf.minimum, path
            assert leaf.maximum is None or value <= leaf.maximum, path


def test_every_family_is_whole():
    groups = {"pyramid", "trail", "position", "trading", "lob"}
    left_out = {leaf.path for leaf in contract_leaves() if leaf.path.split(".")[0] in groups} - set(LEAVES)
    assert left_out == {
        "trading.shaped_reward_close_event_cum", "trading.raw_reward_sum", "trading.trade_duration_ema",
    }  # fmt: skip
    assert len(LEAVES) == len(set(LEAVES)) == 113


def test_equity_by_two_routes_and_from_cash(phase):
    equity, realised = _cents(phase["trading.equity_usd"]), _cents(phase["trading.realized_pnl_usd_cum"])
    open_, cash = _cents(phase["position.unrealized_pnl_usd_sum"]), _cents(phase["trading.cash_flow_usd_cum"])
    value = _cents(phase["position.net_notional_usd"])
    assert equity == [r + o for r, o in zip(realised, open_)] == [c + v for c, v in zip(cash, value)]
    assert any(open_) and any(value)


def test_equity_change_adds_up_to_equity(phase):
    changes = np.cumsum([int(out.equity_change_cents.sum()) for out in phase.outs])
    assert changes.tolist() == _cents(phase["trading.equity_usd"])
    for out in phase.outs:
        assert torch.equal(out.core_cents - out.fee_cents, out.equity_change_cents)
        assert not (out.terminated & out.truncated).any()


def test_realised_pnl_is_the_trades(phase):
    cum, delta = _cents(phase["trading.realized_pnl_usd_cum"]), _cents(phase["trading.realized_pnl_usd_delta"])
    assert cum == np.cumsum(delta).tolist() and cum[-1] == sum(t["pnl_cents"] for t in phase.trades)
    assert np.cumsum(phase["trading.closes_step"]).tolist() == phase["trading.total_trades"]
    assert phase["trading.total_trades"][-1] == len(phase.trades) > 40
    for t in phase.trades:
        gain = t["side"] * (t["exit_tick_lots"] - t["entry_tick_lots"])
        assert t["pnl_cents"] + t["fees_cents"] == gain * phase.tick_cents


def test_the_phase_ends_flat(phase):
    last = phase.rows[-1]
    assert last["position.abs_lots_mean"] == 0 and last["trading.equity_usd"] == last["trading.realized_pnl_usd_cum"]
    assert last["data.terminated_step"] + last["data.truncated_step"] == ACCOUNTS


def test_group_by_trades(phase):
    last, trades = phase.rows[-1], phase.trades
    forced = {"session", "gap", "length", "blown", "phase_end"}
    wanted = {
        "trading.long_pnl_usd_cum": [t for t in trades if t["side"] > 0],
        "trading.large_entry_pnl_usd_cum": [t for t in trades if t["actions"][:2] in ("a0", "a6")],
        "trading.forced_close_pnl_usd_cum": [t for t in trades if t["reason"] in forced],
        "trail.fired_pnl_usd_cum": [t for t in trades if t["reason"] == "trail"],
    }
    for path, rows in wanted.items():
        assert _cents([last[path]]) == [sum(t["pnl_cents"] for t in rows)] and rows, path
    pnl = [t["pnl_cents"] for t in trades]
    assert _cents([last["trading.best_trade_usd"], last["trading.worst_trade_usd"]]) == [max(pnl), min(pnl)]
    assert last["trading.win_rate"] == sum(p > 0 for p in pnl) / len(pnl)
    assert last["trading.avg_win_usd"] == pytest.approx(statistics.fmean(p for p in pnl if p > 0) / 100)
    assert last["trading.avg_loss_usd"] == pytest.approx(-statistics.fmean(p for p in pnl if p <= 0) / 100)
    assert last["trading.per_close_ratio"] == pytest.approx(statistics.fmean(pnl) / statistics.stdev(pnl))
    assert last["trading.avg_hold_steps"] == pytest.approx(
        statistics.fmean(t["exit_step"] - t["entry_step"] for t in trades)
    )


def test_drawdown_path(phase):
    equity = _cents(phase["trading.equity_usd"])
    high = np.maximum.accumulate(np.maximum(equity, 0))
    assert _cents(phase["trading.drawdown_usd"]) == (high - equity).tolist()
    assert _cents(phase["trading.max_drawdown_usd"]) == np.maximum.accumulate(high - equity).tolist()


def test_lots_flow_and_units_hold_the_lots(phase):
    net = [0, *phase["position.net_lots_sum"]]
    flow = [2 * b - f for b, f in zip(phase["lob.buy_lots_step"], phase["lob.fill_lots_step"])]
    assert np.diff(net).tolist() == flow and any(flow)
    for row in phase.rows:
        held = sum(row[f"pyramid.unit{u}.active_frac"] * row[f"pyramid.unit{u}.lots_mean"] for u in (1, 2, 3, 4))
        assert held == pytest.approx(row["position.abs_lots_mean"], abs=1e-9)
        full = row["pyramid.full_stack_frac"] > 0
        assert row["pyramid.max_units_reached"] == full == (row["pyramid.units_max"] == phase.env.max_units)
        assert abs(row["position.net_notional_usd"]) <= row["position.gross_notional_usd"]


def test_order_flow(phase):
    for row in phase.rows:
        fills = row["lob.fills_step"]
        assert row["lob.policy_orders_step"] <= row["lob.orders_step"] >= fills <= row["lob.fill_lots_step"]
        assert (row["lob.levels_consumed_max"] > 0) == (fills > 0) == (row["lob.fees_usd_step"] > 0)
        assert row["trail.fired_step"] <= row["trading.closes_step"]
        assert row["trail.distance_min"] <= row["trail.distance_mean"] <= row["trail.distance_max"]
        depths = [row[f"lob.bid_depth_l{d}"] for d in (1, 2, 3, 5, 10)]
        assert depths == sorted(depths)
    assert sum(phase["lob.rejected_step"]) > 0
    fees = np.cumsum(_cents(phase["lob.fees_usd_step"])).tolist()
    assert _cents(phase["trading.fees_usd_cum"]) == fees
    assert fees[-1] == sum(t["fees_cents"] for t in phase.trades)


def test_slippage_sum(phase):
    ticks, lots = phase["lob.slippage_ticks_mean"], phase["lob.fill_lots_step"]
    steps = [m * n * phase.tick_cents / 100 for m, n in zip(ticks, lots)]
    assert np.allclose(np.cumsum(steps), phase["trading.slippage_usd_cum"], atol=0.01)


def test_walk_book(phase):
    starts = phase["data.episode_starts_step"]
    ended = [a + b for a, b in zip(phase["data.terminated_step"], phase["data.truncated_step"])]
    assert starts == [ACCOUNTS, *ended[:-1]]
    for before, after in zip(phase.rows, phase.rows[1:]):
        assert after["data.purge_margin_min"] >= 0
        if after["data.episode_starts_step"] == 0:
            for path in ("data.anchor_mean", "data.episode_age_mean"):
                assert after[path] == before[path] + 1, path
            assert after["data.segment_rows_left_min"] == before["data.segment_rows_left_min"] - 1


def test_account_spread(phase):
    for row, out in zip(phase.rows, phase.outs):
        low, high = row["trading.account_pnl_usd_min"], row["trading.account_pnl_usd_max"]
        assert (
            ACCOUNTS * low <= row["trading.equity_usd"] + 1e-6 and row["trading.equity_usd"] <= ACCOUNTS * high + 1e-6
        )
        spread = statistics.pstdev(out.phase_equity_cents.tolist()) / 100
        assert row["trading.account_pnl_usd_std"] == pytest.approx(spread, rel=1e-9, abs=1e-9)


def test_size_classes_partition_the_non_flat_steps(phase):
    classes = {"quarter": {1}, "half": {2}, "full": {3, 4}}
    units = torch.stack([out.units_before for out in phase.outs])
    trail = torch.stack([(out.trade_mask & (out.trades[:, :, 11] == 2)).any(1) for out in phase.outs])
    for size, counts in classes.items():
        inside = torch.isin(units, torch.tensor(sorted(counts)))
        last = phase.rows[-1]
        assert last[f"trail.trail_fire_rate_{size}"] == pytest.approx(float(trail[inside].double().mean()))
        wanted = float(inside.double().mean()) if phase.log.phase == "eval" else 0.0
        assert last[f"position.action_dist_eval_{size}"] == pytest.approx(wanted)


def test_same_inputs_same_bits():
    env = EnvConfig(min_hold_steps=1, episode_length=20)
    a, b = Phase("train", env, seed=8, steps=25), Phase("train", env, seed=8, steps=25)
    assert a.rows == b.rows and a.log.table().equals(b.log.table())
    for x, y in zip(a.outs, b.outs):
        assert all(torch.equal(getattr(x, f.name), getattr(y, f.name)) for f in dataclasses.fields(x))


def test_agreeing_signs_and_the_market_baseline_by_hand():
    run = Run([book(100, 101), book(100, 101), book(103, 104), book(102, 103)])
    counters = _counters(ENV, 1)
    for action, signs in ((LONG, (1, -1, 0)), (FLAT_LONG, (0, 0, 0)), (HOLD, (0, 0, 0))):
        out = run.do(action, signs=signs)
        counters.update(run.sim, out)
    leaves = counters.leaves("eval")
    pnl = (103 - 101) * 12.5 - 4.5
    assert [leaves[f"frd.h{h}.agree_pnl_usd_cum"] for h in (1, 2, 3)] == [pnl, 0.0, 0.0]
    assert leaves["audit.hold_one_lot_usd_cum"] == 2 * 12.5
    assert leaves["trading.slippage_usd_cum"] == 12.5  # half a tick in, half a tick out
    assert leaves["lob.fill_lag_ms_mean"] == 0.0 and leaves["position.flat_steps_max"] == 2


def test_units_by_hand():
    run = Run([book(100, 101)] * 4 + [book(104, 105)])
    counters = _counters(ENV, 1)
    run.do(LONG_LARGE, LONG, HOLD)
    counters.update(run.sim, run.sim.step(torch.tensor([TIGHTEN]), 3, torch.zeros(1, 3, dtype=torch.int8), False))
    leaves = counters.leaves("train")
    assert leaves["pyramid.unit1.age_mean"] == 3 and leaves["pyramid.unit2.age_mean"] == 2
    assert leaves["pyramid.unit1.lots_mean"] == 2 and leaves["pyramid.unit3.active_frac"] == 0
    assert leaves["pyramid.open_r_mean"] == pytest.approx(3.5 / 4)
    assert leaves["trail.tighten_step"] == 2 and leaves["trail.distance_mean"] == pytest.approx(6.4)
    assert leaves["trail.initial_r_mean"] == 4 and leaves["position.hold_steps_mean"] == 3
    assert leaves["position.gross_notional_usd"] == 3 * 104.5 * 12.5
    assert leaves["position.unrealized_pnl_usd_sum"] == 3 * 3.5 * 12.5 - 3 * 2.25
    assert leaves["gates.pyramid_add_step"] == 0 and leaves["gates.ineffective_frac"] == 0


def test_book_leaves_are_of_the_decision_row():
    first = ([(100, 3), (99, 2)], [(102, 1), (103, 4)])
    run = Run([first, book(100, 101)])
    counters = _counters(ENV, 1)
    counters.update(run.sim, run.sim.step(torch.tensor([SHORT]), 0, torch.zeros(1, 3, dtype=torch.int8), False))
    leaves = counters.leaves("train")
    assert leaves["lob.spread_ticks_mean"] == leaves["lob.spread_ticks_max"] == 2
    assert leaves["lob.microprice_dev_ticks_mean"] == pytest.approx((100 * 1 + 102 * 3) / 4 - 101)
    assert leaves["lob.imbalance_l1"] == 0.5 and leaves["lob.imbalance_l5"] == 0.0
    assert [leaves[f"lob.bid_depth_l{d}"] for d in (1, 2, 10)] == [3, 5, 5]
    assert leaves["lob.fill_lag_ms_mean"] == 250.0 and leaves["lob.touch_take_frac_mean"] == 1 / 50


def test_a_new_phase_starts_every_total_anew():
    run = Run([book(100, 101)] * 8)
    counters = _counters(ENV, 1)
    for action in (LONG, FLAT_LONG):
        counters.update(run.sim, run.do(action))
    assert counters.leaves("train")["trading.total_trades"] == 1
    counters.reset()
    run.sim.reset(2)
    counters.update(run.sim, run.sim.step(torch.tensor([HOLD]), 2, torch.zeros(1, 3, dtype=torch.int8), False))
    leaves = counters.leaves("eval")
    for path in ("trading.total_trades", "trading.worst_trade_usd", "trading.equity_usd", "trading.fees_usd_cum",
                 "trading.cash_flow_usd_cum", "trading.max_drawdown_usd", "trading.per_close_ratio"):  # fmt: skip
        assert leaves[path] == 0, path
