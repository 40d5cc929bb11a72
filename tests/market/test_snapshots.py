"""Files to snapshots: the real hour's known numbers, the official client, and one small file a trap."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from datetime import date
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import databento
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from foxhunt_assets import storage
from foxhunt_assets.contracts.instruments import contract
from foxhunt_assets.contracts.tables import ABSENT_PX, SEGMENTS, SNAPSHOTS, arrow_schema
from foxhunt_assets.errors import BadInput, ContractBroken
from foxhunt_assets.market import calendar, dbn, snapshots, volume
from foxhunt_assets.market.snapshot_folder import open_segments, open_snapshots
from tests.market import made_dbn as made
from tests.market.made_dbn import MS, mbo, mbp, ns

ES = contract("ES")
T0 = ns("2024-03-01T15:00:00")  # a Friday morning in Chicago
HOUR = "nautilus_trader/esh4-glbx-mdp3-20231225.mbo.dbn.zst"
HOUR_OPEN = ns("2023-12-25T23:00:00")


Decoded = tuple[dict[str, Any], dict[str, np.ndarray], list[dict]]


def decoded(path: Path, grid_ms: int = 250, mode: str = "front_month", earlier: Any = ()) -> Decoded:
    """Report, columns and segments of a file; the folder is validated too."""
    out = path.parent / f"out-{grid_ms}-{mode}"
    out.mkdir(exist_ok=True)
    report = snapshots.decode(path, out, ES, grid_ms, mode, earlier=earlier)
    snapshots.validate(out)
    json.dumps(report, allow_nan=False)
    table = open_snapshots(out)
    columns = {n: np.array(table[n].to_pylist()) for n in table.column_names}
    return report, columns, open_segments(out).to_pylist()


def decoded_mbp(folder: Path, records: list[np.ndarray], grid_ms: int = 250, **header: Any) -> Decoded:
    return decoded(made.write_mbp(folder / "a.mbp-10.dbn.zst", records, **header), grid_ms)


# --- real files -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def hour(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("hour")


def test_the_real_hour_on_the_event_clock(real_data: Path, hour: Path) -> None:
    report = snapshots.decode(real_data / HOUR, hour, ES, snapshots.EVENT_CLOCK)
    snapshots.validate(hour)
    assert report["rows"] == report["event_ends"] == 47_022
    assert report["book_changes"] == 37_064
    assert (report["crossed"], report["crossed_in_session"], report["one_sided"]) == (891, 0, 0)
    assert (report["trades"], report["trade_lots"]) == (2_973, 9_892)
    assert report["records"] == 68_792 and report["records_snapshot"] == 8_725
    assert not any(report["order_errors"].values()) and not report["ts_recv_inversions"]
    table = open_snapshots(hour)
    bid, ask = (np.array(table[f"{s}_px"].to_pylist())[:, 0] for s in ("bid", "ask"))
    spreads = Counter((ask - bid)[ask > bid].tolist())
    assert [spreads[n] for n in (1, 2, 3, 4)] == [41_460, 4_363, 275, 33] and spreads.total() == 47_022 - 891
    assert open_segments(hour).to_pylist() == [
        {
            "segment": 0, "symbol": "ESH4", "instrument_id": 17_077, "trade_date": "2023-12-26", "row_start": 925,
            "row_end": 47_022, "ended_by": "file", "tick": 250_000_000, "multiplier_cents": 5_000,
        }
    ]  # fmt: skip


def test_the_real_hour_on_the_grid_shows_the_last_book_received(real_data: Path, hour: Path, tmp_path: Path) -> None:
    snapshots.decode(real_data / HOUR, hour, ES, snapshots.EVENT_CLOCK)
    report = snapshots.decode(real_data / HOUR, tmp_path, ES, 250)
    snapshots.validate(tmp_path)
    events, grid = open_snapshots(hour), open_snapshots(tmp_path)
    ts = grid["ts"].to_numpy()
    recv = events["ts_recv"].to_numpy()
    at = np.searchsorted(recv, ts, side="right") - 1
    for name in ("source_row", "ts_event", "ts_recv", "action", "side", "flags", "depth", "bid_px", "ask_sz", "ask_ct"):
        assert grid[name].to_pylist() == events[name].take(at).to_pylist(), name
    (segment,) = open_segments(tmp_path).to_pylist()
    inside = slice(segment["row_start"], segment["row_end"])
    assert ts[inside][0] == HOUR_OPEN + 250 * MS, "the opening cross came 106 ms after the open"
    assert segment["row_end"] - segment["row_start"] == 14_398  # to 23:59:59.5, the first instant after the last event
    assert int(grid["n_events"].to_numpy()[inside].sum()) == 47_022 - 925
    assert int(grid["n_trades"].to_numpy()[inside].sum()) == report["trades"] == 2_973
    lots = grid["buy_lots"].to_numpy()[inside].sum() + grid["sell_lots"].to_numpy()[inside].sum()
    assert lots == 9_892 - 44, "the opening auction of 44 lots has no aggressor"


def test_sums_between_grid_rows_equal_those_of_the_events(real_data: Path, hour: Path, tmp_path: Path) -> None:
    """Lowest bid, highest ask and imbalance of each interval from the event rows, in plain numpy."""
    snapshots.decode(real_data / HOUR, hour, ES, snapshots.EVENT_CLOCK)
    snapshots.decode(real_data / HOUR, tmp_path, ES, 1_000)
    (es,), (gs,) = (open_segments(f).to_pylist() for f in (hour, tmp_path))
    events = open_snapshots(hour).slice(es["row_start"])
    grid = open_snapshots(tmp_path).slice(gs["row_start"])
    book = {n: np.array(events[n].to_pylist(), np.int64) for n in ("bid_px", "ask_px", "bid_sz", "ask_sz")}
    b, q, a, r = book["bid_px"], book["bid_sz"], book["ask_px"], book["ask_sz"]
    bids = np.where(b[1:] >= b[:-1], q[1:], 0) - np.where(b[1:] <= b[:-1], q[:-1], 0)
    asks = np.where(a[1:] <= a[:-1], r[1:], 0) - np.where(a[1:] >= a[:-1], r[:-1], 0)
    imbalance = np.vstack([np.zeros((1, 10), np.int64), bids - asks])
    row_of = np.searchsorted(grid["ts"].to_numpy(), events["ts_recv"].to_numpy(), side="left")
    want = np.zeros((len(grid), 10), np.int64)
    np.add.at(want, row_of, imbalance)
    assert (np.array(grid["ofi"].to_pylist()) == want).all() and np.abs(want).sum() > 0
    low, high = b[np.searchsorted(row_of, np.arange(len(grid)), side="right") - 1, 0].copy(), None
    np.minimum.at(low, row_of, b[:, 0])
    high = a[np.searchsorted(row_of, np.arange(len(grid)), side="right") - 1, 0].copy()
    np.maximum.at(high, row_of, a[:, 0])
    assert (grid["low_bid_px"].to_numpy() == low).all() and (grid["high_ask_px"].to_numpy() == high).all()


@pytest.mark.parametrize(
    "name",
    [
        "dbn/test_data.mbp-10.v1.dbn.zst",
        "dbn/test_data.mbp-10.v3.dbn.zst",
        "databento-python/GLBX.MDP3__test_data.mbp-10.dbn.zst",
    ],
)
def test_real_mbp10_rows_equal_the_official_client(real_data: Path, tmp_path: Path, name: str) -> None:
    snapshots.decode(real_data / name, tmp_path, ES, snapshots.EVENT_CLOCK)
    got = open_snapshots(tmp_path)
    theirs = databento.DBNStore.from_file(real_data / name).to_ndarray()
    assert got.num_rows == len(theirs) > 0
    for column in ("ts_event", "ts_recv", "instrument_id", "flags", "depth"):
        assert got[column].to_pylist() == theirs[column].tolist(), column
    for column in ("action", "side"):
        assert got[column].to_pylist() == theirs[column].view("u1").tolist(), column
    for column in ("bid_px", "ask_px", "bid_sz", "ask_sz", "bid_ct", "ask_ct"):
        unit = made.TICK if column.endswith("px") else 1
        ours = np.array(got[column].to_pylist(), np.int64) * unit
        assert (ours == np.stack([theirs[f"{column}_0{k}"] for k in range(10)], 1)).all(), column


def test_a_real_snapshot_without_events_is_refused(real_data: Path, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="8725 records, no usable row: holds only the opening book snapshot"):
        snapshots.decode(real_data / "nautilus_trader/esh4-glbx-mdp3-20231224.mbo.dbn.zst", tmp_path, ES, 250)


def test_another_exchange_is_refused(real_data: Path, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"dataset NDEX.IMPACT; only GLBX.MDP3"):
        snapshots.decode(real_data / "databento-python/NDEX.IMPACT__test_data.mbp-10.dbn.zst", tmp_path, ES, 250)


def test_facts_of_a_real_file_come_from_its_header(real_data: Path) -> None:
    facts = snapshots.source_facts(real_data / HOUR)
    assert facts["schema"] == "mbo" and facts["version"] == 1 and facts["symbols"] == ["ESH4"]
    assert facts["bytes"] == 997_238 and facts["start"] == 1_703_462_400_000_000_000 and not facts["synthetic"]
    assert snapshots.source_facts(real_data / "dbn/test_data.ohlcv-1d.v3.dbn.zst")["schema"] == "ohlcv-1d"


# --- the grid -------------------------------------------------------------------------------------------------------


def test_each_instant_shows_the_last_state_at_or_before_it(tmp_path: Path) -> None:
    times = [0, 100, 250, 251, 900, 900]  # ms; the second of two at one time is the later in the file
    records = [mbp(T0 + t * MS, bid=20_000 + i, ask=20_010 + i) for i, t in enumerate(times)]
    _, c, segments = decoded_mbp(tmp_path, records)
    assert ((c["ts"] - T0) // MS).tolist() == [0, 250, 500, 750, 1000]
    assert c["source_row"].tolist() == [0, 2, 3, 3, 5]
    assert c["n_events"].tolist() == [1, 2, 1, 0, 2]
    assert c["low_bid_px"].tolist() == [20_000, 20_001, 20_003, 20_003, 20_004]
    assert c["high_ask_px"].tolist() == [20_010, 20_012, 20_013, 20_013, 20_015]
    assert [(s["row_start"], s["row_end"], s["ended_by"]) for s in segments] == [(0, 5, "file")]


def test_flow_between_rows_is_what_happened_since_the_row_before(tmp_path: Path) -> None:
    records = [
        mbp(T0),
        mbp(T0 + 10 * MS, action="T", side="B", size=3, flags=0),
        mbp(T0 + 10 * MS, action="C", side="A", sizes=(10, 17)),
        mbp(T0 + 20 * MS, action="T", side="A", size=4, flags=0),
        mbp(T0 + 20 * MS, action="T", side="N", size=5, flags=0),
        mbp(T0 + 20 * MS, action="C", side="B", sizes=(6, 17)),
        mbp(T0 + 260 * MS, bid=20_001, ask=20_002, sizes=(6, 17)),
    ]
    report, c, _ = decoded_mbp(tmp_path, records)
    assert c["buy_lots"].tolist() == [0, 3, 0] and c["sell_lots"].tolist() == [0, 4, 0]
    assert c["n_trades"].tolist() == [0, 3, 0] and c["n_events"].tolist() == [1, 2, 1]
    assert (report["trades"], report["trade_lots"]) == (3, 12)
    # asks lose 3 (imbalance +3), bids lose 4; then both sides move up: + new bid size + old ask size
    assert c["ofi"][:, 0].tolist() == [0, 3 - 4, 6 + 17]


def test_a_trade_and_its_book_change_are_one_event(tmp_path: Path) -> None:
    records = [
        mbp(T0, action="T", flags=0),
        mbp(T0, action="C", flags=0, sizes=(9, 20)),
        mbp(T0, action="C", sizes=(8, 20)),
    ]
    report, c, _ = decoded_mbp(tmp_path, records, grid_ms=snapshots.EVENT_CLOCK)
    assert report["event_ends"] == 1 and c["bid_sz"][:, 0].tolist() == [8] and c["n_trades"].tolist() == [1]


@pytest.mark.parametrize(
    ("flags", "rows"), [(0, 1), (128, 2), (130, 2), (136, 2), (144, 2), (168, 1), (132, 1), (2, 1)]
)
def test_flags_are_bits(tmp_path: Path, flags: int, rows: int) -> None:
    """One sound event, then one record with these flags: an event, unfinished, of a snapshot, or suspect."""
    _, c, _ = decoded_mbp(tmp_path, [mbp(T0), mbp(T0 + MS, flags=flags)], grid_ms=snapshots.EVENT_CLOCK)
    assert len(c["ts"]) == rows


def test_time_is_exact_to_the_nanosecond(tmp_path: Path) -> None:
    at = T0 + 123_456_789
    _, c, _ = decoded_mbp(tmp_path, [mbp(at, lag=21)], grid_ms=snapshots.EVENT_CLOCK)
    assert (c["ts_event"][0], c["ts_recv"][0], c["ts"][0]) == (at - 21, at, at)


def test_file_order_holds_where_times_step_back(tmp_path: Path) -> None:
    records = [mbp(T0 + 300 * MS, bid=1_000, ask=1_001), mbp(T0 + 299 * MS, bid=1_002, ask=1_003, lag=900 * MS)]
    report, c, _ = decoded_mbp(tmp_path, records)
    assert report["ts_recv_inversions"] == 1
    assert c["bid_px"][:, 0].tolist() == [1_002] and ((c["ts"] - T0) // MS).tolist() == [500]


def test_trades_of_an_unfinished_event_are_counted_as_dropped(tmp_path: Path) -> None:
    report, c, _ = decoded_mbp(tmp_path, [mbp(T0), mbp(T0 + MS, action="T", flags=0)])
    assert report["dropped_trades"] == 1 and report["trades"] == 0 and c["n_trades"].tolist() == [0]


def test_records_with_a_send_time_decode_alike(tmp_path: Path) -> None:
    plain = np.concatenate([mbp(T0 + i * MS, bid=20_000 + i, ask=20_010 + i) for i in range(46)])
    header = dbn.Header(3, "mbp-10", "GLBX.MDP3", 0, None, True, None, (), ())
    wide = np.zeros(len(plain), header.dtype)
    for name in plain.dtype.names:
        wide[name] = plain[name]
    wide["length"] = 94
    _, want, _ = decoded(made.write_mbp(tmp_path / "a.dbn", [plain]))
    _, got, _ = decoded(made.write_mbp(tmp_path / "b.dbn", [wide], ts_out=True))
    assert all((got[name] == want[name]).all() for name in want)


# --- segments -------------------------------------------------------------------------------------------------------


def ends(segments: list[dict]) -> list[tuple[str, str, str]]:
    return [(s["symbol"], s["trade_date"], s["ended_by"]) for s in segments]


def test_a_clear_ends_the_segment_and_nothing_spans_it(tmp_path: Path) -> None:
    clear = mbp(T0 + 600 * MS, bid=None, ask=None, action="R", side="N")
    records = [mbp(T0), mbp(T0 + 400 * MS), clear, mbp(T0 + 5_000 * MS, bid=20_040, ask=20_041)]
    report, c, segments = decoded_mbp(tmp_path, records)
    assert [s["ended_by"] for s in segments] == ["reset", "file"]
    assert ((c["ts"] - T0) // MS).tolist() == [0, 250, 500, 5_000] and c["segment"].tolist() == [0, 0, 0, 1]
    assert c["ofi"][3].tolist() == [0] * 10 and report["actions"]["R"] == 1


def test_a_row_whose_instant_lies_past_the_clear_is_dropped_and_counted(tmp_path: Path) -> None:
    clear = mbp(T0 + 60 * MS, bid=None, ask=None, action="R", side="N")
    report, c, segments = decoded_mbp(tmp_path, [mbp(T0), mbp(T0 + 50 * MS), clear, mbp(T0 + 250 * MS)])
    assert report["dropped_events"] == 1 and c["n_events"].tolist() == [1, 1] and len(segments) == 2


def test_a_long_silence_is_a_gap_and_a_short_one_is_filled(tmp_path: Path) -> None:
    second = 1_000 * MS
    records = [mbp(T0), mbp(T0 + 60 * second), mbp(T0 + 121 * second)]
    _, c, segments = decoded_mbp(tmp_path, records)
    assert [(s["row_start"], s["row_end"], s["ended_by"]) for s in segments] == [(0, 241, "gap"), (241, 242, "file")]
    assert c["ts"][-1] == T0 + 121 * second


def test_the_break_in_winter_and_summer(tmp_path: Path) -> None:
    records = [
        mbp(ns(f"2024-03-{day}T{utc}") - 100 * MS * before)
        for day, utc, before in (
            ("07", "22:00:00", 1),
            ("07", "23:00:00", 0),
            ("11", "21:00:00", 1),
            ("11", "22:00:00", 0),
        )
    ]
    _, _, segments = decoded_mbp(tmp_path, records)
    assert [(s["trade_date"], s["ended_by"]) for s in segments] == [
        ("2024-03-07", "session"), ("2024-03-08", "session"), ("2024-03-11", "session"), ("2024-03-12", "file"),
    ]  # fmt: skip


def test_the_old_afternoon_halt_splits_a_session_and_is_gone_since(tmp_path: Path) -> None:
    """15:15 to 15:30 Chicago; records inside it, as of a pre-open, belong to no segment."""
    mappings = {"ESU1": [(date(2021, 6, 1), date(2021, 8, 1), made.ESH4)]}
    for day, want in (("25", [("2021-06-25", 2), ("2021-06-25", 1)]), ("28", [("2021-06-28", 5)])):
        times = [ns(f"2021-06-{day}T20:{m}") for m in ("14:59", "15:00", "15:20", "29:59", "30:00")]
        records = [mbp(t - 100 * MS * (i == 0)) for i, t in enumerate(times)]
        _, c, segments = decoded_mbp(tmp_path, records, grid_ms=snapshots.EVENT_CLOCK, mappings=mappings)
        halted = day == "25"
        assert (c["segment"] == -1).sum() == (3 if halted else 0)
        dates = {s["trade_date"] for s in segments}
        assert dates == {f"2021-06-{day}"} and want[0][0] in dates
        assert [s["ended_by"] for s in segments][:1] == (["session"] if halted else ["gap"])


def test_before_november_2012_the_hour_after_the_halt_is_the_next_trade_date_s(tmp_path: Path) -> None:
    mappings = {"ESZ2": [(date(2012, 11, 1), date(2012, 12, 1), made.ESH4)]}
    times = [ns(f"2012-11-{t}") for t in ("14T21:14:59", "14T21:29:59", "14T21:30:00", "14T22:30:00", "14T23:00:00")]
    times += [ns(f"2012-11-{t}") for t in ("19T21:14:59", "19T21:30:00")]  # the new hours, from that Monday on
    path = made.write_mbp(tmp_path / "a.dbn", [mbp(t) for t in times], mappings=mappings)
    _, c, segments = decoded(path, snapshots.EVENT_CLOCK)
    assert c["segment"].tolist() == [0, -1, 1, -1, 2, 3, 4]
    assert [s["trade_date"][-2:] for s in segments] == ["14", "15", "15", "19", "19"]


def test_good_friday_2023_trades_until_a_quarter_past_eight(tmp_path: Path) -> None:
    mappings = {"ESM3": [(date(2023, 4, 1), date(2023, 5, 1), made.ESH4)]}
    close = ns("2023-04-07T13:15:00")
    records = [mbp(close - 300 * MS), mbp(close - 100 * MS), mbp(close + 100 * MS)]
    _, c, segments = decoded_mbp(tmp_path, records, mappings=mappings)
    assert [(s["trade_date"], s["ended_by"]) for s in segments] == [("2023-04-07", "session")]
    assert c["segment"].tolist() == [0, 0, -1]


def test_a_trade_date_straddles_two_files_and_a_short_sunday_file_is_part_of_monday(tmp_path: Path) -> None:
    """Files cut at UTC midnight: the last row of one and the first of the next are 250 ms apart in one session."""
    midnight = ns("2024-03-04T00:00:00")
    halves = [mbp(midnight - 400 * MS), mbp(midnight - 200 * MS)], [mbp(midnight + 10 * MS), mbp(midnight + 300 * MS)]
    decodes = [decoded(made.write_mbp(tmp_path / f"{n}.dbn", part)) for n, part in enumerate(halves)]
    (sunday,), (monday,) = (segments for _, _, segments in decodes)
    assert sunday["trade_date"] == monday["trade_date"] == "2024-03-04" and sunday["ended_by"] == "file"
    assert decodes[1][1]["ts"][0] - decodes[0][1]["ts"][-1] == 250 * MS


def test_the_pre_open_belongs_to_no_segment_and_leaves_no_trace_in_the_first_row(tmp_path: Path) -> None:
    opening = ns("2024-03-07T23:00:00")
    records = [
        mbp(opening - 300 * MS, bid=20_010, ask=20_000),
        mbp(opening + MS, bid=20_012, ask=19_990, lag=2 * MS),  # stamped before the open, received after it
        mbp(opening + 100 * MS, bid=20_003, ask=20_004),
    ]
    report, c, segments = decoded_mbp(tmp_path, records)
    assert c["segment"].tolist() == [-1, -1, 0] and report["dropped_events"] == 1
    last = {n: v[-1] for n, v in c.items()}
    assert last["ts"] == opening + 250 * MS and last["low_bid_px"] == 20_003 and last["high_ask_px"] == 20_004
    assert last["n_events"] == 1 and not last["ofi"].any()
    assert (report["crossed"], report["crossed_in_session"]) == (2, 0) and len(segments) == 1


def test_a_trade_after_the_calendars_early_close_reopens_the_session(tmp_path: Path) -> None:
    noon = ns("2024-07-04T17:00:00")
    quiet = [mbp(noon - 100 * MS), mbp(noon + 100 * MS), mbp(noon + 700 * MS)]
    _, c, segments = decoded_mbp(tmp_path, quiet)
    assert c["segment"].tolist() == [0, -1, -1, -1] and len(segments) == 1
    trade = [mbp(noon + 800 * MS, action="T", flags=0), mbp(noon + 800 * MS), mbp(noon + 1_200 * MS)]
    report, c, segments = decoded_mbp(tmp_path, quiet + trade)
    assert report["past_calendar_close"] == 1 and [s["trade_date"] for s in segments] == ["2024-07-04"] * 2
    assert c["segment"].tolist() == [0, -1, -1, -1, 1, 1]


def test_crossed_locked_and_one_sided_books_are_kept_and_counted(tmp_path: Path) -> None:
    books = [(20_001, 20_001), (20_002, 20_001), (None, 20_001), (20_000, None), (20_000, 20_001)]
    records = [mbp(T0 + i * MS, bid=b, ask=a) for i, (b, a) in enumerate(books)]
    report, c, _ = decoded_mbp(tmp_path, records, grid_ms=snapshots.EVENT_CLOCK)
    assert (report["crossed_in_session"], report["one_sided_in_session"]) == (2, 2)
    assert c["bid_px"][:, 0].tolist() == [20_001, 20_002, ABSENT_PX, 20_000, 20_000]
    assert c["low_bid_px"].tolist() == [20_001, 20_002, ABSENT_PX, 20_000, 20_000]


def test_a_suspect_book_makes_no_row_and_ends_the_segment(tmp_path: Path) -> None:
    records = [mbp(T0), mbp(T0 + 300 * MS, flags=132, bid=1), mbp(T0 + 600 * MS)]
    report, c, segments = decoded_mbp(tmp_path, records)
    assert report["suspect_events"] == 1 and report["flags"]["maybe_bad_book"] == 1
    assert [s["ended_by"] for s in segments] == ["gap", "file"] and (c["bid_px"][:, 0] == 20_000).all()


# --- instruments ----------------------------------------------------------------------------------------------------

PARENT = {n: [(*made.YEAR, i)] for n, i in (("ESH4", made.ESH4), ("ESM4", made.ESM4), ("ESH4-ESM4", made.SPREAD))}


def spread_record(ts: int) -> np.ndarray:
    record = mbp(ts, iid=made.SPREAD)
    record["levels"]["bid_px"], record["levels"]["ask_px"] = -300_000_000, -250_000_000  # on the 0.05 grid
    return record


def test_spreads_and_back_months_make_no_rows(tmp_path: Path) -> None:
    records = [
        mbp(T0),
        spread_record(T0 + MS),
        mbp(T0 + 2 * MS, iid=made.ESM4, bid=20_220, ask=20_221),
        mbp(T0 + 3 * MS),
    ]
    report, c, segments = decoded_mbp(tmp_path, records, grid_ms=snapshots.EVENT_CLOCK, mappings=PARENT)
    assert c["source_row"].tolist() == [0, 3] and set(c["instrument_id"]) == {made.ESH4}
    assert (report["records_spread"], report["records_not_kept"], report["events_other_month"]) == (1, 1, 1)
    assert report["records_by_symbol"] == {"ESH4": 2, "ESH4-ESM4": 1, "ESM4": 1}
    assert ends(segments) == [("ESH4", "2024-03-01", "file")]


def test_the_roll_comes_at_the_session_open(tmp_path: Path) -> None:
    friday, midnight, sunday = ns("2024-03-08T21:59:00"), ns("2024-03-08T00:00:01"), ns("2024-03-10T22:00:00")
    records = []
    for at in (midnight, friday, sunday):
        records += [mbp(at), mbp(at + MS, iid=made.ESM4, bid=20_220, ask=20_221)]
    _, c, segments = decoded_mbp(tmp_path, records, grid_ms=snapshots.EVENT_CLOCK, mappings=PARENT)
    assert c["source_row"].tolist() == [0, 2, 5]
    assert ends(segments) == [
        ("ESH4", "2024-03-08", "gap"), ("ESH4", "2024-03-08", "roll"), ("ESM4", "2024-03-11", "file"),
    ]  # fmt: skip


def test_ids_are_mapped_by_utc_day_of_capture_and_never_filled_forward(tmp_path: Path) -> None:
    days = [date(2024, 3, d) for d in (1, 5, 6)]
    mappings = {"ESH4": [(days[0], days[1], 17_077)], "ESH5": [(days[1], days[2], 17_077)]}
    edge, end = ns("2024-03-05T00:00:00"), ns("2024-03-06T00:00:00")
    path = made.write_mbp(tmp_path / "a.dbn", [mbp(edge - 1), mbp(edge), mbp(end - 1), mbp(end)], mappings=mappings)
    report, c, segments = decoded(path, snapshots.EVENT_CLOCK)
    assert report["records_by_symbol"] == {"ESH4": 1, "ESH5": 2} and report["records_unmapped"] == 1
    assert c["source_row"].tolist() == [0] and ends(segments) == [("ESH4", "2024-03-05", "file")]
    _, c, segments = decoded(path, snapshots.EVENT_CLOCK, "ESH5")
    assert c["source_row"].tolist() == [1, 2] and {s["symbol"] for s in segments} == {"ESH5"}


BACK = {"iid": made.ESM4, "bid": 20_220, "ask": 20_221}


def parent_file(folder: Path, times: list[int]) -> Path:
    """A parent file: at each time (ms after T0) a front record, a spread record, and a back record a millisecond on."""
    records = []
    for i, t in enumerate(times):
        records += [mbp(T0 + t * MS, sizes=(10 + i, 20)), spread_record(T0 + t * MS), mbp(T0 + (t + 1) * MS, **BACK)]
    return made.write_mbp(folder / "a.mbp-10.dbn.zst", records, mappings=PARENT)


@pytest.mark.parametrize("grid_ms", [0, 250])
def test_all_gives_each_outright_the_rows_it_has_alone(tmp_path: Path, grid_ms: int) -> None:
    path = parent_file(tmp_path, [0, 300, 70_000])
    report, c, segments = decoded(path, grid_ms, "all")
    alone = [decoded(path, grid_ms, symbol) for symbol in ("ESH4", "ESM4")]
    for name in c:
        if name != "segment":
            assert (c[name] == np.concatenate([columns[name] for _, columns, _ in alone])).all(), name
    assert ends(segments) == [(s, "2024-03-01", why) for s in ("ESH4", "ESM4") for why in ("gap", "file")]
    assert [s["segment"] for s in segments] == [0, 1, 2, 3] and (np.diff(c["segment"]) >= 0).all()
    assert (report["instruments"], report["rows"]) == (["ESH4", "ESM4"], len(c["ts"]))
    assert (report["records"], report["records_spread"], report["records_not_kept"]) == (9, 3, 3)
    assert report["event_ends"] == 6 and report["events_other_month"] == 0
    assert {span["symbol"] for span in report["spans"]} == {"ESH4", "ESM4"}
    assert open_snapshots(path.parent / f"out-{grid_ms}-all").schema.metadata[b"row_order"] == b"series"


def test_named_symbols_are_kept_side_by_side_and_an_absent_one_is_no_error(tmp_path: Path) -> None:
    path = parent_file(tmp_path, [0])
    _, c, segments = decoded(path, 250, "ESM4, ESH4, ESU4")
    assert [s["symbol"] for s in segments] == ["ESH4", "ESM4"] and c["source_row"].tolist() == [0, 2]
    with pytest.raises(BadInput, match="instrument_mode 'ESU4' is not in the file; use front_month, volume, all"):
        decoded(path, 250, "ESU4")


def test_an_outright_without_records_costs_no_pass_and_makes_no_row(tmp_path: Path) -> None:
    path = made.write_mbp(tmp_path / "a.dbn", [mbp(T0)], mappings=PARENT)
    report, c, _ = decoded(path, 250, "all")
    assert report["instruments"] == ["ESH4"] and len(c["ts"]) == 1


def test_rows_are_judged_and_hashed_as_they_are_written(tmp_path: Path) -> None:
    """Levels not best first: told by the decode, and by the reader of the file once it is touched."""
    records = [mbp(T0), mbp(T0 + 300 * MS)]
    records[1]["levels"]["bid_px"][0, :2] = records[1]["levels"]["bid_px"][0, 1::-1]
    path, said = made.write_mbp(tmp_path / "a.dbn", records), "row 2: bid prices are not best first"
    made_of = {}
    for name, touch in (("kept", False), ("touched", True)):
        out, written = tmp_path / name, snapshots.Written()
        out.mkdir()
        snapshots.decode(path, out, ES, 250, written=written)
        arrow = out / "snapshots.arrow"
        assert written.file == storage.hashed(arrow) and said in written.fault
        if touch:
            rewrite(out, open_snapshots(out).slice(0, 1))
            (out / "segments.parquet").unlink()
            pq.write_table(pa.Table.from_pylist([], schema=arrow_schema(SEGMENTS)), out / "segments.parquet")
            said = "row 0: another segment than the table says"
        with pytest.raises(ContractBroken, match=said):
            snapshots.validate(out, written)
        want = storage.file_sha256(arrow)
        manifest = storage.commit(out, tmp_path / f"{name}-committed", {}, known=written.hashes)
        assert manifest["files"]["snapshots.arrow"]["sha256"] == want
        made_of[name] = want == written.file.sha256
    assert made_of == {"kept": True, "touched": False}


def test_a_hash_made_on_the_way_is_taken_only_of_the_file_as_it_was_left(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    file = storage.HashingFile(tmp_path / "a" / "x")
    file.write(b"one")
    file.write(memoryview(b"two"))
    file.close()
    assert file.hashed().sha256 == hashlib.sha256(b"onetwo").hexdigest()
    left = storage.Hashed("not the hash of the bytes", file.hashed().state)
    manifest = storage.commit(tmp_path / "a", tmp_path / "b", {}, known={"x": left})
    assert manifest["files"]["x"] == {"sha256": left.sha256, "bytes": 6}, "the bytes are not read again"
    with pytest.raises(BadInput, match="changed since it was committed"):
        storage.verify(tmp_path / "b")


def test_each_buffer_of_rows_is_written_before_it_is_used_again(tmp_path: Path) -> None:
    """Three buffers of the event clock: each row has the record, the times and the sizes that made it."""
    n = 2 * dbn.BATCH + 100
    records = np.repeat(mbp(T0), n)
    records["ts_recv"] += np.arange(n, dtype=np.uint64)
    records["levels"]["bid_sz"] += np.arange(n, dtype=np.uint32)[:, None]
    path = made.write_mbp(tmp_path / "a.dbn", [records])
    written = snapshots.Written()
    snapshots.decode(path, tmp_path, ES, snapshots.EVENT_CLOCK, written=written)
    table = open_snapshots(tmp_path)
    columns = {name: table[name].combine_chunks() for name in ("source_row", "ts_recv", "bid_sz")}
    assert columns["source_row"].to_numpy().tolist() == list(range(n))
    assert (columns["ts_recv"].to_numpy() == records["ts_recv"]).all()
    assert (columns["bid_sz"].flatten().to_numpy().reshape(n, -1) == records["levels"]["bid_sz"]).all()
    assert written.file == storage.hashed(tmp_path / "snapshots.arrow")


def test_rows_out_of_time_order_are_a_fault_unless_series_lie_one_after_another(tmp_path: Path) -> None:
    path = parent_file(tmp_path, [0, 300])
    decoded(path, 250, "all")
    out = tmp_path / "out-250-all"
    table = open_snapshots(out)
    rewrite(out, table.replace_schema_metadata({**table.schema.metadata, b"row_order": b"time"}))
    with pytest.raises(ContractBroken, match="row 3: ts does not rise"):
        snapshots.validate(out)
    rewrite(out, open_snapshots(out).replace_schema_metadata({b"grid_ms": b"250"}))
    with pytest.raises(ContractBroken, match="row_order '' in the metadata"):
        snapshots.validate(out)


def test_the_lead_by_volume_follows_the_last_complete_session_and_turns_at_the_open(tmp_path: Path) -> None:
    """ESM4 out-trades ESH4 in the session of 29 February, long before the calendar's roll; it leads from 1 March on."""
    opened, closed = ns("2024-02-28T23:00:00"), ns("2024-02-29T22:00:00")
    next_open = ns("2024-02-29T23:00:00")
    before = [mbp(opened, action="T", flags=0, size=3), mbp(opened)]
    for t in range(opened + 50 * 60 * 10**9, closed, 50 * 60 * 10**9):
        before += [mbp(t, action="T", flags=0, size=5, iid=made.ESM4), mbp(t, **BACK)]
    before.append(mbp(closed - MS))
    after = [mbp(next_open), mbp(next_open + MS, **BACK)]
    path = made.write_mbp(tmp_path / "a.dbn", before + after, mappings=PARENT)
    report, c, segments = decoded(path, 0, "volume")
    assert "last complete session" in report["selection"]
    assert {s["symbol"] for s in segments if s["trade_date"] == "2024-02-29"} == {"ESH4"}, "nothing to go by yet"
    assert ends(segments)[-1] == ("ESM4", "2024-03-01", "file")
    assert c["instrument_id"][-1] == made.ESM4 and c["source_row"][-1] == len(before) + 1
    # the same session in a file of its own: what it traded is told to the next one
    first = made.write_mbp(tmp_path / "b.dbn", before, mappings=PARENT)
    second = made.write_mbp(tmp_path / "c.dbn", after, mappings=PARENT)
    told = volume.file_volume(first, ES)
    assert decoded(second, 0, "volume", [told])[1]["instrument_id"].tolist() == [made.ESM4]
    assert decoded(second, 0, "volume")[1]["instrument_id"].tolist() == [made.ESH4]


