"""Every rule of a step by hand, with numbers: one account, one small tape."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from foxhunt_assets.errors import BadInput
from foxhunt_assets.simulator.config import EnvConfig
from foxhunt_assets.simulator.simulator import Simulator
from foxhunt_assets.simulator.units import REASONS, TRADE_FIELDS
from foxhunt_assets.simulator.walk import EvalWalk, session_end_rows
from tests.simulator import tapes

ENV = EnvConfig(min_hold_steps=0)
HOLD, SHORT_LARGE, SHORT, LONG, LONG_LARGE, FLAT_LONG, FLAT_SHORT = 2, 0, 1, 5, 6, 3, 4
TIGHTEN, LOOSEN, HALF_LONG, HALF_SHORT = 7, 8, 9, 10


def book(bid, ask, size=50, extremes=None):
    """Ten levels a side, one tick apart, with one size."""
    sides = [(bid - i, size) for i in range(10)], [(ask + i, size) for i in range(10)]
    return (*sides, extremes) if extremes else sides


class Run:
    """One account from row 0 on; each action is one step. The tape is lengthened by its last book so that no forced
    close comes unasked."""

    def __init__(self, books, env=ENV, ends=None, segments=None, ranges=None, window=1, tick_cents=1250):
        if ends is None:
            books, ends = [*books, *[books[-1]] * 30], []
        self.market = tapes.view(tapes.tape(books, segments=segments), tick_cents)
        self.buffers = tapes.buffers(1, env)
        session_end = session_end_rows(len(books), ends)
        walk = EvalWalk(self.market, ranges or [(0, len(books))], session_end, self.buffers)
        self.sim = Simulator(env, self.market, walk, self.buffers, 1, window)
        self.sim.reset(0)
        self.step, self.trades, self.out = 0, [], []

    def do(self, *actions, phase_end=False, drain=False, signs=(0, 0, 0)):
        for action in actions:
            out = self.sim.step(
                torch.tensor([action]), self.step, torch.tensor([signs], dtype=torch.int8), phase_end, drain
            )
            for row in out.trades[out.trade_mask].tolist():
                self.trades.append(dict(zip(TRADE_FIELDS, row)))
            self.out.append(out)
            self.sim.advance(self.step)
            self.step += 1
        return self.out[-1]

    def legal(self):
        return set(torch.nonzero(self.sim.legal_mask()[0])[:, 0].tolist())


def one(tensor):
    assert tensor.shape[0] == 1
    return tensor[0].item()


def test_an_order_fills_on_the_next_book_never_on_the_one_it_was_decided_on():
    run = Run([book(90, 91), book(100, 101), book(103, 104)])
    out = run.do(LONG)
    assert one(out.lots) == 1 and one(out.next_row) == 1
    # Bought at 101, marked at 100.5: half a tick is 625 cents; the entry fee is 225.
    assert one(out.equity_change_cents) == -625 - 225
    assert (one(out.core_cents), one(out.fee_cents), one(out.open_cents)) == (-625, 225, -850)
    run.do(FLAT_LONG)
    (trade,) = run.trades
    assert trade["entry_tick_lots"] == 101 and trade["exit_tick_lots"] == 103
    assert trade["fees_cents"] == 450 and trade["pnl_cents"] == 2 * 1250 - 450
    assert (trade["entry_step"], trade["exit_step"]) == (0, 1)
    assert (trade["entry_ts"], trade["exit_ts"]) == (tapes.GRID_NS, 2 * tapes.GRID_NS)
    assert REASONS[trade["reason"]] == "policy"


def test_a_short_gains_when_the_price_falls():
    run = Run([book(100, 101), book(100, 101), book(95, 96)])
    run.do(SHORT_LARGE, FLAT_SHORT)
    (trade,) = run.trades
    assert (trade["side"], trade["lots"], trade["entry_tick_lots"], trade["exit_tick_lots"]) == (-1, 2, 200, 192)
    assert trade["pnl_cents"] == 8 * 1250 - 4 * 225


def test_an_order_walks_the_levels_and_the_rest_is_cancelled():
    thin = ([(100, 9)], [(101, 1), (103, 2)])
    run = Run([thin] * 3, dataclasses.replace(ENV, lots_large=5))
    out = run.do(LONG_LARGE)
    assert one(out.lots) == 3 and one(out.cancelled_lots) == 2 and one(out.levels_max) == 2
    assert run.buffers["unit_entry_tick_lots"][0].tolist() == [101 + 2 * 103, 0, 0, 0]
    # Mid 100.5: half ticks 201. Adverse half ticks: 1 + 2 x 5.
    assert one(out.slippage_half_ticks) == 11
    assert one(out.touch_take) == 3.0 and one(out.orders) == one(out.fills) == 1


def test_lots_taken_stay_taken_until_the_level_changes():
    same = ([(100, 9)], [(101, 2), (102, 5)])
    grown = ([(100, 9)], [(101, 3), (102, 5)])
    run = Run([same, same, same, grown])
    run.do(LONG_LARGE, LONG_LARGE, LONG_LARGE)
    assert run.buffers["unit_entry_tick_lots"][0].tolist() == [202, 204, 202, 0]


def test_what_one_account_takes_is_still_there_for_another():
    same = ([(100, 9)], [(101, 2), (102, 5)])
    market = tapes.view(tapes.tape([same] * 8))
    buffers = tapes.buffers(2, ENV)
    sim = Simulator(ENV, market, EvalWalk(market, [(0, 8)], session_end_rows(8, []), buffers), buffers, 2, 1)
    sim.reset(0)
    sim.step(torch.tensor([LONG_LARGE, LONG_LARGE]), 0, torch.zeros(2, 3, dtype=torch.int8), False)
    assert buffers["unit_entry_tick_lots"][:, 0].tolist() == [202, 202]


@pytest.mark.parametrize(("bid", "filled_at"), [(95, 92), (92, 92), (90, 90)])
def test_a_stop_fills_at_the_worse_of_its_price_and_the_book(bid, filled_at):
    # Bought with the bid at 100; the trail starts 4 x 2 = 8 ticks under it: stop 92.
    run = Run([book(100, 101), book(100, 101), book(bid, bid + 1, extremes=(min(91, bid), bid + 1))])
    run.do(LONG)
    out = run.do(HOLD)
    (trade,) = run.trades
    assert REASONS[trade["reason"]] == "trail" and trade["exit_tick_lots"] == filled_at
    assert one(out.lots) == 0 and one(out.policy_orders) == 0 and one(out.orders) == 1


def test_a_stop_is_not_touched_above_its_price_and_follows_the_best_bid():
    run = Run(
        [book(100, 101)] * 2
        + [book(110, 111), book(105, 106, extremes=(103, 106)), book(103, 104, extremes=(102, 104))]
    )
    run.do(LONG, HOLD, HOLD)
    assert run.buffers["unit_best_px"][0, 0] == 110 and not run.trades
    run.do(HOLD)
    assert run.trades[0]["exit_tick_lots"] == 102


def test_a_short_stop_looks_at_the_highest_ask():
    run = Run([book(100, 101), book(100, 101), book(104, 105, extremes=(100, 109))])
    run.do(SHORT, HOLD)
    assert run.trades[0]["exit_tick_lots"] == 109 and REASONS[run.trades[0]["reason"]] == "trail"


def test_a_unit_opened_on_a_row_is_not_stopped_by_what_happened_before_it():
    run = Run([book(100, 101), book(100, 101, extremes=(50, 101)), book(100, 101)])
    run.do(LONG, HOLD)
    assert not run.trades


def test_a_touched_stop_waits_for_a_sound_book():
    one_sided = ([(80, 5)], [], (80, 120))
    run = Run([book(100, 101), book(100, 101), one_sided, book(99, 100)])
    run.do(LONG)
    assert one(run.do(HOLD).rejected) == 1 and not run.trades
    run.do(HOLD)
    assert run.trades[0]["exit_tick_lots"] == 92


def test_tighten_and_loosen_move_every_trail_within_bounds():
    run = Run([book(100, 101)] * 3)
    run.do(LONG, LONG)
    out = run.do(TIGHTEN)
    distance = run.buffers["unit_trail_distance"]
    assert one(out.tightened) == 2 and torch.equal(distance[0], torch.tensor([8.0, 8.0, 0, 0]) * 0.8)
    run.do(*[TIGHTEN] * 8)
    assert distance[0, :2].tolist() == [2.0, 2.0]
    assert one(run.do(TIGHTEN).ineffective)
    out = run.do(*[LOOSEN] * 15)
    assert distance[0, :2].tolist() == [40.0, 40.0] and one(out.loosened) == 0


def test_half_rounds_up_takes_the_oldest_first_and_splits_a_unit_exactly():
    thin = ([(100, 99)], [(101, 1), (102, 9)])
    run = Run([thin] * 6, dataclasses.replace(ENV, lots_large=3))
    run.do(LONG_LARGE)  # 101 + 2 x 102 = 305
    out = run.do(HALF_LONG)  # (3 + 1) // 2 = 2 lots
    assert one(out.lots) == 1 and one(out.units_closed_singly) == 0
    run.do(HALF_LONG)  # a single lot closes fully
    first, second = run.trades
    assert (first["lots"], first["entry_tick_lots"], first["fees_cents"]) == (2, 305 * 2 // 3, 900)
    assert (second["lots"], second["entry_tick_lots"], second["fees_cents"]) == (1, 305 - 305 * 2 // 3, 450)
    assert first["pnl_cents"] + second["pnl_cents"] == (300 - 305) * 1250 - 6 * 225


def test_half_spans_units_and_moves_the_younger_one_up():
    run = Run([book(100, 101)] * 8)
    run.do(LONG, LONG_LARGE, HALF_LONG)  # 1 + 2 lots: closes the first unit and one lot of the second
    assert [(t["lots"], t["entry_step"]) for t in run.trades] == [(1, 0), (1, 1)]
    assert one(run.out[-1].orders) == 1 and one(run.out[-1].units_closed_singly) == 1
    assert run.buffers["unit_lots"][0].tolist() == [1, 0, 0, 0]
    assert run.buffers["unit_entry_step"][0, 0] == 1 and run.buffers["pyramid_units_count"][0] == 1


def test_the_first_lots_filled_are_the_oldest_units():
    thin_bid = ([(100, 2), (98, 5)], [(101, 50)])
    run = Run([thin_bid] * 5, dataclasses.replace(ENV, trail_max_ticks=4000, trail_initial_mult=100.0))
    run.do(LONG_LARGE, LONG, FLAT_LONG)
    assert [t["exit_tick_lots"] for t in run.trades] == [200, 98]


def test_an_entry_against_the_position_closes_it_and_opens_nothing():
    run = Run([book(100, 101)] * 5)
    run.do(LONG_LARGE, LONG)
    out = run.do(SHORT)
    assert one(out.lots) == 0 and one(out.fill_lots) == 3 and len(run.trades) == 2


def test_a_fifth_unit_is_illegal_and_counts_as_hold():
    run = Run([book(100, 101)] * 8)
    run.do(*[LONG] * 4)
    assert LONG not in run.legal() and SHORT in run.legal()
    out = run.do(LONG)
    assert one(out.illegal) and one(out.executed) == HOLD and one(out.lots) == 4 and one(out.rejected) == 0


@pytest.mark.parametrize(
    "bad", [([(101, 5)], [(100, 5)]), ([(100, 5)], [(100, 5)]), ([(100, 5)], []), ([], [(101, 5)])]
)
def test_no_fill_on_a_crossed_locked_or_one_sided_book(bad):
    run = Run([book(100, 101), bad, book(100, 101)])
    out = run.do(LONG)
    assert (one(out.rejected), one(out.orders), one(out.lots)) == (1, 0, 0) and one(out.ineffective)


def test_a_forced_close_on_a_broken_book_fills_at_the_last_sound_touch():
    run = Run([book(100, 101), book(100, 101), ([], [(130, 5)])], ends=[(3, "session")])
    run.do(LONG)
    out = run.do(HOLD)
    assert run.trades[0]["exit_tick_lots"] == 100 and one(out.forced_rest_lots) == 1 and one(out.terminated)
    assert (one(out.orders), one(out.fills), one(out.levels_max)) == (1, 1, 1)


def test_a_forced_close_beyond_the_book_fills_its_rest_at_the_deepest_price():
    thin = ([(100, 1), (97, 1)], [(101, 50)])
    run = Run([book(100, 101), book(100, 101), thin], dataclasses.replace(ENV, lots_large=5), ends=[(3, "session")])
    run.do(LONG_LARGE)
    out = run.do(HOLD)
    assert run.trades[0]["exit_tick_lots"] == 100 + 97 + 3 * 97 and one(out.forced_rest_lots) == 3


def test_a_row_without_a_touch_is_marked_at_the_last_valid_mid():
    run = Run([book(100, 101), book(100, 101), ([], [(130, 5)]), book(102, 103)])
    run.do(LONG)
    out = run.do(HOLD)
    assert one(out.equity_change_cents) == 0 and one(out.mark_half_ticks) == 201
    assert one(out.orders) == one(out.levels_max) == one(out.forced_rest_lots) == 0
    assert one(run.do(HOLD).equity_change_cents) == 2 * 1250
    assert not run.trades  # an interval without a bid touches no stop


def test_latency_two_fills_two_rows_on_and_carries_the_signs_of_its_decision():
    run = Run(
        [book(100, 101), book(110, 111), book(120, 121), book(130, 131)], dataclasses.replace(ENV, latency_steps=2)
    )
    out = run.do(LONG, signs=(1, -1, 1))
    assert one(out.lots) == 0 and not one(out.ineffective)
    out = run.do(HOLD, signs=(0, 0, 0))
    assert one(out.lots) == 1 and run.buffers["unit_entry_tick_lots"][0, 0] == 121
    assert run.buffers["unit_entry_signs"][0, 0].tolist() == [1, -1, 1]
    assert run.buffers["unit_entry_step"][0, 0] == 1 and one(out.lag_ns) == 2 * tapes.GRID_NS


def test_an_order_still_waiting_when_the_episode_ends_is_dropped():
    env = dataclasses.replace(ENV, latency_steps=2, episode_length=2)
    run = Run([book(100, 101)] * 6, env)
    run.do(HOLD, LONG)
    assert one(run.out[-1].truncated)
    assert one(run.do(HOLD).lots) == 0 and one(run.do(HOLD).orders) == 0


def test_the_session_end_terminates_flat_and_a_gap_truncates():
    books = [book(100, 101)] * 6
    ends, segments = [(3, "session"), (6, "gap")], [0, 0, 0, 1, 1, 1]
    run = Run(books, ends=ends, segments=segments, ranges=[(0, 3), (3, 6)])
    run.do(LONG)
    out = run.do(HOLD)
    assert one(out.terminated) and not one(out.truncated) and one(out.lots) == 0
    assert REASONS[run.trades[-1]["reason"]] == "session"
    assert run.buffers["acct_row"][0] == 3 and one(run.buffers["acct_episode_start"])
    run.do(LONG)
    out = run.do(HOLD)
    assert one(out.truncated) and not one(out.terminated) and REASONS[run.trades[-1]["reason"]] == "gap"


def test_a_range_that_ends_inside_a_session_truncates():
    run = Run([book(100, 101)] * 6, ends=[(6, "session")], ranges=[(0, 4)])
    out = run.do(LONG, HOLD, HOLD)
    assert one(out.truncated) and not one(out.terminated) and one(out.next_row) == 3


def test_length_truncates_and_the_account_starts_anew_on_the_same_row():
    run = Run([book(100, 101)] * 6, dataclasses.replace(ENV, episode_length=3))
    out = run.do(LONG, HOLD, HOLD)
    assert one(out.truncated) and REASONS[run.trades[-1]["reason"]] == "length"
    assert run.buffers["acct_row"][0] == 3 and run.buffers["acct_equity_cents"][0] == ENV.start_equity_cents
    assert one(out.episode_equity_cents) == ENV.start_equity_cents - 1250 - 450
    assert one(run.do(HOLD).phase_equity_cents) == -1250 - 450


def test_a_blown_account_terminates():
    env = dataclasses.replace(ENV, start_equity_cents=10_000, trail_max_ticks=100, trail_initial_mult=25.0)
    run = Run([book(1000, 1001), book(1000, 1001), book(994, 995), book(993, 994)], env)
    assert not one(run.do(LONG).terminated)  # 10,000 - 625 - 225
    assert not one(run.do(HOLD).terminated)  # 6 ticks lower: 10,000 - 625 - 225 - 7,500 = 1,650
    out = run.do(HOLD)  # one tick more leaves 400 at the mid
    assert not one(out.terminated) and one(out.episode_equity_cents) == 400
    run = Run([book(1000, 1001), book(1000, 1001), book(992, 993)], env)
    run.do(LONG)
    out = run.do(HOLD)  # 10,000 - 625 - 225 - 8 x 1,250 < 0
    assert one(out.terminated) and REASONS[run.trades[0]["reason"]] == "blown"
    assert one(out.episode_equity_cents) == 10_000 - 9 * 1250 - 450


def test_the_last_training_row_moves_and_closes_on_the_next_book():
    run = Run([book(100, 101), book(100, 101), book(105, 106)])
    run.do(LONG)
    out = run.do(HOLD, phase_end=True)
    assert run.trades[0]["exit_tick_lots"] == 105 and REASONS[run.trades[0]["reason"]] == "phase_end"
    assert one(out.truncated) and one(out.next_row) == 2


def test_the_drain_row_closes_where_the_account_stands_without_moving():
    run = Run([book(100, 101), book(100, 101, extremes=(10, 200)), book(105, 106)])
    run.do(LONG)
    out = run.do(SHORT, drain=True)
    assert one(out.anchor) == one(out.next_row) == 1 and one(out.executed) == HOLD and not one(out.illegal)
    assert run.trades[0]["exit_tick_lots"] == 100 and REASONS[run.trades[0]["reason"]] == "phase_end"
    assert one(out.lag_ns) == 0 and one(out.policy_orders) == 0


def test_minimum_hold_counts_steps_from_the_fill():
    run = Run([book(100, 101)] * 8, dataclasses.replace(ENV, min_hold_steps=2))
    run.do(LONG)
    assert run.legal() == {HOLD, LONG, LONG_LARGE, TIGHTEN, LOOSEN}
    run.do(HOLD)
    assert run.legal() == {HOLD, LONG, LONG_LARGE, TIGHTEN, LOOSEN, FLAT_LONG, HALF_LONG, SHORT, SHORT_LARGE}
    run.do(LONG_LARGE)
    # Half of 3 lots is 2: it would touch the young unit; a stop and a forced close still may.
    assert not run.legal() & {FLAT_LONG, HALF_LONG, SHORT, SHORT_LARGE}


def test_a_half_close_of_old_lots_is_legal_beside_a_young_unit():
    run = Run([book(100, 101)] * 8, dataclasses.replace(ENV, min_hold_steps=2))
    run.do(LONG_LARGE, HOLD, LONG)
    assert HALF_LONG in run.legal() and FLAT_LONG not in run.legal()


def test_only_hold_is_legal_before_the_window_is_full():
    run = Run([book(100, 101)] * 8, window=3)
    assert run.legal() == {HOLD}
    assert one(run.do(LONG).lots) == 0
    assert run.legal() == {HOLD}
    run.do(HOLD)
    assert run.legal() == {HOLD, LONG, LONG_LARGE, SHORT, SHORT_LARGE}


def test_half_a_cent_of_a_mark_is_rounded_down():
    run = Run([book(100, 101)] * 3, tick_cents=125)
    out = run.do(LONG)  # mid 100.5 x 125 = 12,562.5
    assert one(out.open_cents) == 12_562 - 101 * 125 - 225
    out = run.do(FLAT_LONG)
    assert one(out.phase_equity_cents) == -125 - 450


def test_a_market_of_the_wrong_type_is_refused_by_name():
    tape = tapes.tape([book(100, 101)] * 3)
    tape["bid_sz"] = tape["bid_sz"].astype("int64")
    with pytest.raises(BadInput, match="bid_sz"):
        tapes.view(tape)


def test_a_tick_value_of_zero_is_refused():
    with pytest.raises(BadInput, match="tick_cents"):
        tapes.view(tapes.tape([book(100, 101)] * 3), 0)


def test_an_outcome_is_not_changed_by_the_next_step():
    run = Run([book(100, 101)] * 4)
    first = run.do(LONG)
    kept = {f.name: getattr(first, f.name).clone() for f in dataclasses.fields(first)}
    run.do(FLAT_LONG, LONG)
    assert all(torch.equal(getattr(first, name), value) for name, value in kept.items())
