"""A fold's tape against its files: every tensor from an oracle, the same however it is cut; refusals in one line."""

import dataclasses
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from foxhunt_assets.errors import BadInput, FoxhuntError
from foxhunt_assets.market import features, norm, upload
from foxhunt_assets.market.labels import LABELS_FILE
from foxhunt_assets.trainer.tape import DT_MAX, load_tape
from tests.trainer.fold_by_hand import make_fold_on_disk, tiny_config

ROWS, SESSIONS = 300, 4
CONFIG = tiny_config()


@pytest.fixture(scope="module")
def fold(tmp_path_factory):
    return make_fold_on_disk(tmp_path_factory.mktemp("fold"), CONFIG, SESSIONS, ROWS)


def load(spec, device="cpu"):
    return load_tape(Path(spec.fold_dir), spec.snapshots, CONFIG, device)


def tensors(tape):
    """Every tensor of a tape by name."""
    both = {**vars(tape), **{f"market.{name}": x for name, x in vars(tape.market).items()}}
    return {name: x for name, x in both.items() if isinstance(x, torch.Tensor)}


def stored(spec, tape, name):
    """A snapshot column of the tape, read by pyarrow alone."""
    parts = []
    for source in tape.spec.sources:
        column = pa.ipc.open_file(Path(spec.snapshots[source.key]) / "snapshots.arrow").read_all()[name]
        parts += column.to_pylist()[source.row_start : source.row_end]
    return np.array(parts)


def test_the_market_is_that_of_the_files(fold):
    tape = load(fold)
    n = tape.spec.n_rows
    assert n == ROWS * SESSIONS
    for name in ("bid_px", "ask_px", "bid_sz", "ask_sz", "low_bid_px", "high_ask_px", "ts", "ts_event"):
        assert np.array_equal(getattr(tape.market, name).numpy(), stored(fold, tape, name)), name
    session = np.arange(n) // ROWS
    assert np.array_equal(tape.segment.numpy(), session) and tape.market.segment is tape.segment
    assert np.array_equal(tape.segment_start.numpy(), session * ROWS)
    assert (tape.market.fee_cents == 225).all() and tape.market.tick_cents == 1_250
    steps = np.diff(stored(fold, tape, "ts")) / 250e6
    assert np.array_equal(tape.dt.numpy(), np.minimum([1, *steps], DT_MAX).astype(np.float32))
    assert tape.dt[ROWS] == DT_MAX and tape.dt[ROWS + 1] == 1  # a night, then a grid step
    assert tape.trade_dates == ("2024-03-04", "2024-03-05", "2024-03-06", "2024-03-07")


def test_fees_follow_the_trade_date_of_a_row(fold):
    env = dataclasses.replace(CONFIG.env, fee_cents=(("2024-01-01", 210), ("2024-03-06", 230)))
    config = dataclasses.replace(CONFIG, env=env)
    tape = load_tape(Path(fold.fold_dir), fold.snapshots, config, "cpu")
    assert tape.market.fee_cents.tolist() == [210] * 2 * ROWS + [230] * 2 * ROWS


def test_features_and_labels_are_those_of_the_fold(fold):
    tape = load(fold)
    columns = {name: torch.from_numpy(stored(fold, tape, name)) for name in features.COLUMNS}
    columns |= {name: x.to(torch.int32) for name, x in columns.items() if not name.startswith("ts")}
    assert torch.equal(tape.raw, features.compute(columns, tape.segment))
    scales = pq.read_table(Path(fold.fold_dir) / "norm" / norm.NORM_FILE)
    z = (tape.raw.double().numpy() - scales["mean"].to_numpy()) / scales["std"].to_numpy()
    assert np.array_equal(tape.features.numpy(), z.clip(-norm.NORM_CLIP, norm.NORM_CLIP).astype(np.float32))
    labels = pa.ipc.open_file(Path(fold.fold_dir) / "labels" / LABELS_FILE).read_all()
    assert tape.labels.dtype == torch.int64
    assert tape.labels.tolist() == [list(row.values()) for row in labels.to_pylist()]
    assert len(set(tape.labels.flatten().tolist())) > 5