# --- MBO ------------------------------------------------------------------------------------------------------------


def test_fills_and_trades_leave_the_book_alone(tmp_path: Path) -> None:
    records = [
        mbo(T0, "A", "B", 1, 20_000, 5), mbo(T0, "A", "A", 2, 20_001, 7),
        mbo(T0 + MS, "T", "B", 0, 20_001, 3, 0), mbo(T0 + MS, "F", "A", 2, 20_001, 3, 0),
        mbo(T0 + MS, "C", "A", 2, 20_001, 3),
        mbo(T0 + 2 * MS, "N", "N", 0, 0, 0),
    ]  # fmt: skip
    report, c, _ = decoded(made.write_mbo(tmp_path / "a.dbn", records), snapshots.EVENT_CLOCK)
    assert c["ask_sz"][:, 0].tolist() == [0, 7, 4, 4] and c["buy_lots"].tolist() == [0, 0, 3, 0]
    assert report["one_sided"] == 1


def test_a_snapshot_builds_the_book_and_is_no_event(tmp_path: Path) -> None:
    records = [
        mbo(T0, "A", "B", 9, 19_000, 1),
        mbo(T0 + MS, "A", "B", 1, 20_000, 5, 40), mbo(T0 + MS, "A", "A", 2, 20_001, 7, 168),  # no R before it
        mbo(T0 + 300 * MS, "A", "A", 3, 20_001, 1),
    ]  # fmt: skip
    report, c, segments = decoded(made.write_mbo(tmp_path / "a.dbn", records), snapshots.EVENT_CLOCK)
    assert report["records_snapshot"] == 2 and report["event_ends"] == 2
    assert c["bid_px"][1, :2].tolist() == [20_000, ABSENT_PX], "the order from before the snapshot is gone"
    assert c["ask_ct"][1, 0] == 2 and [s["ended_by"] for s in segments] == ["reset", "file"]


