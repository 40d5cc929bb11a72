"""The gate on a market where the match of action and market is everything, and where it is nothing."""

import itertools

import numpy as np
import pyarrow as pa
import pytest
import torch

from foxhunt_assets.contracts.tables import ABSENT_PX, EQUITY, LEVELS, arrow_schema
from foxhunt_assets.errors import BadInput, ContractBroken
from foxhunt_assets.evaluation import surrogate
from foxhunt_assets.simulator.actions import HOLD, N_ACTIONS
from foxhunt_assets.simulator.config import EnvConfig
from foxhunt_assets.simulator.market_view import MarketView
from foxhunt_assets.simulator.simulator import Simulator
from foxhunt_assets.simulator.state import specs
from foxhunt_assets.simulator.walk import EvalWalk

ENV = EnvConfig(min_hold_steps=2, episode_length=64, trail_min_ticks=30, trail_initial_mult=8.0)
WINDOW = 2
N, B = 12, 6


def market(mid):
    """A deep one-tick-wide book around the mids given, in ticks."""
    n = len(mid)
    away = np.arange(LEVELS)
    bid = (np.asarray(mid)[:, None] - away).astype(np.int32)
    ask = (np.asarray(mid)[:, None] + 1 + away).astype(np.int32)
    assert bid.min() > ABSENT_PX
    size = np.full((n, LEVELS), 50, np.int32)
    columns = {
        "bid_px": bid, "ask_px": ask, "bid_sz": size, "ask_sz": size, "low_bid_px": bid[:, 0], "high_ask_px": ask[:, 0],
        "ts": np.arange(n, dtype=np.int64) * 250_000_000,
        "ts_event": np.arange(n, dtype=np.int64) * 250_000_000, "segment": np.zeros(n, np.int32),
        "fee_cents": np.full(n, 225, np.int64),
    }  # fmt: skip
    return MarketView(**{k: torch.from_numpy(np.ascontiguousarray(v)) for k, v in columns.items()}, tick_cents=1250)


def maker(mid, n=N, b=B):
    view = market(mid)
    end = torch.zeros(view.rows, dtype=torch.bool)
    return surrogate.simulators_of(ENV, view, [(WINDOW, view.rows)], end, b, n, WINDOW)


def zigzag():
    """Each chunk of N rows trends, up and down by turns."""
    slope = np.repeat([2 if i % 2 == 0 else -2 for i in range(B)], N)
    return 20_000 + np.concatenate([np.zeros(WINDOW + 1, int), np.cumsum(slope), [slope.sum()] * 2])


def follow_trend():
    """Account i goes long in a rising chunk and short in a falling one, and holds."""
    actions = torch.full((N, B), HOLD)
    actions[0] = torch.tensor([5 if i % 2 == 0 else 1 for i in range(B)])
    return actions


def test_the_walk_is_that_of_an_evaluation_and_copies_do_not_touch_each_other():
    mid = 20_000 + np.cumsum(np.random.default_rng(3).integers(-2, 3, WINDOW + N * B + 3))
    actions = torch.from_numpy(np.random.default_rng(4).integers(0, N_ACTIONS, (N, 3 * B)))
    view = market(mid)
    end = torch.zeros(view.rows, dtype=torch.bool)
    alone = []
    for copy in range(3):
        buffers = {s.name: torch.full(s.shape, s.fill, dtype=getattr(torch, s.dtype)) for s in specs(B, ENV)}
        walk = EvalWalk(view, [(WINDOW, view.rows)], end, buffers, N)
        simulator = Simulator(ENV, view, walk, buffers, B, WINDOW)
        alone.append(surrogate.replay(simulator, actions[:, copy * B : (copy + 1) * B]))
    together = surrogate.replay(maker(mid)(3), actions)
    assert together.tolist() == torch.cat(alone).tolist()
    assert len(set(together.tolist())) > 3  # the copies really differ


def test_pnl_of_a_position_held_over_a_chunk_by_hand():
    pnl = surrogate.replay(maker(zigzag())(1), follow_trend())
    # Decided on the first row of the chunk, filled a row later, closed on the last: 11 rows of 2 ticks less the
    # spread of one tick, both fees of 225 cents. Chunks meet on a turning row, which the first one has not.
    assert pnl[0].item() == (11 * 2 - 1) * 1_250 - 450
    assert (pnl > 0).all()


def test_the_gate_passes_what_only_works_where_it_was_done():
    result = surrogate.permutation_test(follow_trend(), maker(zigzag()), 199, seed=0)
    assert result.trained_cents == surrogate.replay(maker(zigzag())(1), follow_trend()).sum().item()
    # 20 ways to place three longs on six chunks, one as good as the policy: about 199 / 20 ties.
    assert 1 <= result.exceed <= 25
    assert result.p_value == (1 + sum(c >= result.trained_cents for c in result.surrogate_cents)) / 200
    worst = surrogate.permutation_test(follow_trend().flip(1), maker(zigzag()), 199, seed=0)
    assert worst.p_value > 0.9 and not worst.passed


def test_the_gate_refuses_what_would_have_earned_the_same_anywhere():
    rising = 20_000 + 2 * np.arange(WINDOW + N * B + 3)
    always_long = torch.full((N, B), HOLD)
    always_long[0] = 5
    result = surrogate.permutation_test(always_long, maker(rising), 199, seed=0)
    assert result.trained_cents > 0 and result.exceed == 199 and result.p_value == 1.0
    assert not result.passed


