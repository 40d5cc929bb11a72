"""What a step of B accounts measures of itself, in two launches; shapes are checked once.

There is no reference.py here: the twin is foxhunt_assets.simulator.measure, above this floor, which also gives the
order of the numbers. Integers are equal to its; float64 sums are added in another order, a fixed one.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch

from kernels import build
from kernels.arguments import check
from kernels.tally import kernel

INTS, TOTALS, FLOATS = 74, 32, 11  # numbers of a row and of the totals
LEVELS, MAX_UNITS, FIELDS = 10, 4, 17


class Tally:
    """Over tensors named once and read where they lie; fit for a captured graph.

    tensors, by the names of tally.cu's parameters, contiguous and on one device: the tape's columns by row
    (segment_last: int64, last row of a row's segment), the state of the accounts, and the buffers diag_sim_ints,
    diag_sim_totals (int64), diag_sim_floats and diag_sim_pnl_squares (float64), which are written.
    segments: segment numbers run from -1 to one less. last_usable_row: the last row an account may stand on.
    """

    def __init__(
        self,
        accounts: int,
        tensors: Mapping[str, torch.Tensor],
        *,
        max_units: int,
        tick_cents: int,
        absent: int,
        segments: int,
        last_usable_row: int,
    ) -> None:
        self.accounts, rows = accounts, tensors["segment"].shape[0]
        shapes: dict[str, tuple[int, ...]] = {
            **dict.fromkeys(("bid_px", "ask_px", "bid_sz", "ask_sz"), (rows, LEVELS)),
            **dict.fromkeys(("segment", "segment_last"), (rows,)),
            "acct_step": (1,), "diag_sim_ints": (INTS,), "diag_sim_totals": (TOTALS,),
            "diag_sim_floats": (FLOATS,), "diag_sim_pnl_squares": (1,),
        }  # fmt: skip
        if not 1 <= max_units <= MAX_UNITS:
            raise ValueError(f"max_units: {max_units}, the kernel holds 1 to {MAX_UNITS}")
        for name, x in tensors.items():
            shape = (accounts, max_units) if name.startswith("unit_") else shapes.get(name, (accounts,))
            check(name, x, shape, x.dtype)
        device, blocks = tensors["segment"].device, build.ceil_div(accounts, kernel.BLOCK)
        self._places = 3 * max_units
        self._values: dict[str, build.Argument] = {
            **tensors,
            "rows_seen": torch.zeros(build.ceil_div(rows, 32), dtype=torch.int32, device=device),
            "segments_seen": torch.zeros(build.ceil_div(segments + 1, 32), dtype=torch.int32, device=device),
            "distinct": torch.zeros(2, dtype=torch.int64, device=device),
            "partial": torch.zeros(blocks, kernel.WORDS, dtype=torch.int64, device=device),
            "partial_floats": torch.zeros(blocks, kernel.REALS, dtype=torch.float64, device=device),
            "max_units": max_units, "tick_cents": tick_cents, "absent": absent, "last_usable_row": last_usable_row,
        }  # fmt: skip

    def update(self, outcome: Mapping[str, torch.Tensor]) -> None:
        """Measure a step: outcome's tensors by name, [B] each, trades int64 [B, M, 17], trade_mask bool [B, M]."""
        places: dict[str, tuple[int, ...]] = {"trades": (self._places, FIELDS), "trade_mask": (self._places,)}
        for name, x in outcome.items():
            check(name, x, (self.accounts, *places.get(name, ())), x.dtype)
        kernel.update(self.accounts, {**self._values, **outcome})
