"""Tapes read from memory-mapped files: exact values across batches and sources, copies, identity of content."""

import tracemalloc

import numpy as np
import pyarrow as pa
import pytest
import torch

from foxhunt_assets.contracts.tables import SNAPSHOTS
from foxhunt_assets.errors import BadInput, ContractBroken
from foxhunt_assets.market import folds, tape, upload
from foxhunt_assets.market.folds import TapeSource
from tests.market.made_snapshots import random_columns, segment, write_folder

NAMES = [c.name for c in SNAPSHOTS]


@pytest.fixture
def two(tmp_path):
    a, b = random_columns(100, 1), random_columns(60, 2)
    write_folder(tmp_path / "a", a, [33, 34, 100], [segment(0, 0, 100)])
    write_folder(tmp_path / "b", b, [60], [segment(0, 5, 60)])
    return tmp_path, a, b


def test_columns_are_the_rows_of_the_sources_end_to_end(two):
    folder, a, b = two
    sources = [TapeSource("a", 20, 90, ""), TapeSource("b", 0, 60, "")]
    read = tape.read_columns(sources, folder.joinpath, NAMES)
    assert list(read) == NAMES
    for column in SNAPSHOTS:
        want = np.concatenate((a[column.name][20:90], b[column.name]))
        assert np.array_equal(read[column.name].numpy(), want), column.name
        assert read[column.name].is_contiguous()
    assert read["action"].dtype == torch.int32 and read["instrument_id"].dtype == torch.int64
    assert read["bid_px"].dtype == torch.int32 and read["ts"].dtype == torch.int64
    assert int(read["instrument_id"][0]) == 2**32 - 5


@pytest.mark.parametrize("rows", [1, 7, 13, 33, 50, 70])
def test_pieces_change_no_bit(two, monkeypatch, rows):
    """Pieces end inside batches (33, 34, 100), at their ends, and span all of them."""
    folder, a, b = two
    monkeypatch.setattr(upload, "PIECE_BYTES", rows * 348 + 64 * len(NAMES))
    read = tape.read_columns([TapeSource("a", 20, 90, ""), TapeSource("b", 0, 60, "")], folder.joinpath, NAMES)
    for name in NAMES:
        assert np.array_equal(read[name].numpy(), np.concatenate((a[name][20:90], b[name]))), name


def test_the_host_holds_pieces_and_no_column(tmp_path, monkeypatch):
    n = 240_000  # a column of 9.6 MB; what a thread reads gaps into is 256 KiB whatever the rows
    columns = random_columns(n, 4)
    write_folder(tmp_path / "k", columns, [n], [segment(0, 0, n)])  # one batch: a copy of it would be a column
    monkeypatch.setattr(upload, "PIECE_BYTES", 20_000)
    tracemalloc.start()
    try:
        read = tape.read_columns([TapeSource("k", 0, n, "")], tmp_path.joinpath, ["ts", "bid_px"])
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert np.array_equal(read["bid_px"].numpy(), columns["bid_px"])
    assert peak < columns["bid_px"].nbytes / 4


def test_tensors_outlive_the_file(two):
    folder, a, _ = two
    read = tape.read_columns([TapeSource("a", 0, 100, "")], folder.joinpath, ["bid_sz"])["bid_sz"]
    path = folder / "a" / "snapshots.arrow"
    with path.open("r+b") as f:
        f.write(b"\0" * path.stat().st_size)
    assert np.array_equal(read.numpy(), a["bid_sz"])


def test_content_is_that_of_the_rows_and_not_of_the_batches(two):
    folder, a, _ = two
    write_folder(folder / "rebatched", a, [50, 100], [segment(0, 0, 100)])
    one, other = tape.Snapshots(folder / "a"), tape.Snapshots(folder / "rebatched")
    assert one.sha256(10, 80) == other.sha256(10, 80)
    assert one.sha256(10, 80) != one.sha256(10, 81) != one.sha256(11, 81)
    a["ofi"][79, 9] += 1
    write_folder(folder / "changed", a, [100], [segment(0, 0, 100)])
    assert tape.Snapshots(folder / "changed").sha256(10, 80) != one.sha256(10, 80)
    assert tape.Snapshots(folder / "changed").sha256(10, 79) == one.sha256(10, 79)


