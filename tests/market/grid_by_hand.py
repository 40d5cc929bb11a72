"""Snapshot columns of a synthetic file made the slow and obvious way, apart from the project's decoder.

Databento's client reads the file; a row stands at each multiple of 250 ms and shows the last record with F_LAST
received at or before it; trades and touch order-flow imbalance are summed since the row before (deeper levels' stay 0).
"""

from pathlib import Path

import databento
import numpy as np
import torch

from foxhunt_assets.contracts.tables import ABSENT_PX

GRID_NS = 250_000_000
TICK = 250_000_000
UNDEF = 2**63 - 1


def records(path: Path) -> np.ndarray:
    return databento.DBNStore.from_file(path).to_ndarray()


def columns(path: Path) -> dict[str, torch.Tensor]:
    """Columns that features and labels need, int64 or int32 tensors [n] or [n, 10]."""
    r = records(path)
    r = r[np.flatnonzero(r["action"] == b"R")[-1] + 1 :]
    books = r[(r["flags"] & 128) != 0]
    recv = books["ts_recv"].astype(np.int64)
    ts = np.arange(-(-recv[0] // GRID_NS), recv[-1] // GRID_NS + 1) * GRID_NS
    at = np.searchsorted(recv, ts, side="right") - 1
    out = {"ts": ts, "ts_event": books["ts_event"].astype(np.int64)[at]}
    for side in ("bid", "ask"):
        px = np.stack([books[f"{side}_px_{k:02d}"] for k in range(10)], 1)[at]
        out[f"{side}_px"] = np.where(px == UNDEF, ABSENT_PX, px // TICK)
        for what in ("sz", "ct"):
            column = np.stack([books[f"{side}_{what}_{k:02d}"] for k in range(10)], 1)
            out[f"{side}_{what}"] = column[at].astype(np.int64)
    trades = r[r["action"] == b"T"]
    row = np.searchsorted(ts, trades["ts_recv"].astype(np.int64), side="left")
    for name, side in (("buy_lots", b"B"), ("sell_lots", b"A")):
        mine = (trades["side"] == side) & (row < len(ts))
        out[name] = np.bincount(row[mine], trades["size"][mine], len(ts)).astype(np.int64)
    out["n_trades"] = np.bincount(row[row < len(ts)], minlength=len(ts))
    ofi = np.zeros((len(ts), 10), np.int64)
    flow = touch_imbalance(books)
    row = np.searchsorted(ts, recv, side="left")
    ofi[:, 0] = np.bincount(row[row < len(ts)], flow[row < len(ts)], len(ts))
    out["ofi"] = ofi
    return {k: torch.from_numpy(np.ascontiguousarray(v)) for k, v in out.items()}


def touch_imbalance(books: np.ndarray) -> np.ndarray:
    """e_n of Cont, Kukanov and Stoikov (2014) for each event, 0 for the first."""
    bp, bq, ap, aq = (books[f"{f}_00"].astype(np.int64) for f in ("bid_px", "bid_sz", "ask_px", "ask_sz"))
    e = (bp[1:] >= bp[:-1]) * bq[1:] - (bp[1:] <= bp[:-1]) * bq[:-1]
    e = e - (ap[1:] <= ap[:-1]) * aq[1:] + (ap[1:] >= ap[:-1]) * aq[:-1]
    return np.concatenate(([0], e))
