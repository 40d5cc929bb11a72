"""Databento CSV: what the official client writes of a DBN file decodes to the same records and the same rows."""

from __future__ import annotations

import csv
import json
import zipfile
from collections.abc import Callable
from pathlib import Path

import databento
import numpy as np
import pyarrow as pa
import pytest

from foxhunt_assets.contracts.instruments import UNDEF_PRICE, contract
from foxhunt_assets.errors import BadInput
from foxhunt_assets.market import databento_csv, formats, snapshots
from foxhunt_assets.market.databento_csv import CsvReader
from foxhunt_assets.market.dbn import BATCH, UNDEF_TS, DbnReader
from foxhunt_assets.market.snapshot_folder import open_segments, open_snapshots
from tests.market import made_dbn as made
from tests.market.made_dbn import MS, mbo, mbp

ES = contract("ES")
T0 = made.ns("2024-03-01T15:00:00")
STYLES = [
    {},
    {"pretty_px": False, "pretty_ts": False},
    {"pretty_px": False},
    {"pretty_ts": False},
    {"compression": "zstd"},
]


def mbp_file(folder: Path) -> Path:
    clear = mbp(T0 + 900 * MS, bid=None, ask=None, action="R", side="N")
    clear["price"] = UNDEF_PRICE
    trade = mbp(T0 + 300 * MS, action="T", side="N", flags=0, size=3, lag=274_315)
    trade["ts_in_delta"], trade["sequence"], trade["depth"] = -21, 2**32 - 1, 9
    undefined = mbp(T0 + 950 * MS)
    undefined["ts_event"] = UNDEF_TS
    records = [mbp(T0), trade, mbp(T0 + 300 * MS, flags=130), mbp(T0 + 500 * MS, bid=None), clear, undefined]
    return made.write_mbp(folder / "a.dbn", records)


def mbo_file(folder: Path) -> Path:
    records = [mbo(T0 + i * MS, "A", "B" if i % 2 else "A", 2**63 + i, 20_000 - i % 2, 1 + i) for i in range(6)]
    records += [mbo(T0 + 9 * MS, "T", "N", 0, 20_000, 2, flags=0), mbo(T0 + 10 * MS, "C", "A", 2**63, 20_000, 1)]
    return made.write_mbo(folder / "a.dbn", records)


def to_csv(source: Path, name: str = "a.csv", **style: object) -> Path:
    path = source.with_name(name + (".zst" if style.get("compression") else ""))
    databento.DBNStore.from_file(source).to_csv(path, **style)
    return path


def records_of(reader: DbnReader | CsvReader) -> np.ndarray:
    with reader:
        parts = [batch.copy() for batch in reader.batches()]
        dtype = reader.header.dtype
    return np.concatenate([np.zeros((0, dtype.itemsize), np.uint8), *parts]).view(dtype).ravel()


def edited(path: Path, change: Callable[[list[str], list[list[str]]], tuple[list[str], list[list[str]]]]) -> Path:
    """The file rewritten: header and rows as `change` returns them."""
    with path.open(newline="") as f:
        header, *rows = csv.reader(f)
    header, rows = change(header, rows)
    with path.open("w", newline="") as f:
        csv.writer(f, lineterminator="\n").writerows([header, *rows])
    return path


def dropped(*names: str) -> Callable[[list[str], list[list[str]]], tuple[list[str], list[list[str]]]]:
    def change(header: list[str], rows: list[list[str]]) -> tuple[list[str], list[list[str]]]:
        keep = [n for n, name in enumerate(header) if name not in names]
        return [header[n] for n in keep], [[row[n] for n in keep] for row in rows]

    return change


@pytest.mark.parametrize("style", STYLES, ids=str)
@pytest.mark.parametrize("make", [mbp_file, mbo_file])
def test_records_are_those_of_the_dbn_file(tmp_path: Path, make: Callable[[Path], Path], style: dict) -> None:
    source = make(tmp_path)
    got = CsvReader(to_csv(source, **style))
    assert got.warnings == () and got.header.dataset == "GLBX.MDP3" and got.header.symbols == ("ESH4",)
    assert records_of(got).tobytes() == records_of(DbnReader(source)).tobytes()


