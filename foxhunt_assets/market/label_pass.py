"""The compiled passes of the labels; apart from `labels`, because the trainer reads that one and needs no numba.

Each loop does one thing to neighbouring elements and has no branch, so that it compiles to vector operations. A tape
is taken in blocks, so that the mids of a block are still in the core's cache when the last horizon reads them.
"""

from __future__ import annotations

import numpy as np

from foxhunt_assets.contracts.tables import ABSENT_PX, NO_SEGMENT
from foxhunt_assets.market import labels
from foxhunt_assets.market.compiled import cached
from foxhunt_assets.market.labels import ATOMS, NO_LABEL

_NO_MID = np.int32(-(2**31))


def label(
    bid: np.ndarray,
    ask: np.ndarray,
    segment: np.ndarray,
    horizons: np.ndarray,
    edges: np.ndarray,
    block: int,
    out: np.ndarray,
) -> int:
    """Write the atom of every row and horizon, NO_LABEL where there is none; returns the bits that prices have set.

    bid, ask, segment: int32 [n], prices in ticks; exact where those of a mid lie inside +-2^29, which the bits tell.
    edges: int16 or int32 [horizons, ATOMS], the least half-tick move of each atom; the first one's is the least
    number of the type but one, and what is less stands for no label. A move is clamped to that range, so no other
    edge may lie at its upper end but one that no move reaches. block: rows. out: int8 [horizons, n].
    """
    n, reach = len(bid), min(int(horizons.max()), len(bid))
    step = max(block, reach)
    mids, moves, atoms = np.empty(step + reach, np.int32), np.empty(step, edges.dtype), np.empty(step, edges.dtype)
    low = np.int32(edges[0, 0])
    bits = ready = 0
    for first in range(0, n, step):
        last = min(first + step, n)
        if first > 0:
            mids[:reach] = mids[step:]
        new, ready = ready, min(last + reach, n)
        bits |= _take_mids(bid[new:ready], ask[new:ready], segment[new:ready], mids[new - first : ready - first])
        for r, h in enumerate(horizons.tolist()):
            m = max(min(last, n - h) - first, 0)
            _take_moves(mids[:m], mids[h : h + m], segment[first:last], segment[first + h :], low, moves[:m])
            _take_atoms(moves[:m], edges[r], atoms[:m])
            _narrow(atoms[:m], out[r, first:last])
            out[r, first + m : last] = NO_LABEL
    return bits


@cached(labels)
def _take_mids(bid, ask, segment, mids):
    """bid + ask, _NO_MID where a side is absent, the book crossed or locked, or the row outside every segment."""
    bits = np.int32(0)
    for k in range(len(bid)):
        b, a = bid[k], ask[k]
        there = (b != ABSENT_PX) & (b < a) & (segment[k] != NO_SEGMENT)
        mids[k] = b + a if there else _NO_MID
        bits |= ((b ^ (b >> 31)) | (a ^ (a >> 31))) if there else np.int32(0)
    return bits


@cached(labels)
def _take_moves(now, then, segment, segment_then, low, moves):
    """then - now inside [low, -low], low - 1 where a mid is missing or the segment another."""
    high, none = np.int32(-low), np.int32(low - 1)
    for k in range(len(moves)):
        there = (now[k] != _NO_MID) & (then[k] != _NO_MID) & (segment[k] == segment_then[k])
        moves[k] = min(max(np.int32(then[k] - now[k]), low), high) if there else none


@cached(labels)
def _take_atoms(moves, edges, atoms):
    """The number of edges at or below a move, less one: there are as many as atoms, and the compiler unrolls them."""
    for k in range(len(moves)):
        atom = NO_LABEL
        for j in range(ATOMS):
            atom += moves[k] >= edges[j]
        atoms[k] = atom


@cached(labels)
def _narrow(values, out):
    """Apart from the loop before, which would take half as many at a time with it."""
    for k in range(len(values)):
        out[k] = values[k]