class Recorder:
    """Stands in for a simulator: pnl of an account is the number of steps whose action equals its own number."""

    def __init__(self, copies, accounts, seen):
        self.target = torch.arange(accounts).repeat(copies)
        self.seen, self.rows = seen, []

    def reset(self, step):
        assert step == 0

    def advance(self, step):
        pass

    def step(self, actions, step, signs, phase_end, drain=False):
        assert phase_end == drain
        if not drain:
            self.rows.append(actions)
            return None
        self.seen.append(torch.stack(self.rows))
        hits = (torch.stack(self.rows) == self.target).sum(0)
        return type("Outcome", (), {"phase_equity_cents": hits})


def run(test, actions, n=199, seed=5):
    seen = []
    result = test(actions, lambda copies: Recorder(copies, actions.shape[1], seen), n, seed)
    return result, torch.cat(seen, dim=1)


def test_a_permutation_earns_what_walking_it_whole_earns():
    mid = 20_000 + np.cumsum(np.random.default_rng(3).integers(-2, 3, WINDOW + N * B + 3))
    actions = torch.from_numpy(np.random.default_rng(4).integers(0, N_ACTIONS, (N, B)))
    result = surrogate.permutation_test(actions, maker(mid), 199, seed=11)
    for i in (0, 1, 77, 198):
        order = surrogate._order(11, i, torch.arange(B))
        assert sorted(order.tolist()) == list(range(B))
        assert surrogate.replay(maker(mid)(1), actions[:, order]).sum().item() == result.surrogate_cents[i]
    assert len(set(result.surrogate_cents)) > 50


def test_permutations_reach_every_arrangement():
    orders = {tuple(surrogate._order(5, i, torch.arange(4)).tolist()) for i in range(199)}
    assert orders == set(itertools.permutations(range(4)))


class Coupled(Recorder):
    """Accounts that share something: an account earns what its neighbour did."""

    def step(self, actions, step, signs, phase_end, drain=False):
        return super().step(actions.roll(1), step, signs, phase_end, drain)


def test_accounts_that_touch_each_other_are_noticed():
    # Shifts by one account keep neighbours together, a random order does not.
    actions = torch.from_numpy(np.random.default_rng(0).integers(0, 6, (40, 6)))
    with pytest.raises(ContractBroken, match="accounts influence each other"):
        surrogate.permutation_test(actions, lambda copies: Coupled(copies, 6, []), 199, seed=5)


def test_p_value_by_hand():
    actions = torch.arange(9)[None, :].repeat(3, 1)  # account i always does i: the best arrangement, and the only one
    result, _ = run(surrogate.permutation_test, actions)
    assert (result.trained_cents, result.exceed, result.p_value) == (27, 0, 1 / 200)
    assert result.passed and result.to_json()["n"] == 199
    assert run(surrogate.permutation_test, actions[:, :1])[0].p_value == 1.0  # nothing to permute: nothing to claim


def test_batches_do_not_change_the_result(monkeypatch):
    actions = torch.from_numpy(np.random.default_rng(0).integers(0, 6, (7, 6)))
    whole = [run(test, actions)[0] for test in (surrogate.permutation_test, surrogate.matched_marginal_test)]
    monkeypatch.setattr(surrogate, "_MAX_ACCOUNTS", 30)
    assert [run(t, actions)[0] for t in (surrogate.permutation_test, surrogate.matched_marginal_test)] == whole
    assert run(surrogate.permutation_test, actions, seed=6)[0] != whole[0]


def test_the_number_of_threads_is_left_as_it_was():
    before = torch.get_num_threads()
    run(surrogate.permutation_test, torch.zeros(2, 2, dtype=torch.int64))
    assert torch.get_num_threads() == before


def test_matched_marginals_keep_the_histogram_and_not_the_sequences():
    actions = torch.full((40, 5), 2)
    actions[:10] = 7
    result, seen = run(surrogate.matched_marginal_test, actions)
    assert torch.equal(seen[:, :5], actions) and len(result.surrogate_cents) == 199
    rest = seen[:, 5:]
    assert set(rest.unique().tolist()) == {2, 7}
    share = (rest == 7).double().mean().item()
    assert abs(share - 0.25) < 4 * (0.25 * 0.75 / rest.numel()) ** 0.5
    changes = (rest[1:] != rest[:-1]).double().mean().item()
    assert changes > 0.3  # the policy changes its action once in 39 steps


def equity_of(actions):
    rows = [
        {"step": 50 + t, "account": i, "ts": 0, "segment": 0, "trade_date": "d", "action": a, "equity_cents": 0}
        for t, row in enumerate(actions)
        for i, a in enumerate(row)
    ]  # fmt: skip
    return pa.Table.from_pylist(rows, schema=arrow_schema(EQUITY))


def test_actions_are_read_back_without_the_drain_row():
    table = equity_of([[1, 2], [3, 4], [-1, -1]])
    assert surrogate.recorded_actions(table.take([5, 0, 3, 2, 1, 4])).tolist() == [[1, 2], [3, 4]]
    for bad in ([[1, 2], [3, 4]], [[1, -1], [-1, -1]]):
        with pytest.raises(ContractBroken, match="drain row"):
            surrogate.recorded_actions(equity_of(bad))
    with pytest.raises(ContractBroken, match="misses a step"):
        surrogate.recorded_actions(table.slice(1))


def test_too_few_surrogates_are_refused():
    with pytest.raises(BadInput, match="199 or more"):
        surrogate.permutation_test(follow_trend(), maker(zigzag()), 30, seed=0)
    with pytest.raises(BadInput, match="30 or more"):
        surrogate.matched_marginal_test(follow_trend(), maker(zigzag()), 29, seed=0)
    with pytest.raises(BadInput, match="int64"):
        surrogate.permutation_test(follow_trend().int(), maker(zigzag()), 199, seed=0)