@pytest.mark.parametrize("make", [mbp_file, mbo_file])
def test_rows_and_segments_are_those_of_the_dbn_file(tmp_path: Path, make: Callable[[Path], Path]) -> None:
    source = make(tmp_path)
    folders = [tmp_path / "dbn", tmp_path / "csv"]
    reports = []
    for folder, path in zip(folders, (source, to_csv(source)), strict=True):
        folder.mkdir()
        reports.append(snapshots.decode(path, folder, ES, 250))
        snapshots.validate(folder)
    want, got = (open_snapshots(f) for f in folders)
    assert got.num_rows > 0 and got.equals(want)
    assert open_segments(folders[1]).equals(open_segments(folders[0]))
    differs = {name for name in reports[0] if reports[0][name] != reports[1][name]}
    assert differs <= {"version", "start", "end", "source_sha256"}


def test_a_zip_holds_one_csv(tmp_path: Path) -> None:
    source = mbp_file(tmp_path)
    plain = to_csv(source)
    with zipfile.ZipFile(tmp_path / "a.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.write(plain, "inner/a.csv")
        archive.writestr("__MACOSX/._a.csv", "x")
    assert records_of(CsvReader(tmp_path / "a.zip")).tobytes() == records_of(DbnReader(source)).tobytes()
    with zipfile.ZipFile(tmp_path / "two.zip", "w") as archive:
        archive.write(plain, "a.csv")
        archive.write(plain, "b.csv")
    with pytest.raises(BadInput, match=r"two\.zip: 2 CSV files inside"):
        CsvReader(tmp_path / "two.zip")


def test_more_columns_and_another_order_change_nothing(tmp_path: Path) -> None:
    source = mbp_file(tmp_path)
    path = edited(
        to_csv(source),
        lambda header, rows: (
            ["", *header[::-1], "note"],
            [[str(n), *row[::-1], "x, y"] for n, row in enumerate(rows)],
        ),
    )
    assert records_of(CsvReader(path)).tobytes() == records_of(DbnReader(source)).tobytes()


def test_a_second_ts_event_instead_of_ts_recv_is_said(tmp_path: Path) -> None:
    source = mbp_file(tmp_path)
    path = edited(to_csv(source), lambda header, rows: (["ts_event", *header[1:]], rows))
    reader = CsvReader(path)
    assert reader.warnings == (
        "two columns are called ts_event: the last of them is used",
        "no ts_recv column: ts_event taken as the time of receipt",
    )
    got, want = records_of(reader), records_of(DbnReader(source))
    assert (got["ts_event"] == want["ts_event"]).all() and (got["ts_recv"] == want["ts_event"]).all()
    assert not (got["ts_recv"] == want["ts_recv"]).all()


def test_the_report_names_what_was_assumed(tmp_path: Path) -> None:
    source = made.write_mbp(tmp_path / "a.dbn", [mbp(T0 + i * MS) for i in range(3)])
    path = edited(to_csv(source), dropped("ts_recv"))
    report = snapshots.decode(path, tmp_path, ES, 0)
    assert report["warnings"] == ["no ts_recv column: ts_event taken as the time of receipt"]
    assert report["rows"] == 3


def test_columns_that_may_be_missing_are_zero(tmp_path: Path) -> None:
    source = mbp_file(tmp_path)
    path = edited(to_csv(source), dropped("rtype", "depth", "ts_in_delta", "sequence"))
    got, want = records_of(CsvReader(path)), records_of(DbnReader(source))
    for name in ("depth", "ts_in_delta", "sequence"):
        want[name] = 0
    assert got.tobytes() == want.tobytes()


def test_a_blank_price_is_absent_and_not_zero(tmp_path: Path) -> None:
    source = made.write_mbp(tmp_path / "a.dbn", [mbp(T0, bid=None), mbp(T0 + 1, ask=None)])
    levels = records_of(CsvReader(to_csv(source)))["levels"]
    assert (levels["bid_px"][0] == UNDEF_PRICE).all() and (levels["ask_px"][1] == UNDEF_PRICE).all()
    assert not levels["bid_sz"][0].any() and levels["bid_px"][1, 0] == 20_000 * made.TICK


def test_prices_are_exact_at_any_precision(tmp_path: Path) -> None:
    record = mbp(T0)
    exact = [1_170_350_000, 3_906_250, -300_000_000, 1, 2**62]  # 1.17035, 0.00390625, -0.30, 1e-9
    record["levels"]["bid_px"][0, : len(exact)] = exact
    source = made.write_mbp(tmp_path / "a.dbn", [record])
    for style in ({}, {"pretty_px": False}):
        got = records_of(CsvReader(to_csv(source, **style)))
        assert got["levels"]["bid_px"][0, : len(exact)].tolist() == exact


def test_ids_mean_what_their_symbol_column_says_on_each_day(tmp_path: Path) -> None:
    days = [made.date(2024, 3, d) for d in (1, 2, 3)]
    mappings = {"ESH4": [(days[0], days[1], 17_077)], "ESM4": [(days[1], days[2], 17_077)]}
    times = [made.ns("2024-03-01T23:59:59"), made.ns("2024-03-02T00:00:00")]
    source = made.write_mbp(tmp_path / "a.dbn", [mbp(t) for t in times], mappings=mappings)
    header = CsvReader(to_csv(source)).header
    midnight = made.ns("2024-03-02T00:00:00")
    assert [(m.symbol, m.start_ns, m.end_ns) for m in header.mappings] == [
        ("ESH4", made.ns("2024-03-01T00:00:00"), midnight),
        ("ESM4", midnight, made.ns("2024-03-03T00:00:00")),
    ]
    assert (header.start, header.end) == (times[0], times[1] + 1)


def test_without_a_symbol_column_the_symbology_beside_the_file_is_read(tmp_path: Path) -> None:
    path = to_csv(mbp_file(tmp_path), map_symbols=False)
    with pytest.raises(BadInput, match=r"a\.csv: no symbol column and no symbology"):
        CsvReader(path)
    want = [("ESH4", 17_077, made.ns("2024-03-01T00:00:00"), made.ns("2024-03-02T00:00:00"))]
    (tmp_path / "x-symbology.csv").write_text("raw_symbol,instrument_id,date\nESH4,17077,2024-03-01\n")
    got = CsvReader(path).header.mappings
    assert [(m.symbol, m.instrument_id, m.start_ns, m.end_ns) for m in got] == want
    parts = [{"d0": "2024-03-01", "d1": "2024-03-02", "s": "17077"}, {"d0": "2024-03-02", "d1": "2024-03-02", "s": "9"}]
    (tmp_path / "symbology.json").write_text(json.dumps({"result": {"ESH4": parts}}))
    got = CsvReader(path).header.mappings
    assert [(m.symbol, m.instrument_id, m.start_ns, m.end_ns) for m in got] == want


def test_a_long_file_comes_in_batches_of_the_right_size(tmp_path: Path) -> None:
    records = np.repeat(mbo(T0, "A", "B", 1, 20_000, 1), 3 * BATCH)
    records["sequence"] = np.arange(len(records))
    source = made.write_mbo(tmp_path / "a.dbn", [records])
    with CsvReader(to_csv(source)) as reader:
        parts = [batch.copy() for batch in reader.batches()]
    assert max(len(p) for p in parts) <= BATCH
    assert np.concatenate(parts)[1:].tobytes() == records.tobytes()  # the first is the clear


def lines_of(path: Path) -> list[str]:
    return path.read_text().splitlines()


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda lines: "\n".join(lines), "last line has no end"),
        (lambda lines: "\n".join([*lines[:-1], lines[-1][:60]]) + "\n", "Expected 74 columns"),
        (lambda lines: "\n".join(lines).replace(",T,", ",TT,") + "\n", "row 1: action 'TT' is not one letter"),
        (lambda lines: "\n".join(lines).replace(",T,", ",,") + "\n", "row 1: action None is not one letter"),
        (lambda lines: "\n".join(lines).replace(",20,", ",9999999999,") + "\n", "does not fit 4 bytes"),
        (lambda lines: "\n".join(lines).replace(",10,1,", ",160,1,") + "\n", "row 0: rtype is not 10"),
        (lambda lines: "\n".join(lines).replace("5000.250000000", "5000.25x") + "\n", "5000.25x"),
        (lambda lines: "\n".join(lines).replace("5000.250000000", "5000.2500000001") + "\n", "Rescaling Decimal"),
        (lambda lines: "\n".join(lines).replace("bid_px_03", "bid") + "\n", "no column bid_px_03"),
        (lambda lines: "\n".join(lines).replace("ask_px_00", "size") + "\n", "two columns are called 'size'"),
        (lambda lines: "\n".join([*lines[:-1], lines[-1].replace("ESH4", "ESM4")]) + "\n", "ESH4 and ESM4 on one day"),
        (lambda lines: "", "empty file"),
        (lambda lines: "1,2,3\n4,5,6\n", "names no columns"),
        (lambda lines: "open,high,low,close\n1,2,3,4\n", "no book schema"),
        (lambda lines: lines[0].replace("_01", "_1").replace("_09", "_9") + "\n", "mbp-1 holds one book level"),
    ],
)  # fmt: skip
def test_damage_is_refused_with_its_place(tmp_path: Path, damage: Callable[[list[str]], str], words: str) -> None:
    path = to_csv(mbp_file(tmp_path))
    path.write_text(damage(lines_of(path)))
    with pytest.raises(BadInput, match=words) as error:
        records_of(CsvReader(path))
    assert str(path) in str(error.value) and "\n" not in str(error.value)


