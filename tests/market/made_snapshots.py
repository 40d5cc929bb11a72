"""A small snapshots folder with random, valid columns, for tests that read one."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from foxhunt_assets.contracts.tables import LEVELS, SEGMENTS, SNAPSHOTS, arrow_schema


def random_columns(n: int, seed: int) -> dict[str, np.ndarray]:
    """Every snapshot column, [n] or [n, 10]: a random walk of the mid under a dense book."""
    rng = np.random.default_rng(seed)
    columns: dict[str, np.ndarray] = {}
    for column in SNAPSHOTS:
        shape = (n, LEVELS) if column.type.startswith("fixed") else (n,)
        dtype = "int32" if column.type.startswith("fixed") else column.type
        columns[column.name] = rng.integers(0, 100, shape).astype(dtype)
    bid = 20_000 + np.cumsum(rng.integers(-1, 2, n))
    columns["bid_px"] = (bid[:, None] - np.arange(LEVELS)).astype(np.int32)
    columns["ask_px"] = (bid[:, None] + rng.integers(1, 3, (n, 1)) + np.arange(LEVELS)).astype(np.int32)
    columns["ts"] = 1_712_000_000_000_000_000 + np.arange(n) * 250_000_000
    columns["ts_event"] = columns["ts"] - rng.integers(0, 10**9, n)
    columns["segment"] = np.zeros(n, np.int32)
    columns["instrument_id"] = np.full(n, 2**32 - 5, np.uint32)
    return columns


def write_folder(folder: Path, columns: dict[str, np.ndarray], cuts: list[int], segments: list[dict]) -> Path:
    """snapshots.arrow in record batches ending at `cuts`, and segments.parquet."""
    folder.mkdir(parents=True, exist_ok=True)
    schema = arrow_schema(SNAPSHOTS, {"grid_ms": "250"})
    with pa.OSFile(str(folder / "snapshots.arrow"), "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
        for a, b in zip([0, *cuts], cuts):
            arrays = []
            for field in schema:
                values = columns[field.name][a:b]
                if values.ndim == 2:
                    flat = pa.array(np.ascontiguousarray(values).reshape(-1))
                    arrays.append(pa.FixedSizeListArray.from_arrays(flat, type=field.type))
                else:
                    arrays.append(pa.array(values))
            writer.write_batch(pa.record_batch(arrays, schema=schema))
    pq.write_table(pa.Table.from_pylist(segments, schema=arrow_schema(SEGMENTS)), folder / "segments.parquet")
    return folder


def segment(number: int, start: int, end: int, **changes) -> dict:
    return {
        "segment": number, "symbol": "ESM4", "instrument_id": 2**32 - 5, "trade_date": "2024-04-01",
        "row_start": start, "row_end": end, "ended_by": "file", "tick": 250_000_000, "multiplier_cents": 5_000,
        **changes,
    }  # fmt: skip
