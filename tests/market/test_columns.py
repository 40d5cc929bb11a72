"""Where the columns of an Arrow file lie, against pyarrow; reads of pieces, and of files that changed."""

import os

import numpy as np
import pyarrow as pa
import pytest

from foxhunt_assets.errors import ContractBroken
from foxhunt_assets.market import columns
from foxhunt_assets.market.columns import ColumnFile

SCHEMA = pa.schema([("a", pa.int64()), ("b", pa.int8()), ("l", pa.list_(pa.int32(), 10)), ("z", pa.uint32())])


def made(n, seed=0):
    rng = np.random.default_rng(seed)
    cells = pa.array(rng.integers(-(2**31), 2**31, 10 * n).astype(np.int32))
    lists = pa.FixedSizeListArray.from_arrays(cells, type=SCHEMA.field("l").type)
    bytes_ = pa.array(rng.integers(-128, 128, n).astype(np.int8))
    return pa.table([pa.array(np.arange(n)), bytes_, lists, pa.array(np.arange(n, dtype=np.uint32))], schema=SCHEMA)


def write(path, table, cuts, **options):
    how = pa.ipc.IpcWriteOptions(**options)
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema, options=how) as writer:
        for a, b in zip([0, *cuts], [*cuts, table.num_rows]):
            writer.write_batch(table.slice(a, b - a).combine_chunks().to_batches()[0] if b > a else _empty())
    return path


def _empty():
    return pa.RecordBatch.from_arrays([pa.array([], f.type) for f in SCHEMA], schema=SCHEMA)


def values(table, name):
    column = table[name].combine_chunks()
    if name != "l":
        return column.to_numpy()
    return column.flatten().to_numpy().reshape(-1, 10)


def read(file, names, start, end, rows):
    """The columns by pieces, the bounds of the pieces."""
    out, bounds = [], []
    for a, b, fill in file.pieces(names, start, end, rows):
        part = [np.zeros(b - a, file.stored(name)) for name in names]
        fill([p.reshape(-1).view(np.uint8).data for p in part])
        out.append(part)
        bounds.append((a, b))
    return [np.concatenate(c) for c in zip(*out)], bounds


CUTS = {
    "one batch": [],
    "equal batches": list(range(64, 1_000, 64)),
    "padding between columns": list(range(33, 1_000, 33)),
    "all different": [1, 3, 6, 100, 101, 105, 300, 640],
    "batches without rows": [0, 64, 64, 128, 500, 500],
}


@pytest.mark.parametrize("cuts", CUTS.values(), ids=CUTS)
@pytest.mark.parametrize("rows", [1, 50, 64, 200, 5_000])
@pytest.mark.parametrize("names", [["a", "b", "l", "z"], ["z", "b"], ["l"]])
def test_pieces_are_the_rows(tmp_path, cuts, rows, names):
    table = made(1_000)
    file = ColumnFile(write(tmp_path / "f", table, cuts), SCHEMA)
    assert file.n_rows == 1_000
    for start, end in ((0, 1_000), (37, 611), (64, 128)):
        got, bounds = read(file, names, start, end, rows)
        for name, column in zip(names, got):
            assert column.tolist() == values(table, name)[start:end].tolist(), name
            assert np.concatenate(list(file.slices(name, start, end))).tolist() == column.tolist()
        assert [a for a, _ in bounds] == [start, *(b for _, b in bounds[:-1])] and bounds[-1][1] == end
        assert max(b - a for a, b in bounds) <= rows
    assert list(file.pieces(names, 5, 5, rows)) == [] == list(file.slices(names[0], 5, 5))


def test_pieces_end_with_batches_where_they_can(tmp_path):
    file = ColumnFile(write(tmp_path / "f", made(1_000), [300, 400, 500]), SCHEMA)
    ends = [b for _, b, _ in file.pieces(["a"], 0, 1_000, 220)]
    assert ends == [220, 400, 500, 720, 940, 1_000]


def test_one_call_reads_what_lies_together(tmp_path, monkeypatch):
    """Two batches of two runs each, a column of 128 bytes and the metadata between them; rows leave no padding."""
    calls, preadv = [], os.preadv
    monkeypatch.setattr(os, "preadv", lambda fd, views, at: calls.append(len(views)) or preadv(fd, views, at))
    table = made(256)
    file = ColumnFile(write(tmp_path / "f", table, [128]), SCHEMA)
    for gap, found in ((1 << 18, [9]), (128, [4, 4]), (127, [1, 2, 1, 2])):
        calls.clear()
        monkeypatch.setattr(columns, "_GAP", gap)
        got, _ = read(file, ["a", "l", "z"], 0, 256, 256)
        assert calls == found
        for name, column in zip(("a", "l", "z"), got):
            assert column.tolist() == values(table, name).tolist()
    calls.clear()
    monkeypatch.setattr(columns, "_IOVECS", 1)
    read(file, ["a", "l", "z"], 0, 256, 256)
    assert calls == [1] * 6


def test_a_call_that_returns_early_is_continued(tmp_path, monkeypatch):
    preadv = os.preadv
    monkeypatch.setattr(os, "preadv", lambda fd, views, at: preadv(fd, [views[0][:7]], at))
    table = made(100)
    got, _ = read(ColumnFile(write(tmp_path / "f", table, [64]), SCHEMA), ["b", "l"], 0, 100, 100)
    assert got[0].tolist() == values(table, "b").tolist() and got[1].tolist() == values(table, "l").tolist()


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda p: os.truncate(p, 64), "f: cut while it was read; materialise it again"),
        (lambda p: os.utime(p, ns=(0, 1)), "f: changed while it was read; start again"),
        (lambda p: p.open("ab").write(b"x"), "f: changed while it was read; start again"),
    ],
)
def test_a_file_that_changes_under_the_read_is_refused(tmp_path, change, says):
    path = write(tmp_path / "f", made(100_000), [])
    file = ColumnFile(path, SCHEMA)
    pieces = file.pieces(["l"], 0, 100_000, 50_000)
    outs = [np.zeros((50_000, 10), np.int32).reshape(-1).view(np.uint8).data]
    next(pieces)[2](outs)
    change(path)
    with pytest.raises(ContractBroken, match=says):
        next(pieces)[2](outs)


def test_a_file_replaced_by_another_is_read_as_it_was(tmp_path):
    path, table = write(tmp_path / "f", made(100), []), made(100)
    file = ColumnFile(path, SCHEMA)
    os.replace(write(tmp_path / "g", made(100, seed=1), []), path)
    assert read(file, ["b"], 0, 100, 60)[0][0].tolist() == values(table, "b").tolist()


def test_a_compressed_file_is_refused(tmp_path):
    file = ColumnFile(write(tmp_path / "f", made(5_000), [2_500], compression="zstd"), SCHEMA)
    with pytest.raises(ContractBroken, match="f: column a is compressed or cut; materialise it again"):
        next(file.pieces(["a", "b"], 0, 5_000, 100))
