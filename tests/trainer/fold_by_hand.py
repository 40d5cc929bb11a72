"""A small fold on disk, made without any decoder: a random-walk book of one or more sessions, labels and norm."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from foxhunt_assets import storage
from foxhunt_assets.contracts.tables import LEVELS, SEGMENTS, SNAPSHOTS, arrow_schema
from foxhunt_assets.market import features, folds, labels, norm, tape
from foxhunt_assets.trainer.config import TrainerConfig, from_profile
from foxhunt_assets.trainer.run_spec import RunSpec

GRID_NS = 250_000_000
TINY = {
    "model": {"accounts": 8, "hidden": 8, "frd_hidden": 8, "window": 8},
    "labels": {"horizons": (2, 4, 8)},
    "env": {"min_hold_steps": 2, "episode_length": 40},
    "learning": {"replay_capacity": 256, "replay_rows": 16},
    "run": {"n_steps": 70, "warmup_steps": 4, "checkpoint_every": 20, "threads": 1},
}


def tiny_config(**overrides) -> TrainerConfig:
    base = from_profile("demo", TINY)
    return replace(base, **{k: replace(getattr(base, k), **v) for k, v in overrides.items()})


def write_snapshots(folder: Path, rows: int, session: int, seed: int) -> None:
    """snapshots.arrow and segments.parquet: one instrument, a session of `rows` rows on trade day `session`."""
    folder.mkdir(parents=True)
    rng = np.random.default_rng([seed, session])
    day = np.datetime64("2024-03-04") + np.timedelta64(session, "D")
    ts = (day + np.timedelta64(15, "h")).astype("datetime64[ns]").astype(np.int64) + GRID_NS * np.arange(rows)
    bid = 20_000 + rng.integers(-1, 2, rows).cumsum()
    spread = 1 + (rng.random(rows) < 0.1)
    size = rng.integers(3, 60, (rows, 2 * LEVELS))
    still = np.arange(9, rows, 10)  # rows whose book is that of the row before
    for book in (bid, spread, size):
        book[still] = book[still - 1]
    lag = np.random.default_rng([seed, session, 1]).integers(100_000, 2_000_000, rows)
    level = np.arange(LEVELS)
    columns = {
        "ts_event": ts - 700_000 - lag, "ts_recv": ts - 700_000, "ts": ts, "source_row": np.arange(rows),
        "instrument_id": np.full(rows, 17), "bid_px": bid[:, None] - level, "ask_px": (bid + spread)[:, None] + level,
        "bid_sz": size[:, :LEVELS], "ask_sz": size[:, LEVELS:], "bid_ct": size[:, :LEVELS] // 3 + 1,
        "ask_ct": size[:, LEVELS:] // 3 + 1, "action": np.full(rows, ord("M")), "side": np.full(rows, ord("B")),
        "flags": np.full(rows, 128), "depth": np.zeros(rows), "buy_lots": rng.integers(0, 9, rows),
        "sell_lots": rng.integers(0, 9, rows), "n_trades": rng.integers(0, 4, rows),
        "n_events": rng.integers(1, 9, rows),
        "low_bid_px": bid - rng.integers(0, 2, rows), "high_ask_px": bid + spread + rng.integers(0, 2, rows),
        "ofi": rng.integers(-20, 21, (rows, LEVELS)), "segment": np.zeros(rows),
    }  # fmt: skip
    schema = arrow_schema(SNAPSHOTS, {"grid_ms": "250"})
    arrays = []
    for field in schema:
        value = columns[field.name]
        if pa.types.is_fixed_size_list(field.type):
            arrays.append(pa.FixedSizeListArray.from_arrays(pa.array(value.ravel().astype(np.int32)), type=field.type))
        else:
            arrays.append(pa.array(value.astype(field.type.to_pandas_dtype())))
    with pa.OSFile(str(folder / "snapshots.arrow"), "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
        writer.write_batch(pa.record_batch(arrays, schema=schema))
    row = (0, "ESH4", 17, str(day), 0, rows, "session", 250_000_000, 5_000)
    table = pa.table({c.name: [v] for c, v in zip(SEGMENTS, row)}, schema=arrow_schema(SEGMENTS))
    pq.write_table(table, folder / "segments.parquet")


def make_fold_on_disk(home: Path, config: TrainerConfig, sessions: int = 4, rows: int = 160, seed: int = 0) -> RunSpec:
    """Write everything a training of fold_0 reads under `home`; the RunSpec that trains it."""
    folders = {f"s{i}-synthetic": home / "snapshots" / f"s{i}" for i in range(sessions)}
    for i, folder in enumerate(folders.values()):
        write_snapshots(folder, rows, i, seed)
    infos = [folds.source_info(key, folder) for key, folder in folders.items()]
    spec = folds.make_fold(
        0, 1, infos, root="ES", grid_ms=250, window=config.model.window, latency_steps=config.env.latency_steps,
        horizons=config.labels.horizons,
    )  # fmt: skip
    fold = home / "folds" / "fold_0"
    storage.write_json(fold / "spec" / "fold_spec.json", spec.to_json())
    columns = tape.read_columns(spec.sources, folders.__getitem__, features.COLUMNS)
    labels.write_labels(spec, columns, fold / "labels")
    norm.write_norm(spec, columns, fold / "norm")
    return RunSpec(
        kind="train", config=config, fold="fold_0", seed=3, fold_dir=str(fold),
        snapshots={k: str(v) for k, v in folders.items()}, inputs={"fold_spec": folds.data_version(spec)},
        out=str(home / "run" / "train"), quarantine=str(home / "quarantine"), resume=str(home / "work" / "train"),
        lock=str(home / "work" / "cpu.lock"),
    )  # fmt: skip


def evaluation_of(train: RunSpec) -> RunSpec:
    home = Path(train.out).parent
    return replace(
        train,
        kind="evaluate",
        out=str(home / "eval-0"),
        train_dir=train.out,
        resume=str(Path(train.resume).parent / "eval"),
    )