def test_a_clear_leaves_no_order_of_its_instrument_and_all_of_another_s(tmp_path: Path) -> None:
    """A level that survives a channel reset would stand here as the best bid, or as the size below it."""
    both = {"ESH4": [(*made.YEAR, made.ESH4)], "ESM4": [(*made.YEAR, made.ESM4)]}
    other = np.concatenate([mbo(T0, "A", "A", 6, 20_221, 4, 0), mbo(T0, "A", "B", 7, 20_220, 9)])
    other["instrument_id"] = made.ESM4
    change = mbo(T0 + 3 * MS, "A", "B", 8, 20_220, 1)
    change["instrument_id"] = made.ESM4
    records = [
        mbo(T0, "A", "B", 1, 20_000, 5), mbo(T0, "A", "B", 2, 19_999, 6), mbo(T0, "A", "A", 3, 20_001, 7), other,
        mbo(T0 + MS, "R", "N", 0, 0, 0),
        mbo(T0 + 2 * MS, "A", "B", 4, 19_990, 2), mbo(T0 + 2 * MS, "A", "A", 5, 20_010, 3), change,
    ]  # fmt: skip
    path = made.write_mbo(tmp_path / "a.dbn", records, mappings=both)
    _, c, segments = decoded(path, snapshots.EVENT_CLOCK, "ESH4")
    assert [s["ended_by"] for s in segments] == ["reset", "file"]
    assert c["bid_px"][-1, :2].tolist() == [19_990, ABSENT_PX] and c["ask_px"][-1, :2].tolist() == [20_010, ABSENT_PX]
    _, c, segments = decoded(path, snapshots.EVENT_CLOCK, "ESM4")
    assert c["bid_sz"][:, 0].tolist() == [9, 10] and [s["ended_by"] for s in segments] == ["file"]