@pytest.mark.parametrize("rows", [7, 100, 300, 450])  # 100 and 300 end where segments start, 450 inside one
def test_cuts_change_no_bit(fold, monkeypatch, rows):
    whole = tensors(load(fold))
    monkeypatch.setattr(upload, "PIECE_BYTES", rows * 316)
    monkeypatch.setattr(features, "BLOCK_ROWS", rows)
    for name, x in tensors(load(fold)).items():
        assert x.dtype == whole[name].dtype and torch.equal(x, whole[name]), name


def test_a_row_takes_680_bytes(fold):
    distinct = {x.data_ptr(): x.nbytes for x in tensors(load(fold)).values()}
    assert sum(distinct.values()) == 680 * ROWS * SESSIONS


def _cut(path):
    path.write_bytes(path.read_bytes()[:-50])


def _labels(path, change):
    table = change(pa.ipc.open_file(path).read_all())
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)


@pytest.mark.parametrize(
    ("where", "change", "says"),
    [
        ("snapshots/s1/snapshots.arrow", _cut, r"s1/snapshots\.arrow: not a whole Arrow file"),
        ("snapshots/s1/snapshots.arrow", Path.unlink, r"s1/snapshots\.arrow: no such file"),
        ("folds/fold_0/labels/frd_labels.arrow", _cut, r"frd_labels\.arrow: no labels of horizons \(2, 4, 8\)"),
        ("folds/fold_0/labels/frd_labels.arrow", Path.unlink, r"frd_labels\.arrow: no labels of horizons"),
        (
            "folds/fold_0/labels/frd_labels.arrow",
            lambda p: _labels(p, lambda t: t.drop_columns(["h4"])),
            r"frd_labels\.arrow: no labels of horizons \(2, 4, 8\) \(.*h4",
        ),
        (
            "folds/fold_0/labels/frd_labels.arrow",
            lambda p: _labels(p, lambda t: t.replace_schema_metadata(None)),
            r"frd_labels\.arrow: no labels of horizons .*sigma_step",
        ),
        (
            "folds/fold_0/labels/frd_labels.arrow",
            lambda p: _labels(p, lambda t: t.slice(1)),
            "479 rows of labels for a tape of 480; materialise frd_labels",
        ),
        ("folds/fold_0/norm/feature_norm.parquet", Path.unlink, r"feature_norm\.parquet: no such file"),
    ],
)
def test_what_is_cut_changed_or_missing_is_refused_in_one_line(tmp_path, where, change, says):
    spec = make_fold_on_disk(tmp_path, CONFIG, 3)
    change(tmp_path / where)
    with pytest.raises(FoxhuntError, match=says) as error:
        load(spec)
    assert isinstance(error.value, BadInput) and "\n" not in str(error.value)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no NVIDIA GPU")
@pytest.mark.parametrize("rows", [7, 1 << 18])
def test_a_gpu_holds_the_same_tape(fold, monkeypatch, rows):
    here = tensors(load(fold))
    monkeypatch.setattr(upload, "PIECE_BYTES", rows * 316)
    monkeypatch.setattr(features, "GPU_BLOCK_ROWS", rows)
    there = tensors(load(fold, "cuda"))
    assert {x.device.type for x in there.values()} == {"cuda"} and there.keys() == here.keys()
    for name in here.keys() - {"raw", "features"}:
        assert torch.equal(there[name].cpu(), here[name]), name
    raw = there["raw"].cpu()
    torch.testing.assert_close(raw, here["raw"], rtol=1e-6, atol=1e-6)  # the exp, log1p and sin of another library
    scales = norm.read_norm(Path(fold.fold_dir) / "norm")
    assert torch.equal(there["features"].cpu(), norm.normalise(raw, *scales))
