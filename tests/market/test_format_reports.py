"""What others reported of readers of these formats, as tests of ours: nautilus_trader, databento-python, -cpp and dbn,
java-cme-mdp3-handler, python-zstandard. Each says what went wrong there; what must be right here follows."""

from __future__ import annotations

import dataclasses
import io
import warnings
from pathlib import Path
from typing import Any

import databento
import databento_dbn
import numpy as np
import pytest
import zstandard

from foxhunt_assets.contracts.instruments import UNDEF_PRICE, ContractFacts, contract
from foxhunt_assets.contracts.tables import ABSENT_PX
from foxhunt_assets.errors import BadInput
from foxhunt_assets.market import dbn, inspect, snapshots
from foxhunt_assets.market.frames import zstd_frames
from foxhunt_assets.market.snapshot_folder import open_snapshots
from tests.market import made_dbn as made
from tests.market.made_dbn import MS, mbo, mbp

ES = contract("ES")
T0 = made.ns("2024-03-01T15:00:00")


def rows_of(path: Path, facts: ContractFacts = ES) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Report and columns on the event clock."""
    out = path.parent / "out"
    out.mkdir(exist_ok=True)
    report = snapshots.decode(path, out, facts, snapshots.EVENT_CLOCK)
    table = open_snapshots(out)
    return report, {name: np.array(table[name].to_pylist()) for name in table.column_names}


def records_of(path: Path) -> np.ndarray:
    with dbn.DbnReader(path) as reader:
        parts = [batch.copy() for batch in reader.batches()]
        dtype = reader.header.dtype
    return np.concatenate([np.zeros((0, dtype.itemsize), np.uint8), *parts]).view(dtype).ravel()


def header_of_272_bytes() -> bytes:
    made_meta = databento_dbn.Metadata(
        dataset="GLBX.MDP3", schema=databento_dbn.Schema.MBP_10, start=T0, end=T0 + 1,
        stype_in=databento_dbn.SType.RAW_SYMBOL, stype_out=databento_dbn.SType.INSTRUMENT_ID, symbols=["S0", "S1"],
        partial=[], not_found=[], version=3, ts_out=False, mappings=[],
    )  # fmt: skip
    return bytes(made_meta)


def test_a_cut_that_other_readers_take_for_a_shorter_file_is_refused(tmp_path: Path) -> None:
    """Ten zstd blocks of 131,072 bytes less this header are exactly 3,561 records: the cut leaves no remainder."""
    header = header_of_272_bytes()
    assert len(header) == 272 and (10 * 131_072 - 272) % 368 == 0
    records = np.repeat(mbp(T0), 9_000)
    records["sequence"] = np.random.default_rng(7).integers(0, 2**32, len(records))
    whole = made.write(tmp_path / "a.dbn.zst", [header + records.tobytes()]).read_bytes()
    path, silent = tmp_path / "cut.dbn.zst", 0
    for length in np.linspace(len(whole) // 3, len(whole) // 2, 40).astype(int).tolist():
        path.write_bytes(whole[:length])
        with zstandard.ZstdDecompressor().stream_reader(io.BytesIO(whole[:length])) as reader:
            silent += (len(reader.read(len(records) * 368 + 272)) - 272) == 3_561 * 368
        with pytest.raises(BadInput, match="cut"):
            records_of(path)
    assert silent > 0, "no cut fell into the block that tells nothing"


def test_a_send_time_that_the_official_array_overlooks_is_read(tmp_path: Path) -> None:
    fields = [(name, dbn.MBP10_DTYPE[name]) for name in dbn.MBP10_DTYPE.names or ()]
    wide = np.zeros(46, np.dtype([*fields, ("ts_out", "u8")]))
    plain = np.concatenate([mbp(T0 + i) for i in range(46)])
    for name in plain.dtype.names:
        wide[name] = plain[name]
    wide["length"] = 94
    path = made.write(tmp_path / "a.dbn", [made.metadata(databento_dbn.Schema.MBP_10, ts_out=True), wide.tobytes()])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = databento.DBNStore.from_file(path).to_ndarray()
    assert len(theirs) == 47, "46 records of 376 bytes read as 47 of 368: the reason for our own reader"
    assert (records_of(path)["ts_event"] == plain["ts_event"]).all()


def test_a_size_of_zero_is_no_trade(tmp_path: Path) -> None:
    """nautilus_trader 2476: the first record of a snapshot, of size 0, became a trade."""
    nothing = mbp(T0 + 1, action="T", flags=0, size=0)
    report, rows = rows_of(made.write_mbp(tmp_path / "a.dbn", [mbp(T0), nothing, mbp(T0 + 2)]))
    assert report["trades"] == 0 and rows["n_trades"].tolist() == [0, 0]
    assert inspect.inspect(tmp_path / "a.dbn")["trades"] == 0
    clear = mbo(T0, "R", "N", 0, 0, 0, flags=168)
    orders = [clear, mbo(T0 + 1, "A", "B", 1, 20_000, 1), mbo(T0 + 2, "A", "A", 2, 20_001, 1)]
    assert rows_of(made.write_mbo(tmp_path / "b.dbn", orders))[0]["trades"] == 0


@pytest.mark.parametrize(("tick", "price"), [(3_906_250, 3_906_250 * 29_123), (50_000, 1_170_350_000), (5, 15)])
def test_a_fine_tick_is_not_rounded_away(tmp_path: Path, tick: int, price: int) -> None:
    """nautilus_trader 3695 and 3999: a tick of 0.00390625 became 0.00, and 1.17035 became 1.17."""
    facts = dataclasses.replace(ES, tick=tick)
    record = mbp(T0)
    k = np.arange(10)
    record["levels"]["bid_px"], record["levels"]["ask_px"] = price - k * tick, price + (1 + k) * tick
    if tick == 5:  # prices near zero and below it
        record["levels"]["bid_px"] = -5 * (1 + k)
    _, rows = rows_of(made.write_mbp(tmp_path / "a.dbn", [record]), facts)
    assert (rows["bid_px"][0].astype(object) * tick == record["levels"]["bid_px"][0].astype(object)).all()
    assert (rows["ask_px"][0].astype(object) * tick == record["levels"]["ask_px"][0].astype(object)).all()


def test_a_price_between_ticks_is_refused_and_not_rounded(tmp_path: Path) -> None:
    record = mbp(T0)
    record["levels"]["ask_px"][0, 9] += 100_000_000
    with pytest.raises(BadInput, match=r"record 0: a price that is no multiple of the tick 0\.25"):
        rows_of(made.write_mbp(tmp_path / "a.dbn", [record]))


def test_definitions_without_expiry_do_not_stop_the_rest(real_data: Path) -> None:
    """nautilus_trader 3657: one spread without an expiration took the whole file down."""
    facts = inspect.inspect(real_data / "nautilus_trader/definition-glbx-es-futspread.dbn.zst")
    assert facts["records"] == 2 and {i["kind"] for i in facts["instruments"] if i["records"]} == {"spread"}
    assert {i["symbol"] for i in facts["instruments"] if i["records"]} == {"ESH5-ESM5", "ESM4-ESU4"}


def test_an_empty_range_is_read_and_called_empty(tmp_path: Path) -> None:
    """nautilus_trader 3429: a request that started where it ended was an error. Nothing to train on is one here."""
    path = made.write(tmp_path / "a.dbn", [made.metadata(databento_dbn.Schema.MBP_10)])
    got = records_of(path)
    assert got.shape == (0,) and got.dtype == dbn.MBP10_DTYPE
    facts = inspect.inspect(path)
    assert facts["records"] == 0 and facts["first"] is None and "no record at all" in facts["verdict"]


def test_every_number_is_little_endian(tmp_path: Path) -> None:
    """nautilus_trader 4111: raw fixed-point bytes were written big-endian."""
    for name in ("mbp-10", "mbo"):
        for _, kind, *_ in dbn.FIELDS[name]:
            for part in [kind] if isinstance(kind, str) else [k for _, k in kind]:
                assert part == "u1" or part.startswith("<")
    path = made.write_mbp(tmp_path / "a.dbn", [mbp(T0)])
    rows_of(path)
    raw = (tmp_path / "out/snapshots.arrow").read_bytes()
    assert np.array([20_000, 19_999, 19_998], "<i4").tobytes() in raw


def test_an_absent_price_survives_the_round_trip(tmp_path: Path) -> None:
    """nautilus_trader 3183 and databento-python 80: the sentinel broke Arrow, and reached a CSV as a huge number."""
    _, rows = rows_of(made.write_mbp(tmp_path / "a.dbn", [mbp(T0), mbp(T0 + MS, bid=None)]))
    assert (rows["bid_px"][1] == ABSENT_PX).all() and not rows["bid_sz"][1].any() and (rows["ask_px"] > 0).all()
    store = databento.DBNStore.from_file(tmp_path / "a.dbn")
    for style in ({"pretty_px": True}, {"pretty_px": False}):  # blank, and 9223372036854775807
        store.to_csv(tmp_path / "a.csv", mode="w", **style)
        assert ("9223372036854775807" in (tmp_path / "a.csv").read_text()) == (not style["pretty_px"])
        _, from_csv = rows_of(tmp_path / "a.csv")
        assert (from_csv["bid_px"] == rows["bid_px"]).all() and (from_csv["ask_px"] == rows["ask_px"]).all()


def test_rows_already_handed_out_do_not_change_with_the_buffer(tmp_path: Path) -> None:
    """databento-cpp 67: corrupted records where the buffer was used again."""
    n = 2 * dbn.BATCH + 11
    records = np.repeat(mbp(T0), n)
    records["ts_recv"] += np.arange(n).astype(np.uint64)
    moves = np.random.default_rng(3).integers(-50, 50, n) * made.TICK
    for name in ("bid_px", "ask_px"):
        records["levels"][name] += moves[:, None]
    out = made.write_mbp(tmp_path / "a.dbn.zst", [records]).parent
    snapshots.decode(out / "a.dbn.zst", out, ES, snapshots.EVENT_CLOCK)
    got = open_snapshots(out)["bid_px"].combine_chunks().flatten().to_numpy().reshape(-1, 10)
    assert (got == records["levels"]["bid_px"] // made.TICK).all()


@pytest.mark.parametrize("version", [1, 2, 3])
def test_the_length_of_the_header_comes_from_the_file(tmp_path: Path, version: int) -> None:
    """dbn 85 and 123: version 3 pads its header to 8 bytes, and an upgrade used the wrong policy."""
    records = np.concatenate([mbp(T0 + i) for i in range(3)])
    odd = []
    for n in range(1, 4):
        mappings = {f"ESH{d}": [(*made.YEAR, 100 + d)] for d in range(n)} | made.OUTRIGHT
        path = made.write_mbp(tmp_path / "a.dbn", [records], mappings=mappings, version=version)
        odd.append(int.from_bytes(path.read_bytes()[4:8], "little") % 8)
        assert records_of(path).tobytes() == records.tobytes()
    assert any(odd) == (version < 3), "only version 3 pads its header to 8 bytes"


def test_records_that_come_in_many_small_pieces_are_all_read(tmp_path: Path) -> None:
    """dbn 89: the first call did not return everything there was."""
    records = [mbp(T0 + i) for i in range(300)]
    header = made.metadata(databento_dbn.Schema.MBP_10)
    path = made.write(tmp_path / "a.dbn.zst", [header[:5], header[5:], *(r.tobytes() for r in records)])
    assert records_of(path).tobytes() == np.concatenate(records).tobytes()
    assert inspect.inspect(path)["records"] == 300 and zstd_frames(path) == 302


def test_a_count_that_is_a_sentinel_never_reaches_a_row(tmp_path: Path) -> None:
    """java-cme-mdp3-handler 29: implied levels brought a count of 2147483647 along."""
    record = mbp(T0)
    record["levels"]["ask_ct"][0, 4] = 2**32 - 1
    with pytest.raises(BadInput, match="record 0: a size or count over"):
        rows_of(made.write_mbp(tmp_path / "a.dbn", [record]))
    absent = mbp(T0)
    absent["levels"]["ask_px"][0, 9], absent["levels"]["ask_ct"][0, 9] = UNDEF_PRICE, 2**31 - 1
    _, rows = rows_of(made.write_mbp(tmp_path / "b.dbn", [absent]))
    assert rows["ask_ct"][0].tolist() == [*range(1, 10), 0]


def test_symbols_that_were_not_found_are_in_the_report(tmp_path: Path) -> None:
    """machine-learning-for-trading 391: a request from before the listing failed, and the metadata said why."""
    symbols = ["ESH4", "ESX9", "ESM9"]
    header = databento_dbn.Metadata(
        dataset="GLBX.MDP3", schema=databento_dbn.Schema.MBP_10, start=T0, end=T0 + 1,
        stype_in=databento_dbn.SType.RAW_SYMBOL, stype_out=databento_dbn.SType.INSTRUMENT_ID, symbols=symbols,
        partial=["ESM9"], not_found=["ESX9"], version=3, ts_out=False,
        mappings=[made.SimpleNamespace(raw_symbol="ESH4", intervals=[
            made.SimpleNamespace(start_date=made.YEAR[0], end_date=made.YEAR[1], symbol=str(made.ESH4))])],
    )  # fmt: skip
    report, _ = rows_of(made.write(tmp_path / "a.dbn", [bytes(header), mbp(T0).tobytes()]))
    assert report["symbols_not_found"] == ["ESX9"] and report["symbols_partial"] == ["ESM9"]
    assert report["warnings"] == ["symbols the venue does not know: ESX9"]


def test_a_frame_that_hides_its_size_is_streamed(tmp_path: Path) -> None:
    """python-zstandard 150: a frame without its content size cannot be decompressed in one call."""
    path = made.write_mbp(tmp_path / "a.dbn.zst", [mbp(T0 + i) for i in range(5)])
    with pytest.raises(zstandard.ZstdError, match="could not determine content size"):
        zstandard.ZstdDecompressor().decompress(path.read_bytes())
    assert len(records_of(path)) == 5


def test_several_records_of_one_event_are_no_duplicates(tmp_path: Path) -> None:
    """Two trades and a cancel share ts_event and sequence: dropping repeats of the pair would lose trades."""
    parts = [
        mbp(T0, action="T", side="A", flags=0, size=2),
        mbp(T0, action="T", side="A", flags=0, size=2),
        mbp(T0, action="C", side="B"),
    ]
    for part in parts:
        part["sequence"] = 77
    report, rows = rows_of(made.write_mbp(tmp_path / "a.dbn", parts))
    assert (report["records"], report["trades"], report["trade_lots"]) == (3, 2, 4)
    assert rows["sell_lots"].tolist() == [4] and rows["n_trades"].tolist() == [2]


def test_the_send_delta_is_neither_a_time_nor_a_latency(tmp_path: Path) -> None:
    """ts_in_delta is ts_recv less the sending time, and saturates: whatever it says, rows are the same."""
    extremes = []
    for name, delta in (("a", 0), ("b", 2**31 - 1), ("c", -(2**31))):
        records = [mbp(T0 + i * MS, lag=274_315) for i in range(3)]
        for record in records:
            record["ts_in_delta"] = delta
        extremes.append(rows_of(made.write_mbp(tmp_path / f"{name}.dbn", records))[1])
    assert all((extremes[0][name] == other[name]).all() for other in extremes[1:] for name in other)


def test_the_batch_length_is_no_power_of_two() -> None:
    """Columns a power of two apart share their cache sets: the copies run 14 times slower."""
    assert dbn.BATCH % 256 != 0 and dbn.BATCH > 10_000
