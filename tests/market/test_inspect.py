"""`foxhunt inspect`: what it counts is true, what it says is what the decoder does, and a page fits a screen."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Any

import databento
import databento_dbn
import numpy as np
import pytest

from foxhunt_assets.cli import main
from foxhunt_assets.contracts.instruments import contract
from foxhunt_assets.errors import BadInput
from foxhunt_assets.market import inspect, inspect_text, snapshots
from tests.market import made_dbn as made
from tests.market.made_dbn import ESH4, ESM4, MS, SPREAD, YEAR, mbo, mbp

ES = contract("ES")
T0 = made.ns("2024-03-01T15:00:00")
SECOND = 1_000 * MS
HOUR = "nautilus_trader/esh4-glbx-mdp3-20231225.mbo.dbn.zst"
PARENT = {"ESH4": [(*YEAR, ESH4)], "ESM4": [(*YEAR, ESM4)], "ESH4-ESM4": [(*YEAR, SPREAD)]}


def facts_of(path: Path, **options: float) -> dict[str, Any]:
    facts = inspect.inspect(path, **options)
    json.dumps(facts, allow_nan=False)
    for line in inspect_text.text(facts).splitlines():
        assert line == line.rstrip()
    return facts


def instrument(facts: dict[str, Any], symbol: str) -> dict[str, Any]:
    return next(i for i in facts["instruments"] if i["symbol"] == symbol)


def test_the_real_hour(real_data: Path) -> None:
    facts = facts_of(real_data / HOUR)
    assert facts["records"] == 68_792 and facts["records_snapshot"] == 8_725 and facts["frames"] == 2
    assert (facts["trades"], facts["lots"]) == (2_973, 9_892)
    assert facts["crossed"] + facts["locked"] == 891 == facts["crossed_or_locked_outside_sessions"]
    assert facts["event_ends"] == 47_022 and facts["one_sided"] == 0
    (es,) = facts["instruments"]
    assert [es["spreads"][n] for n in "1234"] == [41_460, 4_363, 275, 33] and sum(es["spreads"].values()) == 46_131
    assert (es["kind"], es["tick"], es["step_seen"]) == ("outright", ES.tick, ES.tick)
    assert [(s["date"], s["records"]) for s in facts["sessions"]] == [("2023-12-26", 59_142)]
    assert facts["records_outside_sessions"] == 925
    assert facts["gap_count"] == 0 and 9.2e9 < facts["longest_silence_ns"] < 9.4e9
    assert facts["verdict"] == "usable for training: 60 min of trading in 1 session" and facts["warnings"] == []


def test_its_counts_are_those_of_the_decoder(real_data: Path, tmp_path: Path) -> None:
    facts = facts_of(real_data / HOUR)
    report = snapshots.decode(real_data / HOUR, tmp_path, ES, snapshots.EVENT_CLOCK)
    assert {a: n for a, n in report["actions"].items() if n} == facts["actions"]
    assert {f: n for f, n in report["flags"].items() if n} == facts["flags"]
    assert report["crossed"] == facts["crossed"] + facts["locked"]
    for name in ("records", "records_snapshot", "event_ends", "one_sided", "trades"):
        assert report[name] == facts[name], name
    assert report["trade_lots"] == facts["lots"]


def test_a_page_of_an_ordinary_file_fits_one_screen(real_data: Path) -> None:
    page = inspect_text.text(inspect.inspect(real_data / HOUR)).splitlines()
    assert len(page) <= 24 and max(map(len, page)) <= 120
    assert "spread       ESH4 in ticks of 0.25: 1 (89.9%), 2 (9.5%), 3 (0.6%), 4 (0.1%)" in page
    assert "received     2023-12-25 00:00:00 to 23:59:59 UTC" in page
    assert "             2023-12-24 18:00:00 to 2023-12-25 17:59:59 Chicago" in page


@pytest.mark.parametrize(
    ("name", "records", "event_ends"),
    [
        ("nautilus_trader/futures_mbp-1_2024-07-01T23-58_2024-07-02T00-02.dbn.zst", 2_288, 2_167),
        ("nautilus_trader/futures_bbo-1m_2024-05-09T09-55_2024-05-09T10-05.dbn.zst", 20, 20),
        ("dbn/test_data.tbbo.v3.dbn.zst", 2, 2),
    ],
)
def test_one_level_is_read_and_refused_for_training(real_data: Path, name: str, records: int, event_ends: int) -> None:
    facts = facts_of(real_data / name)
    store = databento.DBNStore.from_file(real_data / name).to_ndarray()
    assert facts["records"] == len(store) == records and facts["event_ends"] == event_ends
    assert "holds one book level, not ten" in facts["verdict"] and not facts["usable"]
    if "action" in store.dtype.names:
        counts = {a.decode(): int((store["action"] == a).sum()) for a in np.unique(store["action"])}
        assert facts["actions"] == counts
        assert facts["lots"] == int(store["size"][store["action"] == b"T"].sum())


def test_a_parent_file_tells_outrights_from_spreads(tmp_path: Path) -> None:
    spread = mbp(T0 + 2, iid=SPREAD)
    for name, value in (("bid_px", -300_000_000), ("ask_px", -250_000_000)):
        spread["levels"][name] = value + np.arange(10) * (50_000_000 if name == "ask_px" else -50_000_000)
    records = [mbp(T0), mbp(T0 + 1, iid=ESM4, ask=20_003), mbp(T0 + 1, iid=ESM4), spread, mbp(T0 + 3, iid=99)]
    facts = facts_of(made.write_mbp(tmp_path / "a.dbn", records, mappings=PARENT))
    assert [(i["symbol"], i["kind"], i["records"]) for i in facts["instruments"]] == [
        ("ESM4", "outright", 2), ("ESH4", "outright", 1), ("ESH4-ESM4", "spread", 1),
    ]  # fmt: skip
    assert instrument(facts, "ESM4")["spreads"] == {"1": 1, "3": 1}
    assert instrument(facts, "ESH4-ESM4")["tick"] == 50_000_000, "from its prices"
    assert instrument(facts, "ESH4-ESM4")["spreads"] == {"1": 1}
    assert facts["records_unmapped"] == 1 and facts["usable"]
    assert "1 record of instrument ids without a symbol on their date" in facts["warnings"]


def test_an_id_has_the_symbol_of_its_day(tmp_path: Path) -> None:
    days = [made.date(2024, 3, d) for d in (1, 2, 3)]
    mappings = {"ESH4": [(days[0], days[1], ESH4)], "ESM4": [(days[1], days[2], ESH4)]}
    times = [made.ns(f"2024-03-0{d}T{t}") for d, t in ((1, "12:00:00"), (1, "23:59:59"), (2, "00:00:00"))]
    facts = facts_of(made.write_mbp(tmp_path / "a.dbn", [mbp(t) for t in times], mappings=mappings))
    assert {i["symbol"]: i["records"] for i in facts["instruments"]} == {"ESH4": 2, "ESM4": 1}


def test_silences_inside_a_session_are_gaps_and_the_break_is_none(tmp_path: Path) -> None:
    close = made.ns("2024-03-07T22:00:00")
    times = [close - 200 * SECOND, close - 130 * SECOND, close - SECOND, close + 3_600 * SECOND]
    path = made.write_mbp(tmp_path / "a.dbn", [mbp(t) for t in times])
    facts = facts_of(path)
    assert [(g["to"] - g["from"]) // SECOND for g in facts["gaps"]] == [70, 129] and facts["gap_count"] == 2
    assert [(s["date"], s["records"]) for s in facts["sessions"]] == [("2024-03-07", 3), ("2024-03-08", 1)]
    assert facts_of(path, gap_s=100)["gap_count"] == 1


def test_books_are_counted_where_an_event_ends(tmp_path: Path) -> None:
    books = [(20_001, 20_001), (20_002, 20_001), (None, 20_001), (20_000, 20_004)]
    records = [mbp(T0 + i * MS, bid=b, ask=a, lag=MS) for i, (b, a) in enumerate(books)]
    records += [mbp(T0 + 9 * MS, flags=f, ask=20_009) for f in (0, 132, 168)]
    facts = facts_of(made.write_mbp(tmp_path / "a.dbn", records))
    assert (facts["event_ends"], facts["locked"], facts["crossed"], facts["one_sided"]) == (4, 1, 1, 1)
    assert facts["instruments"][0]["spreads"] == {"4": 1}
    assert facts["flags"] == {"last": 6, "snapshot": 1, "bad_ts_recv": 1, "maybe_bad_book": 1}


def test_orders_of_two_instruments_make_two_books(tmp_path: Path) -> None:
    other = mbo(T0 + 2, "A", "A", 1, 20_002, 1)
    other["instrument_id"] = ESM4
    far = mbo(T0 + 3, "A", "B", 2, 20_001, 1)
    far["instrument_id"] = ESM4
    records = [mbo(T0, "A", "B", 1, 20_000, 5), mbo(T0 + 1, "A", "A", 2, 20_003, 5), other, far]
    facts = facts_of(made.write_mbo(tmp_path / "a.dbn", records, mappings=PARENT))
    assert instrument(facts, "ESH4")["spreads"] == {"3": 1} and instrument(facts, "ESM4")["spreads"] == {"1": 1}
    assert facts["one_sided"] == 2 and facts["order_errors"] == {}
    late = facts_of(made.write_mbo(tmp_path / "b.dbn", [*records[:2], mbo(T0 + 9, "C", "B", 77, 20_000, 1)]))
    assert late["order_errors"] == {"unknown_cancel": 1} and "unknown_cancel 1" in late["warnings"][0]


def test_the_tick_is_taken_from_orders_and_not_from_trades(tmp_path: Path) -> None:
    records = [mbo(T0, "A", "B", 1, 0, 5), mbo(T0 + 1, "A", "A", 2, 0, 5), mbo(T0 + 2, "T", "N", 0, 0, 5)]
    for record, price in zip(records, (5_510_000_000, 5_530_000_000, 5_515_000_000), strict=True):
        record["price"] = price
    path = made.write_mbo(tmp_path / "a.dbn", records, dataset="XNAS.ITCH", mappings={"ARL": [(*YEAR, ESH4)]})
    (arl,) = facts_of(path)["instruments"]
    assert (arl["tick"], arl["tick_from"], arl["spreads"]) == (10_000_000, "prices", {"2": 2})


def damaged(folder: Path, how: str) -> Path:
    """A file with one thing wrong."""
    sound = [mbp(T0), mbp(T0 + 1)]
    if how == "foreign":
        system = np.zeros(40, np.uint8)
        system[:2] = 10, 23
        raw = (
            made.metadata(databento_dbn.Schema.MBP_10) + sound[0].tobytes() + system.tobytes() * 2 + sound[1].tobytes()
        )
        return made.write(folder / "a.dbn", [raw])
    if how == "unmapped":
        return made.write_mbp(folder / "a.dbn", [mbp(T0, iid=1)])
    if how == "spreads":
        return made.write_mbp(folder / "a.dbn", [mbp(T0, iid=SPREAD)], mappings={"ESH4-ESM4": [(*YEAR, SPREAD)]})
    if how == "snapshot":
        return made.write_mbp(folder / "a.dbn", [mbp(T0, flags=168)])
    if how == "unfinished":
        return made.write_mbp(folder / "a.dbn", [mbp(T0, flags=0)])
    if how == "weekend":
        return made.write_mbp(folder / "a.dbn", [mbp(made.ns("2024-03-02T15:00:00"))])
    if how == "holiday":  # 4 July 2024 after noon Chicago, without a trade
        return made.write_mbp(folder / "a.dbn", [mbp(made.ns("2024-07-04T17:30:00"))])
    if how == "one side":
        return made.write_mbp(folder / "a.dbn", [mbp(T0, bid=None), mbp(T0 + 1, ask=None)])
    if how == "other months":  # ESH4 leads
        months = {"ESM4": [(*YEAR, ESM4)], "ESU4": [(*YEAR, ESH4)]}
        return made.write_mbp(folder / "a.dbn", [mbp(T0), mbp(T0, iid=ESM4)], mappings=months)
    if how in ("wide level", "unfinished off the tick", "suspect off the tick"):
        odd = mbp(T0 + 1, flags={"wide level": 128, "unfinished off the tick": 0}.get(how, 132))
        odd["levels"]["ask_sz" if how == "wide level" else "ask_px"][0, 3] = 2**32 - 1 if how == "wide level" else 7
        return made.write_mbp(folder / "a.dbn", [mbp(T0), odd, mbp(T0 + 2)])
    if how in ("wide order", "orders off the tick", "cancel off the tick"):
        orders = [mbo(T0, "A", "B", 1, 20_000, 2**31 - 1), mbo(T0 + 1, "A", "A", 2, 20_003, 5)]
        orders.append(mbo(T0 + 2, "C" if how.startswith("cancel") else "A", "B", 3, 20_000, 1))
        orders[2]["price"] += 0 if how == "wide order" else 1
        return made.write_mbo(folder / "a.dbn", orders)
    if how == "middle of a day":
        orders = [mbo(T0, "A", "B", 1, 20_000, 5), mbo(T0 + 1, "A", "A", 2, 20_001, 5)]
        return made.write_mbo(folder / "a.dbn", orders, clear=False)
    if how == "empty":
        return made.write(folder / "a.dbn", [made.metadata(databento_dbn.Schema.MBP_10)])
    if how == "product":
        return made.write_mbp(folder / "a.dbn", sound, mappings={"CLJ4": [(*YEAR, ESH4)]})
    if how == "venue":
        return made.write_mbp(folder / "a.dbn", sound, dataset="XNAS.ITCH")
    if how == "manifest":
        (folder / "manifest.json").write_text('{"files": [{"filename": "a.dbn", "size": 7, "hash": "sha256:0"}]}')
    field, value = {
        "tick": ("bid_px", 1),
        "action": ("action", ord("Z")),
        "time": ("ts_recv", 5),
        "decades": ("ts_recv", made.ns("2085-01-02T15:00:00")),
    }.get(how, ("size", 1))
    if field == "bid_px":
        sound[1]["levels"]["bid_px"][0, 7] += value
    else:
        sound[1][field] = value
    path = made.write_mbp(folder / "a.dbn", sound)
    if how == "cut":
        path.write_bytes(path.read_bytes()[:-1])
    if how == "no length":
        raw = bytearray(path.read_bytes())
        raw[-368] = 0
        path.write_bytes(raw)
    return path


@pytest.mark.parametrize(
    ("how", "words", "decoder"),
    [
        ("cut", r"ends inside record 1 \(367 of 368 bytes\)", ""),
        ("no length", "record 1 says that its length is 0 bytes", "has length 0"),
        ("foreign", "holds 2 system records besides mbp-10", "cut or two files were joined"),
        ("unmapped", "no symbol is mapped", ""),
        ("spreads", "holds only calendar spreads", ""),
        ("snapshot", "only the opening book snapshot", ""),
        ("unfinished", "no record ends an event", "no record of a kept instrument ends an event"),
        ("empty", "no record at all", ""),
        ("product", "holds no ES outright", ""),
        ("venue", "dataset XNAS.ITCH", ""),
        ("tick", "prices of ESH4 are no multiples of the tick 0.25", "no multiple of the tick 0.25"),
        ("action", "unknown actions 1 Z", "action 'Z'"),
        ("time", "1 record not between 2000 and 2100", "ts_recv 5, not between 2000 and 2100"),
        (
            "decades",
            "a record received in 2085, over 30 years after the first",
            "received on 2085-01-02, over 30 years",
        ),
        ("manifest", "manifest.json says 7", ""),
        ("weekend", "no event lies in a trading session", ""),
        ("holiday", "no event lies in a trading session", ""),
        ("one side", "no book ever has both sides", ""),
        ("middle of a day", "begins without the book before it", ""),
        ("other months", "no event of the lead month", ""),
        ("wide level", r"1 record with a size or count over 2\^31 - 1", r"record 1: a size or count over 2\^31 - 1"),
        ("wide order", r"1 record with a size or count over 2\^31 - 1", r"record 3: a size or count over 2\^31 - 1"),
        ("orders off the tick", "prices of ESH4 are no multiples", "record 3: a price that is no multiple"),
        ("cancel off the tick", "^usable for training", "taken"),
        ("unfinished off the tick", "^usable for training", "taken"),
        ("suspect off the tick", "^usable for training", "taken"),
        ("sound", "^usable for training", "taken"),
    ],
)
def test_the_verdict_names_the_reason_and_the_decoder_agrees(
    tmp_path: Path, how: str, words: str, decoder: str
) -> None:
    """decoder: what its refusal says where the verdict says it in other words; `taken` where it takes the file."""
    path = damaged(tmp_path, how)
    facts = facts_of(path)
    assert facts["usable"] == (decoder == "taken")
    assert re.search(words, facts["verdict"])
    if facts["usable"]:
        assert snapshots.decode(path, tmp_path, ES, 250)["segments"] > 0
    else:
        with pytest.raises(BadInput, match=decoder or words):
            snapshots.decode(path, tmp_path, ES, 250)


def test_what_the_default_settings_would_not_expect_is_told(tmp_path: Path) -> None:
    days = made.date(2024, 1, 1), made.date(2025, 1, 1)
    nasdaq = facts_of(made.write_mbp(tmp_path / "a.dbn", [mbp(T0)], mappings={"NQH4": [(*days, ESH4)]}))
    assert nasdaq["usable"] and nasdaq["warnings"] == ["of NQ: set data.root to NQ in foxhunt.toml"]
    both = {"NQH4": [(*days, ESM4)], "ESH4": [(*days, ESH4)]}
    facts = facts_of(made.write_mbp(tmp_path / "b.dbn", [mbp(T0), mbp(T0, iid=ESM4)], mappings=both))
    assert facts["usable"] and facts["warnings"] == ["of ES, NQ: only outrights of data.root are decoded"]
    late = [mbp(T0), mbp(made.ns("2024-03-11T15:00:00"))]  # ESH4 leads up to Friday 8 March 2024
    facts = facts_of(made.write_mbp(tmp_path / "c.dbn", late))
    assert [(s["date"], s["lead"]) for s in facts["sessions"]] == [("2024-03-01", "ESH4"), ("2024-03-11", "ESM4")]
    assert facts["warnings"] == ["the lead month of 2024-03-11, ESM4, is not in the file"] and facts["usable"]


@pytest.mark.parametrize(("last", "told"), [("13:29:59", False), ("13:30:00", True)])
def test_records_after_the_final_settlement_are_told_here_and_by_the_decoder(
    tmp_path: Path, last: str, told: bool
) -> None:
    """ESH4 settles on 15 March 2024 at 8:30 in Chicago."""
    path = made.write_mbp(tmp_path / "a.dbn", [mbp(made.ns(f"2024-03-15T{t}")) for t in ("13:29:00", last)])
    warnings = ["ESH4 expired at 2024-03-15 08:30 Chicago and has records until 2024-03-15 08:30; "
                "what follows the expiry is no market"] * told  # fmt: skip
    assert [w for w in facts_of(path)["warnings"] if "lead month" not in w] == warnings
    assert snapshots.decode(path, tmp_path, ES, 0)["warnings"] == warnings


def test_the_page_accounts_for_every_record_and_names_the_last_mapped_day(tmp_path: Path) -> None:
    opening = made.ns("2024-03-07T23:00:00")
    records = [mbp(opening - 9_000 * SECOND, flags=168), mbp(opening - SECOND), *(mbp(opening + i) for i in (1, 2))]
    mappings = {"ESH4": [(made.date(2024, 3, 7), made.date(2024, 3, 9), ESH4)]}
    page = inspect_text.text(facts_of(made.write_mbp(tmp_path / "a.dbn", records, mappings=mappings)))
    assert "before       1 record of the opening book snapshot\noutside      1 record in no session" in page
    assert "2024-03-08   2024-03-07 17:00:00  17:00:00        2        ESH4" in page
    assert "2024-03-07 to 2024-03-08" in page and "too short to train on alone" in page
    one_day = {"ESH4": [(made.date(2024, 3, 7), made.date(2024, 3, 8), ESH4)]}
    page = inspect_text.text(facts_of(made.write_mbp(tmp_path / "b.dbn", records, mappings=one_day)))
    assert "outright  2024-03-07  " in page


def test_a_cut_compressed_file_shows_what_was_read_and_that_it_is_cut(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    records = np.concatenate([mbp(T0 + i * MS) for i in range(2_000)])
    records["sequence"] = rng.integers(0, 2**32, len(records))
    path = made.write_mbp(tmp_path / "a.dbn.zst", [records])
    assert facts_of(path)["frames"] == 1
    path.write_bytes(path.read_bytes()[:-20])
    facts = facts_of(path)
    assert facts["frames"] is None and "cut" in facts["verdict"] and not facts["usable"]


def test_symbols_that_are_partly_or_not_known_are_told(real_data: Path, tmp_path: Path) -> None:
    facts = facts_of(real_data / "nautilus_trader/definition-glbx-es-futspread.dbn.zst")
    assert len(facts["instruments"]) == 41 and len(facts["partial"]) == 9
    kinds = [i["kind"] for i in facts["instruments"]]
    assert (kinds.count("outright"), kinds.count("spread")) == (21, 20)
    assert facts["warnings"][0].startswith("9 symbols known on some days of the request only: ")
    made_meta = databento_dbn.Metadata(
        dataset="GLBX.MDP3", schema=databento_dbn.Schema.MBP_10, start=T0, end=T0 + 1,
        stype_in=databento_dbn.SType.RAW_SYMBOL, stype_out=databento_dbn.SType.INSTRUMENT_ID, symbols=["ESH4", "ESX9"],
        partial=[], not_found=["ESX9"], version=3, ts_out=False, mappings=[],
    )  # fmt: skip
    facts = facts_of(made.write(tmp_path / "a.dbn", [bytes(made_meta), mbp(T0).tobytes()]))
    assert "1 symbol the venue does not know: ESX9" in facts["warnings"]


def test_a_degraded_day_is_told(tmp_path: Path) -> None:
    path = made.write_mbp(tmp_path / "a.dbn", [mbp(T0)])
    (tmp_path / "condition.json").write_text('[{"date": "2024-03-01", "condition": "degraded"}]')
    facts = facts_of(path)
    assert facts["warnings"] == ["2024-03-01 is degraded by condition.json"] and facts["usable"]


def test_a_batch_folder_is_held_to_its_manifest(tmp_path: Path) -> None:
    files = [made.write_mbp(tmp_path / f"{n}.dbn", [mbp(T0)]) for n in "abc"]
    entries = [
        {"filename": f.name, "size": f.stat().st_size, "hash": "sha256:" + hashlib.sha256(f.read_bytes()).hexdigest()}
        for f in files
    ]
    (tmp_path / "manifest.json").write_text(json.dumps({"files": entries}))
    facts = facts_of(tmp_path)
    assert facts["files"] == {"a.dbn": "ok", "b.dbn": "ok", "c.dbn": "ok"} and facts["usable"]
    files[1].unlink()
    files[2].write_bytes(files[2].read_bytes()[:-1] + b"x")
    facts = facts_of(tmp_path)
    assert facts["files"] == {"a.dbn": "ok", "b.dbn": "missing", "c.dbn": "changed or damaged"}
    assert facts["verdict"] == "2 of 3 files are not as the manifest says"
    (tmp_path / "empty").mkdir()
    with pytest.raises(BadInput, match=r"a folder without manifest\.json"):
        inspect.inspect(tmp_path / "empty")


def test_a_symbology_file_is_told_apart_from_data(real_data: Path) -> None:
    facts = facts_of(real_data / "alegitdude-Backtester/ES-20251105_symbology.csv")
    assert len(facts["instruments"]) == 41 and "no market data" in facts["verdict"]


def test_lobster_is_read_and_never_taken_for_es(real_data: Path) -> None:
    facts = facts_of(real_data / "lobster/AAPL_2012-06-21_34200000_57600000_message_10.csv")
    (aapl,) = facts["instruments"]
    assert (facts["records"], aapl["tick"], aapl["symbol"]) == (999, 10_000_000, "AAPL")
    assert sum(aapl["spreads"].values()) == 999 and aapl["spreads"]["18"] == 85 and aapl["spreads"]["61"] == 3
    assert not facts["usable"] and "no order counts" in facts["warnings"][0]


def test_the_command_prints_a_page_or_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = made.write_mbp(tmp_path / "a.dbn", [mbp(T0), mbp(T0 + 90 * SECOND)])
    assert main(["inspect", str(path)]) == 0
    page = capsys.readouterr().out
    assert page.splitlines()[0] == f"a.dbn  {path.stat().st_size:,} bytes"
    assert page.splitlines()[-1].startswith("verdict      usable for training: 2 min of trading")
    assert main(["inspect", str(path), "--json", "--gap", "100"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["records"] == 2 and facts["gap_count"] == 0 and facts["gap_s"] == 100
    (tmp_path / "b.dbn").write_bytes(b"nothing of the kind")
    assert main(["inspect", str(tmp_path / "b.dbn")]) == 2
    assert "no DBN header" in capsys.readouterr().err


def test_every_key_of_the_json_is_in_the_documentation(real_data: Path, tmp_path: Path) -> None:
    told = set(re.findall(r"`(\w+)`", (Path(__file__).parents[2] / "docs/market.md").read_text(encoding="utf-8")))
    (tmp_path / "condition.json").write_text("[]")
    lobster = "lobster/AAPL_2012-06-21_34200000_57600000_message_10.csv"
    for path in (real_data / HOUR, real_data / lobster, tmp_path):
        keys = set(facts_of(path))
        assert len(keys) > 5 and keys <= told, keys - told


@pytest.mark.parametrize("suffix", ["mbp.dbn", "mbo.dbn", "mbp.csv"])
def test_no_damage_brings_it_down(tmp_path: Path, suffix: str) -> None:
    """Bytes changed, cut out and cut off: a refusal or a page, never another error."""
    rng = np.random.default_rng(17)
    sound = tmp_path / f"sound.{suffix.removesuffix('.csv').removesuffix('.dbn')}"
    if "mbo" in suffix:
        made.write_mbo(tmp_path / suffix, [mbo(T0 + i, "A", "AB"[i % 2], i, 20_001 - i % 2, 1) for i in range(40)])
    else:
        made.write_mbp(sound, [mbp(T0 + i * MS, ask=20_001 + i % 3) for i in range(4)])
        if suffix.endswith("csv"):
            databento.DBNStore.from_file(sound).to_csv(tmp_path / suffix)
        else:
            sound.rename(tmp_path / suffix)
    whole, path = (tmp_path / suffix).read_bytes(), tmp_path / f"damaged.{suffix}"
    seen = set()
    for _ in range(80):
        raw = bytearray(whole)
        for at in rng.integers(0, len(raw), rng.integers(1, 4)):
            raw[at] = rng.integers(256)
        a, b = sorted(rng.integers(0, len(raw), 2).tolist())
        raw = [raw, raw[:a] + raw[b:], raw[: max(a, 1)]][rng.integers(3)]
        path.write_bytes(raw)
        try:
            seen.add(facts_of(path)["usable"])
        except BadInput as error:
            assert str(error).startswith(str(path)) and "\n" not in str(error)
            seen.add("refused")
    assert "refused" in seen and len(seen) > 1
