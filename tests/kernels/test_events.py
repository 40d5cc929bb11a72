"""Every event is reached by its own step and by no other."""

import pytest
import torch

from kernels.events import op

CODES = op.Codes(column=1, trail=7, session=3, gap=4, length=5)
PLACES = torch.tensor([8, 7, 6, 5, 4, 3, 2, 1, 0])


def marked(closed=False, reason=0, there=True, end=0, executed=(0, 0), inserted=0, windows=0, stops=0, training=True):
    """Events seen after one step of two accounts, as names."""
    seen, actions = torch.zeros(9, dtype=torch.bool), torch.tensor([False, False, True])
    trades = torch.zeros(2, 4, 2, dtype=torch.int64)
    trades[1, 3, 1] = reason
    mask = torch.zeros(2, 4, dtype=torch.bool)
    mask[1, 3] = there
    step = op.Step(torch.tensor([False, closed]), trades, mask, torch.tensor([0, end]))
    counts = (torch.tensor([x]) for x in (inserted, windows, stops))
    learned = op.Learned(torch.tensor(executed), *counts, actions, 10, 20) if training else None
    op.mark(step, CODES, learned, PLACES, seen)
    return {op.EVENTS[k] for k, at in enumerate(PLACES.tolist()) if seen[at]}


@pytest.mark.parametrize("what, events", [
    ({}, set()), ({"closed": True}, {"close"}), ({"reason": 7}, {"trail"}), ({"reason": 7, "there": False}, set()),
    ({"end": 3}, {"segment"}), ({"end": 4}, {"segment"}), ({"end": 5}, {"length"}), ({"inserted": 9}, set()),
    ({"inserted": 10}, {"replay_warm"}), ({"inserted": 20}, {"replay_warm"}),
    ({"inserted": 21}, {"replay_warm", "ring_wrap"}), ({"windows": 1}, {"window"}), ({"stops": 2}, {"kl_stop"}),
    ({"executed": (0, 1)}, {"all_actions"}),
    ({"executed": (0, 1), "inserted": 99, "closed": True, "training": False}, {"close"}),
])  # fmt: skip
def test_an_event_is_marked_by_what_reaches_it(what, events):
    assert marked(**what) == events


def test_what_was_seen_stays():
    seen, actions = torch.ones(9, dtype=torch.bool), torch.tensor([True, False])
    step = op.Step(*(torch.zeros(shape, dtype=kind) for shape, kind in (
        ((1,), torch.bool), ((1, 1, 2), torch.int64), ((1, 1), torch.bool), ((1,), torch.int64)
    )))  # fmt: skip
    zero = torch.zeros(1, dtype=torch.int64)
    op.mark(step, CODES, op.Learned(zero, zero, zero, zero, actions, 1, 1), PLACES, seen)
    assert seen.all() and actions.tolist() == [True, False]
