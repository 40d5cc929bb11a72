"""Writes a run folder as a trainer would, in a second and with no training; as a script it is a twin's arm.

fake_run.py FOLDER PHASE [--fault NAME]: PHASE is train or evaluate.
"""

import argparse
import json
import os
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from safetensors.numpy import save_file

from foxhunt_assets import storage
from foxhunt_assets.contracts.diag import nest
from foxhunt_assets.contracts.tables import EQUITY, TIMING, TRADES, arrow_schema

IDENTITY = {"code": "a" * 64, "config_hash": "b" * 64, "inputs": {"fold_spec": "c" * 64}, "seed": 7, "device": "cpu"}
EVAL = "eval-0123456789abcdef"
STEPS = 4


def rows(first_step: int) -> list[dict]:
    return [
        nest(
            {
                "step": first_step + i,
                "elapsed_s": time.perf_counter(),
                "checksums.batch_inputs": 100 + i,
                "checksums.grads": 200 + i,
                "encoder.h_t_digest32": 300 + i,
                "pi.logits_digest32": 400 + i,
                "loss.total": 0.1 * i,
                "rewards.sum": -0.0,
            }
        )
        for i in range(STEPS)
    ]


def trades(phase: str) -> pa.Table:
    row = {
        "trade": 0, "account": 0, "phase": phase, "side": 1, "lots": 2, "entry_step": 0, "exit_step": 2, "entry_ts": 0,
        "exit_ts": 1, "entry_tick_lots": 40_000, "exit_tick_lots": 40_006, "fees_cents": 900, "pnl_cents": 6_600,
        "reason": "policy", "actions": "a6>a3",
    }  # fmt: skip
    return pa.Table.from_pylist([row], schema=arrow_schema(TRADES))


def equity() -> pa.Table:
    row = {"account": 0, "segment": 0, "trade_date": "2024-01-02", "action": 2, "equity_cents": 0}
    out = [{**row, "step": STEPS + i, "ts": i} for i in range(STEPS)]
    return pa.Table.from_pylist(out, schema=arrow_schema(EQUITY))


def tensors() -> dict[str, np.ndarray]:
    return {
        "encoder.w": np.arange(12, dtype=np.float32).reshape(3, 4),
        "optim.step": np.array([5], dtype=np.int64),
        "isv": np.zeros(7, dtype=np.float32),
    }


def write_train(folder: Path) -> None:
    storage.write_json(folder / "config.json", {"profile": "demo"})
    _write_lines(folder / "diag.jsonl", rows(0))
    pq.write_table(trades("train"), folder / "trades.parquet")
    storage.write_json(folder / "train_summary.json", {"completed_clean": True, "losses": {"total": 0.5}})
    save_file(tensors(), folder / "checkpoint.safetensors")
    storage.write_json(folder / "checkpoint.json", {"step": STEPS})
    _write_derived(folder, "diag.parquet")


def write_eval(folder: Path) -> None:
    storage.write_json(folder / "config.json", {"profile": "demo"})
    _write_lines(folder / "eval_diag.jsonl", rows(STEPS))
    storage.write_json(folder / "eval_summary.json", {"total_pnl_cents": 6_600, "total_pnl_usd": 66.0})
    pq.write_table(trades("eval"), folder / "trades.parquet")
    pq.write_table(equity(), folder / "equity.parquet")
    _write_derived(folder, "eval_diag.parquet")


def commit(run: Path, phase: str, change=lambda folder: None, **identity) -> Path:
    """Write run/train or run/eval-…, apply `change` before the manifest is made, and commit."""
    target = run / ("train" if phase == "train" else EVAL)
    beside = run / f".{target.name}.beside"
    beside.mkdir(parents=True)
    (write_train if phase == "train" else write_eval)(beside)
    change(beside)
    storage.commit(beside, target, {**IDENTITY, **identity})
    return target


def _write_lines(path: Path, objects: list[dict]) -> None:
    path.write_text("".join(json.dumps(o) + "\n" for o in objects))


def _write_derived(folder: Path, name: str) -> None:
    pq.write_table(pa.table({"x": [time.perf_counter()]}), folder / name)
    timing = {"step": [0], "elapsed_s": [time.perf_counter()]}
    pq.write_table(pa.table(timing, schema=arrow_schema(TIMING)), folder / "timing.parquet")


# --- faults a twin must find -------------------------------------------------------------------------------------


def flip_bit(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(bytes(data))


def tensor_bit(folder: Path) -> None:
    flip_bit(folder / "checkpoint.safetensors", -3)


def one_leaf(folder: Path) -> None:
    path = folder / "diag.jsonl"
    path.write_text(path.read_text().replace('"logits_digest32": 402', '"logits_digest32": 999'))


def trade_cent(folder: Path) -> None:
    table = trades("train")
    i = table.schema.get_field_index("pnl_cents")
    pq.write_table(table.set_column(i, table.schema.field(i), pa.array([6_601])), folder / "trades.parquet")


def missing_file(folder: Path) -> None:
    (folder / "trades.parquet").unlink()


def extra_file(folder: Path) -> None:
    (folder / "step_0_new.bin").write_bytes(b"\0")


def hash_seed(folder: Path) -> None:
    """Bits that follow PYTHONHASHSEED, as the order of a set of strings does."""
    storage.write_json(folder / "checkpoint.json", {"order": [*{"a", "b", "c", "d", "e", "f", "g", "h"}]})


FAULTS = {f.__name__: f for f in (tensor_bit, one_leaf, trade_cent, missing_file, extra_file, hash_seed)}


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("phase")
    parser.add_argument("--fault", default="")
    args = parser.parse_args()
    if args.fault == "exit_1":
        print("no such device", file=sys.stderr)
        return 1
    if args.fault == "sleep":
        (args.folder / "pid").parent.mkdir(parents=True, exist_ok=True)
        (args.folder / "pid").write_text(str(os.getpid()))
        time.sleep(120)
    commit(args.folder, args.phase, FAULTS.get(args.fault, lambda folder: None))
    return 0


if __name__ == "__main__":
    sys.exit(main())