def test_without_a_snapshot_unknown_orders_are_counted(tmp_path: Path) -> None:
    records = [
        mbo(T0, "C", "B", 1, 20_000, 5),
        mbo(T0 + MS, "M", "B", 2, 20_000, 6),
        mbo(T0 + MS, "A", "A", 3, 20_001, 6),
    ]
    report, c, _ = decoded(made.write_mbo(tmp_path / "a.dbn", records), snapshots.EVENT_CLOCK)
    assert report["order_errors"]["unknown_cancel"] == 1 and report["order_errors"]["unknown_modify"] == 1
    assert (c["bid_sz"][-1, 0], c["ask_sz"][-1, 0]) == (6, 6)


def test_a_suspect_mbo_book_stays_void_until_it_is_rebuilt(tmp_path: Path) -> None:
    records = [
        mbo(T0, "A", "B", 1, 20_000, 5), mbo(T0 + MS, "A", "A", 2, 20_001, 5, 132),
        mbo(T0 + 2 * MS, "A", "A", 3, 20_001, 5),
        mbo(T0 + 3 * MS, "R", "N", 0, 0, 0),
        mbo(T0 + 4 * MS, "A", "B", 4, 20_000, 2, 0), mbo(T0 + 4 * MS, "A", "A", 5, 20_002, 2),
    ]  # fmt: skip
    report, c, _ = decoded(made.write_mbo(tmp_path / "a.dbn", records), snapshots.EVENT_CLOCK)
    assert report["suspect_events"] == 2 and c["source_row"].tolist() == [1, 6]


