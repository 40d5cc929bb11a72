"""A step of B accounts, the seat of the ended ones, and what accounts see: shapes checked once, then one launch each.

There is no reference.py here: the twin is the torch simulator (foxhunt_assets.simulator), which lies above this floor,
runs on a CPU, and is held to this kernel bit for bit by its own tests.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch

from kernels.account import kernel
from kernels.account.kernel import ACTIONS, FIELDS, PHASES, SEEN, SIGNS
from kernels.arguments import check, check_scalar

__all__ = ["FLAGS", "INTS", "Account", "row_facts"]

MAX_LEVELS, MAX_UNITS = 12, 4  # most the kernel holds of one account
_FACTS = 4
# Rows of the outcome's integers and flags, in the order of account.cu: of every step; of one that sent an order, had
# one refused, or ended an episode; of one that moved trails.
INTS: tuple[str, ...] = (
    "anchor", "next_row", "episode_age", "executed", "equity_change_cents", "core_cents", "episode_equity_cents",
    "phase_equity_cents", "open_cents", "mark_half_ticks", "mark_change_half_ticks", "lots_before", "units_before",
    "lots",
    "fee_cents", "realised_cents", "cash_change_cents", "end_reason", "orders", "fills", "fill_lots", "buy_lots",
    "rejected", "cancelled_lots", "forced_rest_lots", "touch_fills", "slippage_half_ticks", "lag_ns", "levels_max",
    "policy_orders", "units_added", "units_closed_singly",
    "tightened", "loosened",
)  # fmt: skip
FLAGS: tuple[str, ...] = ("episode_start", "illegal", "ineffective", "terminated", "truncated", "trade_closed")


class Account:
    """Kernels over tensors named once, read and written where they lie; fit for a captured graph.

    tensors, by the names of account.cu's parameters, contiguous and on one device: the tape's columns by row, the
    state buffers of the accounts, scales (float32 [12]), and of a walk either starts, or next_anchor and last_anchor.
    facts: int64 [N, 4] of `row_facts`.
    settings: the scalars account.cu declares, by name.

    outcome: by name int64 [B] of INTS, bool [B] of FLAGS, touch_take float64 [B], trades int64 [B, M, 17] and
    trade_mask bool [B, M]; M = 3 x max_units. A row of trades holds what it was last given where trade_mask is False.
    seen: float32 [B, 12], legal: bool [B, 11]. Every one is allocated here and overwritten by the next launch.
    """

    def __init__(self, accounts: int, tensors: Mapping[str, torch.Tensor], settings: Mapping[str, int | float]) -> None:
        units = int(settings["max_units"])
        if not 1 <= units <= MAX_UNITS:
            raise ValueError(f"max_units: {units}, the kernel holds 1 to {MAX_UNITS}")
        if units * max(settings["lots_small"], settings["lots_large"]) >= 2**31:
            raise ValueError("lots_small, lots_large: the lots of an account do not fit 32 bits")
        rows, levels = tensors["bid_px"].shape
        if levels > MAX_LEVELS or levels % 2:
            raise ValueError(f"bid_px: {levels} levels, the kernel holds an even number of at most {MAX_LEVELS}")
        if max(accounts * PHASES * units * FIELDS, rows * levels) >= 2**31:
            raise ValueError(f"accounts, bid_px: {accounts} accounts on {rows} rows need indices of more than 32 bits")
        for name, x in tensors.items():
            check(name, x, _shape(name, accounts, units, int(settings["latency"]) - 1, rows, levels), x.dtype)
        self.accounts, self._step_word = accounts, tensors["acct_step"]
        device, places = self._step_word.device, PHASES * units
        ints = torch.zeros(len(INTS), accounts, dtype=torch.int64, device=device)
        flags = torch.zeros(len(FLAGS), accounts, dtype=torch.bool, device=device)
        apart = {
            "touch_take": torch.zeros(accounts, dtype=torch.float64, device=device),
            "trades": torch.zeros(accounts, places, FIELDS, dtype=torch.int64, device=device),
            "trade_mask": torch.zeros(accounts, places, dtype=torch.bool, device=device),
        }
        self.outcome = {**dict(zip(INTS, ints.unbind())), **dict(zip(FLAGS, flags.unbind())), **apart}
        self.seen = torch.zeros(accounts, SEEN, dtype=torch.float32, device=device)
        self.legal = torch.zeros(accounts, ACTIONS, dtype=torch.bool, device=device)
        stirred = torch.zeros(accounts, dtype=torch.uint8, device=device)  # what of an outcome is not zero
        mine = {"ints": ints, "flags": flags, "stirred": stirred, "seen": self.seen, "legal": self.legal}
        sizes = {"accounts": accounts, "levels": levels}
        self._values = {**settings, **sizes, **tensors, **apart, **mine}

    def step(
        self, actions: torch.Tensor, step: int | torch.Tensor, entry_signs: torch.Tensor, phase_end: bool, drain: bool
    ) -> None:
        """One step: outcome, state, seen and legal. actions: int64 [B]; an illegal one counts as a2_hold.

        entry_signs: int8 [B, 3]. step: a number or a 0-dim int64 tensor other than acct_step, which is written.
        """
        check("actions", actions, (self.accounts,), torch.int64)
        check("entry_signs", entry_signs, (self.accounts, SIGNS), torch.int8)
        check_scalar("step", step)
        if isinstance(step, torch.Tensor) and step.data_ptr() == self._step_word.data_ptr():
            raise ValueError("step: it is acct_step itself, which the step moves on while others read it")
        given = {"actions": actions.contiguous(), "entry_signs": entry_signs.contiguous()}
        flags = {"phase_end": int(phase_end), "drain": int(drain)}
        kernel.launch("account_step", self.accounts, step, {**self._values, **given, **flags})

    def advance(self, step: int | torch.Tensor) -> None:
        """After step: ended accounts become fresh ones where their next episode starts; their seen and legal too."""
        check_scalar("step", step)
        kernel.launch("account_advance", self.accounts, step, self._values)

    def observe(self) -> None:
        """seen and legal of every account, from the state."""
        kernel.launch("account_observe", self.accounts, 0, self._values)


def row_facts(
    ts: torch.Tensor,
    ts_event: torch.Tensor,
    fee_cents: torch.Tensor,
    low_bid_px: torch.Tensor,
    high_ask_px: torch.Tensor,
    rows_left: torch.Tensor,
    warm: torch.Tensor,
) -> torch.Tensor:
    """int64 [N, 4]: what a step needs of a row, gathered so that it is one read of memory. All [N], int32 or int64.

    rows_left: rows to the end of the row's stretch; warm: bool, it has a whole window behind it. fee_cents fit 32 bits.
    """
    if int(fee_cents.max()) >= 2**31:
        raise ValueError("fee_cents: a fee does not fit 32 bits")
    place = 2 * rows_left + warm
    pairs = [
        (high.long() << 32) | (low.long() & 0xFFFFFFFF) for high, low in ((place, fee_cents), (high_ask_px, low_bid_px))
    ]
    return torch.stack([ts, ts_event, *pairs], 1)


def _shape(name: str, accounts: int, units: int, waiting: int, rows: int, levels: int) -> tuple[int | None, ...]:
    """What a tensor must measure, by its name."""
    special: dict[str, tuple[int | None, ...]] = {
        **dict.fromkeys(("bid_px", "ask_px", "bid_sz", "ask_sz"), (rows, levels)),
        "facts": (rows, _FACTS), "scales": (SEEN,), "starts": (None,), "last_anchor": (accounts,), "acct_step": (1,),
        "acct_pending_action": (accounts, waiting), "acct_pending_signs": (accounts, waiting, SIGNS),
        "unit_entry_signs": (accounts, units, SIGNS), "pyramid_units_count": (accounts,),
    }  # fmt: skip
    if name in special:
        return special[name]
    if name.startswith("acct_taken_"):
        return accounts, levels
    if name.startswith("unit_"):
        return accounts, units
    return (accounts,) if name.startswith("acct_") else (rows,)