def test_a_cut_zstd_or_zip_file_is_refused(tmp_path: Path) -> None:
    packed = to_csv(mbp_file(tmp_path), compression="zstd")
    whole = packed.read_bytes()
    for length in (len(whole) - 1, len(whole) // 2, 30):
        packed.write_bytes(whole[:length])
        with pytest.raises(BadInput, match="cut"):
            records_of(CsvReader(packed))
    with zipfile.ZipFile(tmp_path / "a.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.write(to_csv(tmp_path / "a.dbn"), "a.csv")
    whole = (tmp_path / "a.zip").read_bytes()
    (tmp_path / "a.zip").write_bytes(whole[:-10])
    with pytest.raises(BadInput, match="cut or damaged"):
        CsvReader(tmp_path / "a.zip")
    at = whole.index(b"a.csv") + 40
    (tmp_path / "a.zip").write_bytes(whole[:at] + bytes([whole[at] ^ 0xFF]) + whole[at + 1 :])
    with pytest.raises(BadInput, match="damaged"):
        records_of(CsvReader(tmp_path / "a.zip"))


def test_a_header_without_rows_is_an_empty_file(tmp_path: Path) -> None:
    path = to_csv(mbp_file(tmp_path))
    path.write_text(lines_of(path)[0] + "\n")
    reader = CsvReader(path)
    assert reader.header.mappings == () and len(records_of(reader)) == 0


def test_another_publisher_is_another_dataset(tmp_path: Path) -> None:
    path = to_csv(mbp_file(tmp_path))
    path.write_text(path.read_text().replace(",10,1,", ",10,2,"))
    assert CsvReader(path).header.dataset == "XNAS.ITCH"
    with pytest.raises(BadInput, match=r"dataset XNAS\.ITCH; only GLBX\.MDP3"):
        snapshots.decode(path, tmp_path, ES, 250)


def test_real_times_with_a_space_and_an_offset(real_data: Path) -> None:
    got = records_of(CsvReader(real_data / "blockhouse-frog/FROG.zip"))
    assert len(got) == 33_286
    assert got["ts_event"][0] == made.ns("2025-04-03T13:30:00") + 125_395_235
    assert int(got["ts_recv"].max()) // MS == made.ns("2025-04-03T19:59:59") // MS + 997
    first = got["levels"][0]
    assert first["bid_px"][0] == 30_100_000_000 and first["ask_px"][1] == 32_640_000_000
    assert int(((got["flags"] & 128) == 0).sum()) == 1_569
    spread = got["levels"]["ask_px"][:, 0] - got["levels"]["bid_px"][:, 0]
    assert (spread % 10_000_000 == 0).all()


def test_the_real_csv_and_its_zstd_form_hold_the_same_records(real_data: Path) -> None:
    folder = real_data / "alegitdude-Backtester"
    plain, packed = (records_of(CsvReader(folder / f"futures_mbo.csv{end}")) for end in ("", ".zst"))
    assert plain.tobytes() == packed.tobytes() and len(plain) == 20
    assert plain["price"][:2].tolist() == [UNDEF_PRICE, 4_770_000_000_000] and plain["flags"][0] == 40


def test_memory_does_not_grow_with_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The parser reads some 36 blocks ahead, whatever the file; small blocks make that visible on a small file."""
    monkeypatch.setattr(databento_csv, "_BLOCK", 2**16)
    path = to_csv(made.write_mbp(tmp_path / "a.dbn", [np.repeat(mbp(T0), 10_000)]))
    header, _, body = path.read_text().partition("\n")
    peaks = []
    for times in (1, 3):
        path.write_text(header + "\n" + body * times)
        with CsvReader(path) as reader:
            peaks.append(max(pa.total_allocated_bytes() for _ in reader.batches()))
    assert path.stat().st_size > 12 * 2**20
    assert max(peaks) < 4 * 2**20 and peaks[1] < 1.2 * peaks[0]


def test_a_name_tells_records_from_symbology() -> None:
    names = ["a.dbn", "a.dbn.zst", "a.csv", "a.csv.zst", "a.zip", "x-symbology.csv", "symbology.json", "manifest.json"]
    assert [formats.is_source(Path(name)) for name in names] == [True] * 5 + [False] * 3
