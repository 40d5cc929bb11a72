"""Small DBN files with known content, written with the official metadata encoder and numpy records."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, datetime
from pathlib import Path
from types import SimpleNamespace

import databento_dbn
import numpy as np
import zstandard

from foxhunt_assets.contracts.instruments import UNDEF_PRICE
from foxhunt_assets.market.dbn import F_LAST, MBO_DTYPE, MBP10_DTYPE, RTYPES

TICK = 250_000_000
MS = 10**6
ESH4, ESM4, SPREAD = 17077, 5602, 17684
YEAR = (date(2024, 1, 1), date(2025, 1, 1))
OUTRIGHT = {"ESH4": [(*YEAR, ESH4)]}


def ns(text: str) -> int:
    """ns UTC of an ISO time, to the microsecond."""
    at = datetime.fromisoformat(text + "+00:00")
    return int(at.timestamp()) * 10**9 + at.microsecond * 1000


def mbp(
    ts: int,
    bid: int | None = 20_000,
    ask: int | None = 20_001,
    *,
    action: str = "A",
    side: str = "B",
    flags: int = F_LAST,
    size: int = 1,
    iid: int = ESH4,
    lag: int = 0,
    sizes: tuple[int, int] = (10, 20),
) -> np.ndarray:
    """One MBP-10 record: best bid and ask in ticks (None: side empty), level k a tick further out with k more lots."""
    record = np.zeros(1, MBP10_DTYPE)
    record["length"], record["rtype"], record["publisher_id"], record["instrument_id"] = 92, RTYPES["mbp-10"], 1, iid
    record["ts_event"], record["ts_recv"] = ts - lag, ts
    record["action"], record["side"], record["flags"], record["size"] = ord(action), ord(side), flags, size
    record["price"] = TICK * (bid or 0)
    for name, best, step, lots in (("bid", bid, -1, sizes[0]), ("ask", ask, 1, sizes[1])):
        k = np.arange(10)
        record["levels"][f"{name}_px"] = UNDEF_PRICE if best is None else (best + step * k) * TICK
        record["levels"][f"{name}_sz"] = 0 if best is None else lots + k
        record["levels"][f"{name}_ct"] = 0 if best is None else 1 + k
    return record


def mbo(ts: int, action: str, side: str, order: int, ticks: int, size: int, flags: int = F_LAST) -> np.ndarray:
    """One MBO record of ESH4."""
    record = np.zeros(1, MBO_DTYPE)
    record["length"], record["rtype"], record["publisher_id"], record["instrument_id"] = 14, RTYPES["mbo"], 1, ESH4
    record["ts_event"] = record["ts_recv"] = ts
    record["action"], record["side"], record["order_id"] = ord(action), ord(side), order
    record["price"], record["size"], record["flags"] = ticks * TICK, size, flags
    return record


def metadata(
    schema: databento_dbn.Schema,
    mappings: dict[str, list[tuple[date, date, int]]] = OUTRIGHT,
    version: int = 3,
    ts_out: bool = False,
    dataset: str = "GLBX.MDP3",
    partial: Sequence[str] = (),
    not_found: Sequence[str] = (),
) -> bytes:
    """The encoded header."""
    made = [
        SimpleNamespace(
            raw_symbol=symbol,
            intervals=[SimpleNamespace(start_date=a, end_date=b, symbol=str(i)) for a, b, i in parts],
        )
        for symbol, parts in mappings.items()
    ]
    return bytes(
        databento_dbn.Metadata(
            dataset=dataset, schema=schema, start=ns("2024-03-01T00:00:00"), end=ns("2024-03-02T00:00:00"),
            stype_in=databento_dbn.SType.RAW_SYMBOL, stype_out=databento_dbn.SType.INSTRUMENT_ID,
            symbols=list(mappings), partial=list(partial), not_found=list(not_found), version=version, ts_out=ts_out,
            mappings=made,
        )
    )  # fmt: skip


def write(path: Path, parts: Sequence[bytes]) -> Path:
    """The parts one after another; in a .zst file each part is a frame of its own."""
    if path.suffix != ".zst":
        path.write_bytes(b"".join(parts))
        return path
    frames = []
    for part in parts:  # streamed, so that no frame tells its content size: as the archive writes them
        compressor = zstandard.ZstdCompressor(level=3, write_checksum=True).compressobj()
        frames.append(compressor.compress(part) + compressor.flush())
    path.write_bytes(b"".join(frames))
    return path


def write_mbp(path: Path, records: Sequence[np.ndarray], **header: object) -> Path:
    """An MBP-10 file in one frame."""
    return write(path, [metadata(databento_dbn.Schema.MBP_10, **header) + np.concatenate(records).tobytes()])


def write_mbo(path: Path, records: Sequence[np.ndarray], *, clear: bool = True, **header: object) -> Path:
    """An MBO file in one frame. clear: an R of each instrument stands before the records, so that its book is known."""
    if clear:
        ids = dict.fromkeys(np.concatenate(records)["instrument_id"].tolist())
        clears = [mbo(int(records[0]["ts_recv"][0]), "R", "N", 0, 0, 0) for _ in ids]
        for one, instrument in zip(clears, ids):
            one["instrument_id"] = instrument
        records = [*clears, *records]
    return write(path, [metadata(databento_dbn.Schema.MBO, **header) + np.concatenate(records).tobytes()])
