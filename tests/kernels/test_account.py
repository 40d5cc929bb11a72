"""What the account kernels refuse. What they compute is held to their twin in tests/simulator/test_kernel.py."""

import pytest
import torch

from foxhunt_assets.simulator.config import EnvConfig
from foxhunt_assets.simulator.on_device import settings
from foxhunt_assets.simulator.state import specs
from kernels.account.op import Account, row_facts

ACCOUNTS, ROWS = 3, 5


def _tensors(env, **other):
    words = {s.name: torch.zeros(s.shape, dtype=getattr(torch, s.dtype)) for s in specs(ACCOUNTS, env)}
    words |= {name: torch.zeros(ROWS, 10, dtype=torch.int32) for name in ("bid_px", "ask_px", "bid_sz", "ask_sz")}
    words |= {
        "facts": torch.zeros(ROWS, 4, dtype=torch.int64),
        "session_end": torch.zeros(ROWS) > 0,
        "scales": torch.ones(12),
        "starts": torch.zeros(1).long(),
    }
    return words | other


def _account(env, **other):
    return Account(ACCOUNTS, _tensors(env, **other), settings(env, 1250))


@pytest.mark.parametrize("env, other, message", [
    (EnvConfig(lots_large=2**29), {}, "lots_small, lots_large: the lots of an account do not fit 32 bits"),
    (EnvConfig(), {"bid_px": torch.zeros(ROWS, 14, dtype=torch.int32)}, "bid_px: 14 levels, the kernel holds an even"),
    (EnvConfig(), {"bid_px": torch.zeros(ROWS, 9, dtype=torch.int32)}, "bid_px: 9 levels, the kernel holds an even"),
    (EnvConfig(), {"bid_px": torch.zeros(1, 1).expand(2**28, 10)}, "accounts, bid_px: 3 accounts on 268435456 rows"),
    (EnvConfig(), {"facts": torch.zeros(4, 4).long()}, r"facts: shape \[4, 4\], expected \[5, 4\]"),
    (EnvConfig(), {"unit_lots": torch.zeros(3, 2).long()}, r"unit_lots: shape \[3, 2\], expected \[3, 4\]"),
    (EnvConfig(latency_steps=3), {"acct_pending_action": torch.zeros(3, 1).long()}, r"acct_pending_action: shape"),
])  # fmt: skip
def test_a_tensor_or_a_number_that_does_not_fit_is_named(env, other, message):
    with pytest.raises(ValueError, match=rf"^{message}"):
        _account(env, **other)


@pytest.mark.parametrize("actions, signs, step, message", [
    (torch.zeros(4).long(), torch.zeros(3, 3).char(), 0, r"actions: shape \[4\], expected \[3\]"),
    (torch.zeros(3), torch.zeros(3, 3).char(), 0, "actions: type torch.float32, expected torch.int64"),
    (torch.zeros(3).long(), torch.zeros(3, 3), 0, "entry_signs: type torch.float32, expected torch.int8"),
    (torch.zeros(3).long(), torch.zeros(3, 3).char(), torch.zeros(1).long(), r"step: shape \[1\], expected a number"),
])  # fmt: skip
def test_what_a_step_is_given_is_held_to_its_type(actions, signs, step, message):
    with pytest.raises(ValueError, match=rf"^{message}"):
        _account(EnvConfig()).step(actions, step, signs, False, False)


def test_the_facts_of_a_row_hold_every_sign_and_a_fee_that_does_not_fit_is_named():
    column = torch.tensor([7, -7])
    facts = row_facts(column, column + 1, column.abs(), -column.int(), column.int() * 2, column * 3, column > 0)
    assert facts[:, :2].tolist() == [[7, 8], [-7, -6]]
    words = facts[:, 2:].contiguous().view(torch.int32)
    assert words.tolist() == [[7, 43, -7, 14], [7, -42, 7, -14]]  # little-endian: the low word first
    with pytest.raises(ValueError, match=r"^fee_cents: a fee does not fit 32 bits"):
        row_facts(*[column] * 2, column + 2**31, *[column] * 3, column > 0)
