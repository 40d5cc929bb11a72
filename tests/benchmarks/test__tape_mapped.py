"""The mapped load against the file."""

import numpy as np
import torch

from benchmarks import tape as bench
from benchmarks._tape_mapped import through_mapping
from foxhunt_assets.market import tape, upload


def test_whole_batches_arrive(tmp_path, monkeypatch):
    monkeypatch.setattr(bench, "BATCH", 64)
    monkeypatch.setattr(bench, "BLOCK", 8 * 64)
    monkeypatch.setattr(upload, "PIECE_BYTES", 64 << 10)
    bench.write_snapshots(tmp_path / "s", 64 * 19 + 5)
    rows = 64 * 19
    got = through_mapping(tmp_path / "s", bench.COLUMNS, 64, 2, torch.device("cpu"))
    file = tape.Snapshots(tmp_path / "s")
    for name, x in got.items():
        want = np.concatenate(list(file.slices(name, 0, rows)))
        assert np.array_equal(x.numpy(), np.concatenate([want, want])), name
