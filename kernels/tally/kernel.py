"""Host side of tally.cu: its parameters are found by name."""

from __future__ import annotations

from collections.abc import Mapping

from kernels import build

BLOCK = 32  # accounts of a block
WORDS, REALS = 108, 11  # of a partial row
_FINISH = 128


def update(accounts: int, values: Mapping[str, build.Argument]) -> None:
    """Partial sums, then the rows, the totals, and the marks taken back."""
    blocks = build.ceil_div(accounts, BLOCK)
    sizes = {"accounts": accounts, "blocks": blocks}
    args = [build.by_name("tally", name, {**values, **sizes}) for name in ("tally_accounts", "tally_finish")]
    build.launch("tally", "tally_accounts", (blocks,), (BLOCK,), *args[0])
    build.launch("tally", "tally_finish", (1 + build.ceil_div(accounts, _FINISH),), (_FINISH,), *args[1])
