"""Every real file is decoded and checked, or refused with the right reason; `inspect` says the same of it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import pytest

from foxhunt_assets.contracts.instruments import contract
from foxhunt_assets.errors import BadInput
from foxhunt_assets.market import inspect, snapshots
from foxhunt_assets.market.snapshot_folder import open_snapshots

ES = contract("ES")
NO_BOOK = "schema {} does not hold ten book levels"
ONE_LEVEL = "schema {} holds one book level, not ten"
VENUE = r"dataset {}; only GLBX\.MDP3 \(CME Globex\) is known here"


@dataclass(frozen=True)
class Outcome:
    """rows: on the event clock, where the file decodes. decode: what its refusal says. inspect: words of the verdict;
    records: what it counts (None: it refuses the file with the words of `inspect`)."""

    rows: int | None = None
    decode: str = ""
    inspect: str = ""
    records: int | None = None


def decoded(rows: int, records: int) -> Outcome:
    return Outcome(rows=rows, records=records, inspect="^usable for training")


def refused(words: str, records: int | None, verdict: str = "") -> Outcome:
    return Outcome(decode=words, records=records, inspect=verdict or words)


NO_HEADER = "no DBN header"
LOBSTER = refused("names no columns; not a Databento CSV", 999, "LOBSTER, a Nasdaq equity")
OUTCOMES = {
    "alegitdude-Backtester/ES-20251105_symbology.csv": refused("no book schema", 0, "no market data"),
    "alegitdude-Backtester/futures_mbo.csv": decoded(15, 20),
    "alegitdude-Backtester/futures_mbo.csv.zst": decoded(15, 20),
    "blockhouse-arl/mbo.csv": refused(VENUE.format("XNAS.ITCH"), 5_886),
    "blockhouse-arl/mbp.csv": refused(VENUE.format("XNAS.ITCH"), 3_928),
    "blockhouse-frog/FROG.zip": refused(VENUE.format("XNAS.ITCH"), 33_286),
    "databento-python/EQUS.MINI__test_data.bbo-1s.dbn.zst": refused(ONE_LEVEL.format("bbo-1s"), 4),
    "databento-python/GLBX.MDP3__test_data.mbp-1.dbn.zst": refused(ONE_LEVEL.format("mbp-1"), 4),
    "databento-python/GLBX.MDP3__test_data.mbp-10.dbn.zst": decoded(4, 4),
    "databento-python/IFEU.IMPACT__test_data.definition.dbn.zst": refused(NO_BOOK.format("definition"), 1),
    "databento-python/NDEX.IMPACT__test_data.mbo.dbn.zst": refused(VENUE.format("NDEX.IMPACT"), 4),
    "databento-python/NDEX.IMPACT__test_data.mbp-10.dbn.zst": refused(VENUE.format("NDEX.IMPACT"), 4),
    "dbn/multi-frame.definition.v1.dbn.frag.zst": refused(NO_HEADER, None),
    "dbn/test_data.bbo-1s.v3.dbn.zst": refused(ONE_LEVEL.format("bbo-1s"), 4),
    "dbn/test_data.definition.v1.dbn.frag": refused(NO_HEADER, None),
    "dbn/test_data.definition.v1.dbn.zst": refused(NO_BOOK.format("definition"), 2),
    "dbn/test_data.definition.v3.dbn.zst": refused(NO_BOOK.format("definition"), 2),
    "dbn/test_data.mbo.v1.dbn.zst": refused("begins without the book before it", 2),
    "dbn/test_data.mbo.v3.dbn": refused("begins without the book before it", 2),
    "dbn/test_data.mbp-1.v3.dbn.zst": refused(ONE_LEVEL.format("mbp-1"), 2),
    "dbn/test_data.mbp-10.dbz": refused("a DBZ file", None),
    "dbn/test_data.mbp-10.v1.dbn.zst": decoded(2, 2),
    "dbn/test_data.mbp-10.v3.dbn.zst": decoded(2, 2),
    "dbn/test_data.ohlcv-1d.v3.dbn.zst": refused(NO_BOOK.format("ohlcv-1d"), 0),
    "dbn/test_data.statistics.v3.dbn.zst": refused(NO_BOOK.format("statistics"), 2),
    "dbn/test_data.status.v3.dbn.zst": refused(NO_BOOK.format("status"), 4),
    "dbn/test_data.tbbo.v3.dbn.zst": refused(ONE_LEVEL.format("tbbo"), 2),
    "dbn/test_data.trades.v1.dbn.zst": refused(NO_BOOK.format("trades"), 2),
    "hftbacktest/hyperliquid_btcusd_20250126.gz": refused("gzip, which Databento does not use", None),
    "hftbacktest/spot_ethusdt_20240808.gz": refused("gzip, which Databento does not use", None),
    "lobster/AAPL_2012-06-21_34200000_57600000_message_10.csv": LOBSTER,
    "lobster/AAPL_2012-06-21_34200000_57600000_orderbook_10.csv": LOBSTER,
    "nautilus_trader/crates__test_data.definition.futures_contract.dbn.zst": refused(NO_BOOK.format("definition"), 1),
    "nautilus_trader/definition-glbx-es-fut.dbn.zst": refused(NO_BOOK.format("definition"), 2),
    "nautilus_trader/definition-glbx-es-futspread.dbn.zst": refused(NO_BOOK.format("definition"), 2),
    "nautilus_trader/esh4-glbx-mdp3-20231224.mbo.dbn.zst": refused("holds only the opening book snapshot", 8_725),
    "nautilus_trader/esh4-glbx-mdp3-20231225.mbo.dbn.zst": decoded(47_022, 68_792),
    "nautilus_trader/futures_bbo-1m_2024-05-09T09-55_2024-05-09T10-05.dbn.zst": refused(ONE_LEVEL.format("bbo-1m"), 20),
    "nautilus_trader/futures_mbp-1_2024-07-01T23-58_2024-07-02T00-02.dbn.zst": refused(
        ONE_LEVEL.format("mbp-1"), 2_288
    ),
    "nautilus_trader/futures_ohlcv-1m_2024-07-01T23-40_2024-07-02T00-10.dbn.zst": refused(
        NO_BOOK.format("ohlcv-1m"), 60
    ),
    "nautilus_trader/futures_trades_2024-07-01T23-58_2024-07-02T00-02.dbn.zst": refused(NO_BOOK.format("trades"), 120),
    "nautilus_trader/historical_bars__futures_definition.dbn.zst": refused(NO_BOOK.format("definition"), 2),
    "nautilus_trader/options_catalog__futures_definition.dbn.zst": refused(NO_BOOK.format("definition"), 2),
}  # fmt: skip


def test_no_real_file_is_left_out(real_data: Path) -> None:
    there = {p.relative_to(real_data).as_posix() for p in real_data.rglob("*") if p.is_file()} - {"README.md"}
    assert there == set(OUTCOMES)


@pytest.mark.parametrize("name", OUTCOMES)
def test_a_real_file_is_decoded_or_refused_with_its_reason(real_data: Path, tmp_path: Path, name: str) -> None:
    want, path = OUTCOMES[name], real_data / name
    if want.rows is None:
        with pytest.raises(BadInput, match=want.decode) as error:
            snapshots.decode(path, tmp_path, ES, snapshots.EVENT_CLOCK)
        assert str(error.value).startswith(f"{path}: ") and "\n" not in str(error.value)
        return
    assert snapshots.decode(path, tmp_path, ES, snapshots.EVENT_CLOCK)["rows"] == want.rows
    snapshots.validate(tmp_path)
    assert open_snapshots(tmp_path).num_rows == want.rows


@pytest.mark.parametrize("name", OUTCOMES)
def test_inspect_says_the_same_of_a_real_file(real_data: Path, name: str) -> None:
    want, path = OUTCOMES[name], real_data / name
    if want.records is None:
        with pytest.raises(BadInput, match=want.inspect):
            inspect.inspect(path)
        return
    facts = inspect.inspect(path)
    assert facts["records"] == want.records
    assert re.search(want.inspect, facts["verdict"]), facts["verdict"]
    assert facts["usable"] == (want.rows is not None)