# --- what cannot be used --------------------------------------------------------------------------------------------


def off_tick() -> np.ndarray:
    record = mbp(T0 + MS)
    record["levels"]["ask_px"][0, 9] += 1
    return record


def changed(field: str, value: int) -> np.ndarray:
    record = mbp(T0 + MS)
    record[field] = value
    return record


@pytest.mark.parametrize(
    ("record", "words"),
    [
        (off_tick(), r"record 1: a price that is no multiple of the tick 0\.25"),
        (changed("rtype", 23), "record 1 has length 92 and rtype 23, an mbp-10 record has 92 and 10"),
        (changed("length", 94), "record 1 has length 94"),
        (changed("action", ord("X")), "record 1: action 'X'"),
        (changed("ts_recv", 2**64 - 1), "record 1: ts_recv 18446744073709551615"),
        (np.frombuffer(b"DBN" + bytes(365), np.uint8), "record 1 has length 68 and rtype 66"),  # a header
    ],
)
def test_a_wrong_record_is_named(tmp_path: Path, record: np.ndarray, words: str) -> None:
    with pytest.raises(BadInput, match=words):
        path = made.write_mbp(tmp_path / "a.dbn", [part.view(np.uint8) for part in (mbp(T0), record)])
        decoded(path)


@pytest.mark.parametrize(
    ("records", "header", "words"),
    [
        ([], {}, "0 records, no usable row: no record at all"),
        ([spread_record(T0)], {"mappings": PARENT}, "holds only calendar spreads"),
        ([mbp(T0, iid=made.ESM4)], {"mappings": PARENT}, "no event of the lead month; set data.instrument_mode"),
        ([mbp(T0, iid=5)], {}, "no symbol is mapped"),
        ([mbp(T0, flags=0)], {}, r"ends an event \(F_LAST\)"),
        ([mbp(T0)], {"mappings": {"ESH4-ESM4": [(*made.YEAR, 1)]}}, "holds only calendar spreads"),
        ([mbp(T0)], {"dataset": "XNAS.ITCH"}, "dataset XNAS.ITCH"),
    ],
)
def test_a_file_without_a_usable_row_says_why(tmp_path: Path, records: list, header: dict, words: str) -> None:
    empty = [np.zeros(0, dbn.MBP10_DTYPE)]
    with pytest.raises(BadInput, match=words) as error:
        decoded_mbp(tmp_path, records or empty, **header)
    assert "\n" not in str(error.value)


