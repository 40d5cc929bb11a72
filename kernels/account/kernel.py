"""Host side of account.cu: its parameters are found by name."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from kernels import build

ACTIONS, SEEN, SIGNS = 11, 12, 3
FIELDS = 17  # of a trade row
PHASES = 3  # stops, the policy's order, forced closes: each may close every unit
_LANES = 4  # of an account
_THREADS = 128  # of a block, as in the source
# Parameters that may be null: no queue at a latency of one row, and either kind of walk.
_OPTIONAL = ("acct_pending_action", "acct_pending_signs", "starts", "next_anchor", "last_anchor")


def launch(function: str, accounts: int, step: int | torch.Tensor, values: Mapping[str, build.Argument]) -> None:
    """Start a kernel on the values of its parameters' names; step goes as step_at or step."""
    like = values["acct_step"]
    assert isinstance(like, torch.Tensor)
    step_at, number = build.whole(step, like)
    found = {**dict.fromkeys(_OPTIONAL), **values, "step_at": step_at, "step": number}
    args = build.by_name("account", function, found)
    build.launch("account", function, (build.ceil_div(_LANES * accounts, _THREADS),), (_THREADS,), *args)
