"""Where accounts stand: order, coverage, stretch ends, and start rows that only a seed decides."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from foxhunt_assets.errors import BadInput
from foxhunt_assets.simulator.config import EnvConfig
from foxhunt_assets.simulator.market_view import segment_bounds
from foxhunt_assets.simulator.walk import EvalWalk, TrainWalk, session_end_rows
from kernels.philox import reference
from tests.simulator import tapes

ENV = EnvConfig()
BOOK = ([(100, 5)], [(101, 5)])
SEGMENTS = [0] * 10 + [-1] * 2 + [1] * 8 + [2] * 6
RANGES = [(1, 10), (12, 18), (20, 26)]
ENDS = [(10, "session"), (20, "gap"), (26, "file")]
ANCHORS = [*range(1, 9), *range(12, 17), *range(20, 25)]  # rows whose next row lies in the same range


def _walk(kind, accounts, *args):
    market = tapes.view(tapes.tape([BOOK] * len(SEGMENTS), segments=SEGMENTS))
    buffers = tapes.buffers(accounts, ENV)
    return kind(market, RANGES, session_end_rows(market.rows, ENDS), buffers, *args)


def _visit(walk, steps, ended=None):
    """Rows of every account over steps, moving as the simulator does."""
    walk.start(0)
    visited = []
    for step in range(steps):
        visited.append(walk.anchor.tolist())
        over = walk.last_of_stretch() if ended is None else walk.last_of_stretch() | ended(step)
        walk.row.copy_(walk.next_row)
        walk.advance(over, step)
    return visited


@pytest.mark.parametrize("accounts", [1, 2, 3, 4, 5])
def test_evaluation_covers_each_anchor_once_and_in_order(accounts):
    walk = _walk(EvalWalk, accounts)
    assert walk.n_steps == len(ANCHORS) // accounts
    assert walk.coverage == accounts * walk.n_steps / len(ANCHORS)
    visited = np.array(_visit(walk, walk.n_steps)).T.ravel().tolist()  # accounts laid end to end
    assert visited == ANCHORS[: accounts * walk.n_steps]


def test_an_episode_end_inside_a_stretch_skips_no_row():
    walk = _walk(EvalWalk, 2)
    visited = _visit(walk, walk.n_steps, ended=lambda step: torch.tensor([step % 2 == 0, step % 3 == 0]))
    assert np.array(visited).T.ravel().tolist() == ANCHORS[: 2 * walk.n_steps]


def test_after_its_last_anchor_an_account_stands_still_for_the_drain_row():
    walk = _walk(EvalWalk, 2, 3)
    assert walk.coverage == 6 / len(ANCHORS)
    _visit(walk, 3, ended=lambda step: torch.tensor([True, True]))
    assert walk.anchor.tolist() == [4, 7]


def test_a_chunk_that_ends_with_its_stretch_is_flat_there_and_stays():
    walk = _walk(EvalWalk, 2, 8)
    _visit(walk, 8)
    assert walk.anchor.tolist()[0] == 9


def test_the_end_of_a_session_is_told_from_every_other_end():
    walk = _walk(EvalWalk, 1)
    walk.row.fill_(8)
    assert walk.last_of_stretch().item() and walk.ends_session().item()
    for row in (16, 24):
        walk.row.fill_(row)
        assert walk.last_of_stretch().item() and not walk.ends_session().item()
    walk.row.fill_(7)
    assert not walk.last_of_stretch().item() and not walk.ends_session().item() and walk.rows_left().item() == 2
    assert walk.last_usable_row == 25


def test_training_starts_only_where_the_window_is_full_and_a_next_row_exists():
    walk = _walk(TrainWalk, 512, 7, 4)
    # Four rows of the segment up to and with the row itself; row 15 is the fourth of its segment.
    assert sorted(walk.starts.tolist()) == [*range(3, 9), 15, 16, 23, 24]
    walk.start(0)
    assert set(walk.anchor.tolist()) == set(walk.starts.tolist())


def test_a_start_row_is_the_published_generator_at_its_counter():
    walk = _walk(TrainWalk, 3, 5 + (9 << 32), 4)
    walk.start(40)
    for account, row in enumerate(walk.anchor.tolist()):
        counter = [torch.tensor([v]) for v in (0, account, 40, 3)]
        word = int(reference.philox4x32(tuple(counter), (5, 9))[0])
        assert row == walk.starts[word * len(walk.starts) // 2**32]


def test_only_ended_accounts_jump_and_a_seed_decides_where():
    walk = _walk(TrainWalk, 64, 1, 2)
    walk.start(0)
    before = walk.anchor.clone()
    ended = torch.arange(64) % 2 == 0
    walk.advance(ended, 0)
    assert torch.equal(walk.anchor[~ended], before[~ended]) and not torch.equal(walk.anchor[ended], before[ended])
    again, other = _walk(TrainWalk, 64, 1, 2), _walk(TrainWalk, 64, 2, 2)
    again.start(0)
    other.start(0)
    assert torch.equal(again.anchor, before) and not torch.equal(other.anchor, before)


def test_segment_bounds():
    first, last = segment_bounds(torch.tensor([3, 3, -1, 4, 4, 4, 3]))
    assert first.tolist() == [0, 0, 2, 3, 3, 3, 6] and last.tolist() == [1, 1, 2, 5, 5, 5, 6]


@pytest.mark.parametrize(
    ("ranges", "words"),
    [
        ([(0, 12)], "one segment"),
        ([(10, 12)], "one segment"),
        ([(5, 9), (3, 5)], "out of order"),
        ([(5, 5)], "empty"),
        ([(20, 40)], "outside"),
        ([(3, 4)], "no row has a next row"),
    ],
)
def test_a_range_that_cannot_be_walked_is_named(ranges, words):
    market = tapes.view(tapes.tape([BOOK] * len(SEGMENTS), segments=SEGMENTS))
    with pytest.raises(BadInput, match=words):
        EvalWalk(market, ranges, session_end_rows(market.rows, ENDS), tapes.buffers(1, ENV))


def test_too_few_rows_say_how_many_are_needed():
    with pytest.raises(BadInput, match="18 rows to decide on, 20 are needed"):
        _walk(EvalWalk, 2, 10)
    with pytest.raises(BadInput, match="are needed for 19 accounts"):
        _walk(EvalWalk, 19)
    with pytest.raises(BadInput, match="has 11 rows"):
        _walk(TrainWalk, 2, 0, 11)