def test_a_clock_that_runs_through_the_years_asks_for_a_bounded_number_of_calendars(tmp_path: Path) -> None:
    path = made.write_mbp(tmp_path / "a.dbn", [mbp(ns(f"{year}-06-01T15:00:00")) for year in range(2001, 2100)])
    built = calendar._cmes.cache_info().misses
    with pytest.raises(BadInput, match=r"record 31: received on 2032-06-01, over 30 years after the first \(2001\)"):
        decoded(path)
    assert calendar._cmes.cache_info().misses - built <= 32


def test_joined_files_are_refused(tmp_path: Path) -> None:
    whole = made.write_mbp(tmp_path / "a.dbn", [mbp(T0 + i) for i in range(3)]).read_bytes()
    (tmp_path / "b.dbn").write_bytes(whole + whole)
    with pytest.raises(BadInput, match=r"b\.dbn: record 3 has length|b\.dbn: ends inside record"):
        decoded(tmp_path / "b.dbn")


# --- the folder -----------------------------------------------------------------------------------------------------


def long_file(folder: Path, name: str = "a.synthetic.mbp-10.dbn.zst") -> Path:
    """Two output batches and more: 20,000 events a second apart in pairs of moving books."""
    records = np.concatenate([mbp(T0, bid=20_000 + i, ask=20_001 + i) for i in range(50)])
    records = np.tile(records, 400)
    records["ts_event"] = records["ts_recv"] = T0 + np.arange(len(records)) * 300 * MS
    return made.write_mbp(folder / name, [records])


