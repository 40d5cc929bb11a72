"""The eleven actions. An order takes what ten levels hold on a later book; nothing else moves a position."""

from __future__ import annotations

ACTIONS: tuple[str, ...] = (
    "a0_short_large",  # open or add a short unit of lots_large; against a long it closes it and opens nothing
    "a1_short_small",  # the same with lots_small
    "a2_hold",
    "a3_flat_from_long",
    "a4_flat_from_short",
    "a5_long_small",
    "a6_long_large",
    "a7_trail_tighten",
    "a8_trail_loosen",
    "a9_half_flat_long",  # closes half the lots, rounded up, oldest unit first
    "a10_half_flat_short",
)
HOLD = ACTIONS.index("a2_hold")
SHORT_ENTRIES = (0, 1)
LONG_ENTRIES = (5, 6)
LARGE_ENTRIES = (0, 6)
N_ACTIONS = len(ACTIONS)