def test_source_info_reads_the_segment_table(two):
    folder, a, b = two
    info = folds.source_info("b", folder / "b")
    assert info.n_rows == 60 and not info.synthetic
    assert info.spans == ((int(b["ts"][5]), int(b["ts"][59])),)
    assert info.segments[0].row_start == 5 and info.segments[0].symbol == "ESM4"
    assert info.content(5, 60) == tape.Snapshots(folder / "b").sha256(5, 60)
    write_folder(folder / "x-synthetic-y", a, [100], [segment(0, 0, 60), segment(1, 50, 100)])
    with pytest.raises(ContractBroken, match=r"segment 1: rows 50..100 do not follow 60"):
        folds.source_info("x-synthetic-y", folder / "x-synthetic-y")
    write_folder(folder / "x-synthetic-y", a, [100], [segment(0, 0, 60)])
    assert folds.source_info("x-synthetic-y", folder / "x-synthetic-y").synthetic


def test_a_fold_of_real_folders_reads_back(tmp_path):
    columns = random_columns(600, 3)
    write_folder(tmp_path / "k", columns, [600], [segment(0, 4, 300), segment(1, 310, 600)])
    info = folds.source_info("k", tmp_path / "k")
    spec = folds.make_fold(
        0, 1, [info], root="ES", grid_ms=250, window=4, latency_steps=1, horizons=(10,), embargo_rows=0
    )
    rows = tape.segment_of_rows(spec)
    assert rows.dtype == torch.int32 and rows.shape == (596,)
    assert rows.tolist() == [0] * 296 + [-1] * 10 + [1] * 290
    read = tape.read_columns(spec.sources, tmp_path.joinpath, ["ts"])["ts"]
    assert np.array_equal(read.numpy(), columns["ts"][4:])


def test_refusals(two):
    folder, _, _ = two
    with pytest.raises(BadInput, match="no snapshot column 'bid_size'"):
        tape.read_columns([], folder.joinpath, ["bid_size"])
    with pytest.raises(BadInput, match=r"nothing/snapshots\.arrow: no such file"):
        tape.read_columns([TapeSource("nothing", 0, 1, "")], folder.joinpath, ["ts"])
    with pytest.raises(ContractBroken, match=r"rows 0\.\.61 asked for, 60 there"):
        tape.read_columns([TapeSource("b", 0, 61, "")], folder.joinpath, ["ts"])
    with pytest.raises(ContractBroken, match=r"b: rows 61\.\.60 asked for"):
        tape.read_columns([TapeSource("b", 0, 60, ""), TapeSource("b", 61, 60, "")], folder.joinpath, ["ts"])


def _batches_lost(whole):
    """The footer stands, and says batches lie where there are none."""
    return whole[:8] + bytes(len(whole) // 2) + whole[8 + len(whole) // 2 :]


@pytest.mark.parametrize("change", [lambda w: w[:-100], lambda w: w[: len(w) // 2], lambda w: b"", _batches_lost])
def test_a_cut_or_overwritten_file_is_refused_in_one_line(two, change):
    folder, _, _ = two
    path = folder / "a" / "snapshots.arrow"
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(BadInput, match=r"a/snapshots\.arrow: not a whole Arrow file \(.+\); materialise") as error:
        tape.read_columns([TapeSource("a", 0, 1, "")], folder.joinpath, ["ts"])
    assert "\n" not in str(error.value)


def _rewrite(folder, table):
    path = folder / "a" / "snapshots.arrow"
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)


def test_a_file_of_other_columns_is_refused(two):
    folder, _, _ = two
    whole = pa.ipc.open_file(folder / "a" / "snapshots.arrow").read_all()
    at = whole.schema.get_field_index("buy_lots")
    _rewrite(folder, whole.drop_columns(["buy_lots"]))
    with pytest.raises(ContractBroken, match="column buy_lots of type int32 is not there"):
        tape.Snapshots(folder / "a")
    _rewrite(folder, whole.set_column(at, "buy_lots", whole["buy_lots"].cast(pa.int64())))
    with pytest.raises(ContractBroken, match="column buy_lots of type int32 is not there"):
        tape.Snapshots(folder / "a")
    lots = pa.array([None, *whole["buy_lots"].to_pylist()[1:]], pa.int32())
    _rewrite(folder, whole.set_column(at, "buy_lots", lots))
    with pytest.raises(ContractBroken, match="column buy_lots has missing values"):
        tape.read_columns([TapeSource("a", 0, 100, "")], folder.joinpath, ["ts", "buy_lots"])
