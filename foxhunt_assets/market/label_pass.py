"""The compiled loop of the labels; apart from `labels`, because the trainer reads that one and needs no numba."""

from __future__ import annotations

import numpy as np
from numba import njit

from foxhunt_assets.contracts.tables import ABSENT_PX, NO_SEGMENT


@njit(cache=True)
def label(bid, ask, segment, h, low, atoms, out):
    """Write the atom of each row i with i + h in its segment and a mid on both rows; leave the other rows of out alone.

    bid, ask, segment: int32 [n], prices in ticks. atoms: int8, by half-tick difference from `low` on; a difference
    beyond its ends gets the end's. out: int8 [n].
    """
    last = len(atoms) - 1
    for i in range(len(bid) - h):
        j = i + h
        there = (bid[i] < ask[i]) & (bid[j] < ask[j]) & (bid[i] != ABSENT_PX) & (bid[j] != ABSENT_PX)
        if there & (segment[i] == segment[j]) & (segment[i] != NO_SEGMENT):
            moved = np.int64(bid[j]) + np.int64(ask[j]) - np.int64(bid[i]) - np.int64(ask[i])
            out[i] = atoms[min(max(moved - low, 0), last)]
