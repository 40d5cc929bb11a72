"""The DBN reader: every field against the official client, and every way a file can be wrong."""

from __future__ import annotations

from pathlib import Path

import databento
import databento_dbn
import numpy as np
import pytest

from foxhunt_assets.errors import BadInput
from foxhunt_assets.market import dbn
from tests.market import made_dbn as made

T0 = made.ns("2024-03-01T15:00:00")
REAL_BOOKS = [
    "dbn/test_data.mbp-10.v1.dbn.zst",
    "dbn/test_data.mbp-10.v3.dbn.zst",
    "dbn/test_data.mbo.v1.dbn.zst",
    "dbn/test_data.mbo.v3.dbn",
    "databento-python/GLBX.MDP3__test_data.mbp-10.dbn.zst",
    "databento-python/NDEX.IMPACT__test_data.mbp-10.dbn.zst",
    "databento-python/NDEX.IMPACT__test_data.mbo.dbn.zst",
    "nautilus_trader/esh4-glbx-mdp3-20231225.mbo.dbn.zst",  # two zstd frames
]


def read(path: Path) -> np.ndarray:
    with dbn.DbnReader(path) as reader:
        parts = [batch.copy() for batch in reader.batches()]
        dtype = reader.header.dtype
    return np.concatenate([np.zeros((0, dtype.itemsize), np.uint8), *parts]).view(dtype).ravel()


def ticks_apart(n: int) -> list[np.ndarray]:
    return [made.mbp(T0 + i, bid=20_000 + i % 50, ask=20_060 + i % 50) for i in range(n)]


@pytest.mark.parametrize("name", REAL_BOOKS)
def test_every_field_of_a_real_file_equals_the_official_client(real_data: Path, name: str) -> None:
    ours, store = read(real_data / name), databento.DBNStore.from_file(real_data / name)
    theirs = store.to_ndarray()
    assert len(ours) == len(theirs) > 0
    for field in ours.dtype.names:
        if field != "levels":
            assert (ours[field] == theirs[field].view(ours[field].dtype)).all(), field
    for k in range(10 if "levels" in ours.dtype.names else 0):
        for field in ("bid_px", "ask_px", "bid_sz", "ask_sz", "bid_ct", "ask_ct"):
            assert (ours["levels"][field][:, k] == theirs[f"{field}_0{k}"]).all(), (field, k)


@pytest.mark.parametrize("version", [1, 2, 3])
@pytest.mark.parametrize("suffix", ["dbn", "dbn.zst"])
def test_versions_one_to_three_hold_the_same_records(tmp_path: Path, version: int, suffix: str) -> None:
    records = ticks_apart(5)
    path = made.write_mbp(tmp_path / f"a.{suffix}", records, version=version)
    assert dbn.read_header(path).version == version
    assert read(path).tobytes() == np.concatenate(records).tobytes()


def test_batches_of_a_long_file_follow_on(tmp_path: Path) -> None:
    records = np.repeat(made.mbp(T0), 2_000)
    records["sequence"] = np.arange(len(records))
    path = made.write_mbp(tmp_path / "a.dbn.zst", [records])
    with dbn.DbnReader(path) as reader:
        lengths = [len(batch) for batch in reader.batches()]
    assert lengths == [712, 712, 576], "as many whole records as 256 KiB hold, and the rest"
    assert (read(path)["sequence"] == np.arange(len(records))).all()


def test_all_frames_are_read(tmp_path: Path) -> None:
    header = made.metadata(databento_dbn.Schema.MBP_10)
    first, second = np.concatenate(ticks_apart(3)), np.concatenate(ticks_apart(4))
    path = made.write(tmp_path / "a.dbn.zst", [header, first.tobytes(), second.tobytes()])
    assert read(path).tobytes() == first.tobytes() + second.tobytes()


def test_empty_and_skippable_frames_between_others_are_passed_over(tmp_path: Path) -> None:
    header, records = made.metadata(databento_dbn.Schema.MBP_10), np.concatenate(ticks_apart(3)).tobytes()
    path = made.write(tmp_path / "a.dbn.zst", [header, b"", records])
    other = made.write(tmp_path / "b.dbn.zst", [b"", records])
    path.write_bytes(path.read_bytes() + b"\x50\x2a\x4d\x18\x03\x00\x00\x00abc" + other.read_bytes())
    assert read(path).tobytes() == records + records
    path.write_bytes(path.read_bytes() + b"more")
    with pytest.raises(BadInput, match="no zstd frame where one should start"):
        read(path)


def test_records_with_a_send_time_are_eight_bytes_longer(tmp_path: Path) -> None:
    plain = np.concatenate(ticks_apart(46))  # 46 x 376 is a multiple of 368: the wrong stride leaves no remainder
    wide = np.zeros(
        46, np.dtype([*((n, dbn.MBP10_DTYPE.fields[n][0]) for n in dbn.MBP10_DTYPE.names), ("ts_out", "u8")])
    )
    for name in dbn.MBP10_DTYPE.names:
        wide[name] = plain[name]
    wide["length"], wide["ts_out"] = 94, np.arange(46)
    path = made.write(tmp_path / "a.dbn", [made.metadata(databento_dbn.Schema.MBP_10, ts_out=True), wide.tobytes()])
    got = read(path)
    assert len(got) == 46 and got.dtype.itemsize == 376
    assert (got["ts_event"] == plain["ts_event"]).all() and (got["ts_out"] == np.arange(46)).all()