def test_columns_are_the_contract_and_a_generated_file_is_called_so(tmp_path: Path) -> None:
    report, _, _ = decoded_mbp(tmp_path, [mbp(T0)])
    assert not report["synthetic"] and len(report["source_sha256"]) == 64
    path = made.write_mbp(tmp_path / "b.synthetic.mbp-10.dbn.zst", [mbp(T0)])
    assert snapshots.source_facts(path)["synthetic"] and decoded(path)[0]["synthetic"]
    out = tmp_path / "out-250-front_month"
    assert open_snapshots(out).schema.equals(arrow_schema(SNAPSHOTS))
    assert open_segments(out).schema.equals(arrow_schema(SEGMENTS))
    assert open_snapshots(out).schema.metadata[b"grid_ms"] == b"250"


def test_the_same_file_gives_the_same_bytes_and_progress_ends_at_one(tmp_path: Path) -> None:
    path, seen = long_file(tmp_path), []
    for name in ("x", "y"):
        (tmp_path / name).mkdir()
        snapshots.decode(path, tmp_path / name, ES, 250, progress=seen.append)
    for name in ("snapshots.arrow", "segments.parquet"):
        assert (tmp_path / "x" / name).read_bytes() == (tmp_path / "y" / name).read_bytes()
    assert seen[-1] == 1.0 and seen == sorted(seen[: len(seen) // 2]) * 2


def test_a_file_hashed_by_the_caller_is_not_hashed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = made.write_mbp(tmp_path / "a.dbn", [mbp(T0)])
    known = storage.hashed(path)
    assert known.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    monkeypatch.setattr(storage, "file_sha256", lambda _: pytest.fail("hashed again"))
    assert snapshots.decode(path, tmp_path, ES, 250, known=known)["source_sha256"] == known.sha256


def test_a_file_that_changed_since_it_was_hashed_is_refused(tmp_path: Path) -> None:
    """Same place, size and time of change: another file moved there, or the same one written in place."""
    path = made.write_mbp(tmp_path / "a.dbn", [mbp(T0)])
    for write in (lambda raw: path.write_bytes(raw), lambda raw: moved_there(path, raw)):
        known, stat = storage.hashed(path), path.stat()
        time.sleep(0.02)  # the clock of a file system may be that coarse
        write(path.read_bytes())
        os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
        assert (path.stat().st_size, path.stat().st_mtime_ns) == (stat.st_size, stat.st_mtime_ns)
        with pytest.raises(BadInput, match=r"a\.dbn: changed while it was decoded"):
            snapshots.decode(path, tmp_path, ES, 250, known=known)


def moved_there(path: Path, raw: bytes) -> None:
    beside = path.with_name("beside")
    beside.write_bytes(raw)
    beside.rename(path)


def test_files_decoded_in_two_processes_at_once_are_those_decoded_alone(tmp_path: Path) -> None:
    """What a backfill over files does: a run a file, each run a process."""
    paths, folders = [], [[tmp_path / f"{how}{n}" for n in range(2)] for how in ("together", "alone")]
    for n in range(2):
        records = [mbp(T0 + i * MS, 20_000 + n + i % 5, 20_001 + n + i % 5) for i in range(300)]
        paths.append(made.write_mbp(tmp_path / f"{n}.dbn.zst", records))
    for folder in (*folders[0], *folders[1]):
        folder.mkdir()
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        together = [pool.submit(snapshots.decode, *job, ES, 0) for job in zip(paths, folders[0], strict=True)]
    assert [snapshots.decode(*job, ES, 0) for job in zip(paths, folders[1], strict=True)] == [
        waited.result() for waited in together
    ]
    for one, other in zip(*folders, strict=True):
        for name in ("snapshots.arrow", "segments.parquet"):
            assert (one / name).read_bytes() == (other / name).read_bytes()


def test_content_hash_is_blind_to_batches_and_sees_every_value(tmp_path: Path) -> None:
    snapshots.decode(long_file(tmp_path), tmp_path, ES, 250)
    table = open_snapshots(tmp_path)
    assert len(table.to_batches()) > 1
    other = tmp_path / "other"
    other.mkdir()
    with pa.ipc.new_file(str(other / "snapshots.arrow"), table.schema) as writer:
        writer.write_table(table.combine_chunks(), max_chunksize=777)
    ranges = [(0, table.num_rows), (5, 17_000), (5, 17_001), (6, 17_001)]
    hashes = [snapshots.content_hash(tmp_path, *r) for r in ranges]
    assert hashes == [snapshots.content_hash(other, *r) for r in ranges] and len(set(hashes)) == 4
    ofi = np.array(table["ofi"].to_pylist(), np.int32)
    ofi[9, 3] += 1
    rewrite(tmp_path, table, ofi=pa.FixedSizeListArray.from_arrays(pa.array(ofi.ravel()), type=table["ofi"].type))
    assert snapshots.content_hash(tmp_path, 0, table.num_rows) != hashes[0]
    with pytest.raises(BadInput, match="rows 0 to"):
        snapshots.content_hash(tmp_path, 0, table.num_rows + 1)


def rewrite(folder: Path, table: pa.Table, **columns: pa.Array) -> None:
    """The folder's rows with some columns replaced."""
    held = pa.table([pa.array(c.to_pylist(), c.type) for c in table.columns], schema=table.schema)
    for name, column in columns.items():
        held = held.set_column(held.column_names.index(name), table.schema.field(name), column)
    with pa.ipc.new_file(str(folder / "snapshots.arrow"), held.schema) as writer:
        writer.write_table(held)


@pytest.mark.parametrize(
    ("name", "row", "value", "words"),
    [
        ("ts", 2, T0, "row 2: ts does not rise"),
        ("ts", 3, T0 + 751 * MS, "row 3: ts is no multiple"),
        ("ts_recv", 1, T0 + 900 * MS, "row 1: received after its ts"),
        ("source_row", 2, 0, "row 2: source_row falls"),
        ("n_events", 1, -1, "row 1: n_events is negative"),
        ("n_trades", 3, 2, "row 3: trades without an event"),
        ("buy_lots", 0, 2, "row 0: lots without a trade"),
        ("action", 0, 82, "row 0: unknown action"),
        ("low_bid_px", 1, 30_000, "row 1: low_bid_px above"),
        ("high_ask_px", 1, 3, "row 1: high_ask_px below"),
        ("segment", 1, -1, "row 1: another segment than the table says"),
        ("instrument_id", 1, 3, "row 1: another instrument than its segment's"),
    ],
)
def test_a_broken_row_is_named(tmp_path: Path, name: str, row: int, value: int, words: str) -> None:
    path = made.write_mbp(tmp_path / "a.dbn", [mbp(T0 + t * MS) for t in (0, 200, 400, 500, 1_000)])
    snapshots.decode(path, tmp_path, ES, 250)
    table = open_snapshots(tmp_path)
    values = table[name].to_pylist()
    values[row] = value
    rewrite(tmp_path, table, **{name: pa.array(values, table.schema.field(name).type)})
    with pytest.raises(ContractBroken, match=words):
        snapshots.validate(tmp_path)


@pytest.mark.parametrize(
    ("name", "level", "value", "words"),
    [
        ("bid_px", 4, 20_005, "bid prices are not best first"),
        ("ask_px", 4, 20_001, "ask prices are not best first"),
        ("bid_px", 4, ABSENT_PX, "absent bid level with size"),
        ("ask_sz", 0, -1, "ask size or count is negative"),
        ("ask_px", 9, 2**30, "ask price beyond"),
    ],
)
def test_a_broken_book_is_named(tmp_path: Path, name: str, level: int, value: int, words: str) -> None:
    snapshots.decode(made.write_mbp(tmp_path / "a.dbn", [mbp(T0), mbp(T0 + 300 * MS)]), tmp_path, ES, 250)
    table = open_snapshots(tmp_path)
    values = np.array(table[name].to_pylist(), np.int32)
    values[1, level] = value
    rewrite(
        tmp_path, table, **{name: pa.FixedSizeListArray.from_arrays(pa.array(values.ravel()), type=table[name].type)}
    )
    with pytest.raises(ContractBroken, match=f"row 1: {words}"):
        snapshots.validate(tmp_path)


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("row_end", 9, "rows 0 to 9 overlap, are empty or lie outside"),
        ("row_start", 1, "row 0: another segment than the table says"),
        ("segment", 1, "stands at place 0"),
        ("ended_by", "lunch", "ended_by 'lunch'"),
        ("trade_date", "2024-02-30", "is no date"),
        ("tick", 0, "no tick"),
    ],
)
def test_a_broken_segment_is_named(tmp_path: Path, name: str, value: Any, words: str) -> None:
    snapshots.decode(made.write_mbp(tmp_path / "a.dbn", [mbp(T0), mbp(T0 + 300 * MS)]), tmp_path, ES, 250)
    rows = open_segments(tmp_path).to_pylist()
    rows[0][name] = value
    pq.write_table(pa.Table.from_pylist(rows, schema=arrow_schema(SEGMENTS)), tmp_path / "segments.parquet")
    with pytest.raises(ContractBroken, match=words):
        snapshots.validate(tmp_path)


def test_missing_and_foreign_files_of_a_folder_are_named(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"snapshots\.arrow: no such file"):
        snapshots.validate(tmp_path)
    snapshots.decode(made.write_mbp(tmp_path / "a.dbn", [mbp(T0)]), tmp_path, ES, 250)
    (tmp_path / "snapshots.arrow").write_bytes(b"ARROW1 no more")
    with pytest.raises(ContractBroken, match="not an Arrow file"):
        snapshots.validate(tmp_path)
