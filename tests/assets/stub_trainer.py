"""Stands in for the trainer: `stub_trainer.py MODE train|evaluate RUN.json`.

fine: commits a run folder. die: is killed half way. silent: exits 0 and commits nothing. missing: leaves diag.jsonl
out. unclean: does not say completed_clean. stranger: made another run than the one ordered.
quarantine: leaves a report and exits 1.
"""

import json
import os
import signal
import sys
import time
from pathlib import Path

from foxhunt_assets import storage
from foxhunt_assets.trainer.run_spec import RunSpec


def main() -> int:
    mode, _, orders = sys.argv[1:]
    spec = json.loads(Path(orders).read_text())
    out = Path(spec["out"])
    if mode == "fine" and out.exists():
        return 0  # a finished run is not run again
    if mode == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    if mode == "silent":
        return 0
    if mode == "quarantine":
        folder = Path(spec["quarantine"]) / f"{out.name}-12345678"
        folder.mkdir(parents=True)
        (folder / storage.REPORT).write_text("loss.total: nan is not finite\n")
        return 1
    storage.build_folder(out, lambda folder: write(folder, spec, mode), lambda f: None, Path(spec["quarantine"]), {})
    return 0


def write(folder: Path, spec: dict, mode: str) -> None:
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq
    from safetensors.numpy import save_file

    rows = "".join(json.dumps({"step": i, "elapsed_s": time.time()}) + "\n" for i in range(3))
    if mode != "missing":
        (folder / "diag.jsonl").write_text(rows)
    save_file({"w": np.arange(6, dtype=np.float32).reshape(2, 3)}, folder / "checkpoint.safetensors")
    pq.write_table(pa.table({"pnl_cents": pa.array([5], pa.int64())}), folder / "trades.parquet")
    run_id = "0" * 16 if mode == "stranger" else RunSpec.from_json(spec).run_id
    summary = {
        "run_id": run_id, "synthetic": True, "completed_clean": mode != "unclean", "n_steps": 3, "updates": 1,
        "transitions": 24, "losses": {"total": 0.5}, "total_trades": 1, "realized_pnl_usd_cum": 0.05,
    }  # fmt: skip
    storage.write_json(folder / "train_summary.json", summary)


if __name__ == "__main__":
    sys.exit(main())