def test_no_cut_of_a_compressed_file_is_silently_short(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    records = np.concatenate(ticks_apart(600))
    records["sequence"] = rng.integers(0, 2**32, 600)  # keeps the file from shrinking to one block
    whole = made.write_mbp(tmp_path / "a.dbn.zst", [records]).read_bytes()
    cut = tmp_path / "cut.dbn.zst"
    for length in [*range(4, len(whole), len(whole) // 60), len(whole) - 1]:
        cut.write_bytes(whole[:length])
        with pytest.raises(BadInput, match="cut"):
            read(cut)


@pytest.mark.parametrize("length", [5, 100, -1, -200])
def test_a_cut_plain_file_is_refused(tmp_path: Path, length: int) -> None:
    whole = made.write_mbp(tmp_path / "a.dbn", ticks_apart(3)).read_bytes()
    (tmp_path / "a.dbn").write_bytes(whole[:length])
    with pytest.raises(BadInput, match=r"a\.dbn: .*(cut|no DBN header)"):
        read(tmp_path / "a.dbn")


def test_a_damaged_frame_is_refused(tmp_path: Path) -> None:
    path = made.write_mbp(tmp_path / "a.dbn.zst", ticks_apart(300))
    raw = bytearray(path.read_bytes())
    raw[-2] ^= 0xFF  # the checksum
    path.write_bytes(raw)
    with pytest.raises(BadInput, match="cut or damaged"):
        read(path)


@pytest.mark.parametrize("version", [0, 4, 255])
def test_other_versions_are_refused(tmp_path: Path, version: int) -> None:
    raw = bytearray(made.write_mbp(tmp_path / "a.dbn", ticks_apart(1)).read_bytes())
    raw[3] = version
    (tmp_path / "a.dbn").write_bytes(raw)
    with pytest.raises(BadInput, match=f"DBN version {version}, this reader knows 1 to 3"):
        dbn.read_header(tmp_path / "a.dbn")


def test_empty_missing_and_foreign_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "empty.dbn").touch()
    (tmp_path / "text.dbn").write_text("ts_event,price\n1,2\n")
    for name, words in (("empty.dbn", "empty file"), ("text.dbn", "no DBN header"), ("none.dbn", "no such file")):
        with pytest.raises(BadInput, match=f"{name}: .*{words}"):
            dbn.read_header(tmp_path / name)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("dbn/test_data.mbp-10.dbz", "DBZ"),
        ("dbn/test_data.definition.v1.dbn.frag", "fragment"),
        ("dbn/multi-frame.definition.v1.dbn.frag.zst", "fragment"),
        ("dbn/test_data.mbp-1.v3.dbn.zst", "schema mbp-1 .*download schema mbp-10"),
        ("dbn/test_data.trades.v1.dbn.zst", "schema trades "),
        ("dbn/test_data.tbbo.v3.dbn.zst", "schema tbbo "),
        ("dbn/test_data.ohlcv-1d.v3.dbn.zst", "schema ohlcv-1d "),
        ("dbn/test_data.status.v3.dbn.zst", "schema status "),
        ("dbn/test_data.statistics.v3.dbn.zst", "schema statistics "),
        ("dbn/test_data.definition.v1.dbn.zst", "schema definition "),
        ("nautilus_trader/futures_bbo-1m_2024-05-09T09-55_2024-05-09T10-05.dbn.zst", "schema bbo-1m "),
    ],
)
def test_real_files_of_other_kinds_are_refused_by_name(real_data: Path, name: str, words: str) -> None:
    with pytest.raises(BadInput, match=words) as error:
        dbn.DbnReader(real_data / name)
    assert str(real_data / name) in str(error.value) and "\n" not in str(error.value)


def test_mixed_schemas_are_refused(tmp_path: Path) -> None:
    raw = bytearray(made.write_mbp(tmp_path / "a.dbn", ticks_apart(1)).read_bytes())
    raw[24:26] = b"\xff\xff"  # schema: none
    (tmp_path / "a.dbn").write_bytes(raw)
    with pytest.raises(BadInput, match="mixed schemas"):
        dbn.DbnReader(tmp_path / "a.dbn")


def test_mappings_are_half_open_utc_days_and_empty_ones_are_dropped(tmp_path: Path) -> None:
    a, b, c = (made.date(2024, 3, d) for d in (1, 5, 9))
    mappings = {"ESH4": [(a, b, 17077), (b, b, 1)], "ESH5": [(b, c, 17077)]}
    path = made.write_mbp(tmp_path / "a.dbn", ticks_apart(1), mappings=mappings)
    got = dbn.read_header(path).mappings
    edge = made.ns("2024-03-05T00:00:00")
    assert [(m.symbol, m.start_ns, m.end_ns) for m in got] == [
        ("ESH4", made.ns("2024-03-01T00:00:00"), edge),
        ("ESH5", edge, made.ns("2024-03-09T00:00:00")),
    ]


def test_parent_symbology_of_a_real_header(real_data: Path) -> None:
    header = dbn.read_header(real_data / "nautilus_trader/definition-glbx-es-futspread.dbn.zst")
    assert header.symbols == ("ES.FUT",) and len({m.symbol for m in header.mappings}) == 41
    assert next(m.instrument_id for m in header.mappings if m.symbol == "ESH4") == 17077
