"""LOBSTER pairs: the books of the files in our columns, and nothing that the format does not have."""

from __future__ import annotations

import csv
from collections import Counter
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from zoneinfo import ZoneInfo

import numpy as np
import pytest

from foxhunt_assets.contracts.tables import ABSENT_PX
from foxhunt_assets.errors import BadInput
from foxhunt_assets.market import lobster

NAME = "AAPL_2012-06-21_34200000_57600000_{}_10.csv"
OPEN = int(datetime(2012, 6, 21, tzinfo=ZoneInfo("America/New_York")).timestamp()) * 10**9


def table(path: Path) -> list[list[str]]:
    with path.open(newline="") as f:
        return list(csv.reader(f))


def read(path: Path) -> dict[str, np.ndarray]:
    blocks = list(lobster.books(lobster.pair_of(path)))
    return {name: np.concatenate([b[name] for b in blocks]) for name in blocks[0]}


def write(folder: Path, messages: list[str], quotes: list[str]) -> Path:
    (folder / NAME.format("message")).write_text("".join(line + "\n" for line in messages))
    (folder / NAME.format("orderbook")).write_text("".join(line + "\n" for line in quotes))
    return folder / NAME.format("message")


def quote(ask: int, bid: int) -> str:
    """Level k lies k cents further out with 100 + k shares; the tenth bid is not there."""
    levels = [[ask + 100 * k, 100 + k, bid - 100 * k, 100 + k] for k in range(10)]
    levels[9][2:] = [lobster.NO_BID, 0]
    return ",".join(str(x) for level in levels for x in level)


def test_every_row_of_the_real_pair_equals_the_files(real_data: Path) -> None:
    got = read(real_data / "lobster" / NAME.format("orderbook"))
    quotes = np.array(table(real_data / "lobster" / NAME.format("orderbook")), np.int64).reshape(-1, 10, 4)
    assert len(quotes) == len(got["ts_event"]) == 999
    for column, place in (("ask_px", 0), ("ask_sz", 1), ("bid_px", 2), ("bid_sz", 3)):
        unit = 100 if column.endswith("px") else 1  # a cent is 100 of its 1e-4 dollars
        assert (got[column].astype(np.int64) * unit == quotes[:, :, place]).all(), column
    assert not got["bid_ct"].any() and not got["ask_ct"].any(), "the format has no order counts"
    messages = table(real_data / "lobster" / NAME.format("message"))
    assert got["ts_event"].tolist() == [OPEN + int(Decimal(m[0]) * 10**9) for m in messages]
    assert got["order_id"].tolist() == [int(m[2]) for m in messages]
    assert got["size"].tolist() == [int(m[3]) for m in messages]
    kinds = Counter(m[1] for m in messages)
    actions = Counter(chr(a) for a in got["action"])
    assert actions == {"A": kinds["1"], "C": kinds["2"] + kinds["3"], "T": kinds["4"] + kinds["5"]}
    spread = got["ask_px"][:, 0] - got["bid_px"][:, 0]
    assert (int(spread.min()), int(np.median(spread)), int(spread.max())) == (1, 22, 61)


def test_a_trade_names_its_aggressor_and_other_events_their_side(tmp_path: Path) -> None:
    kinds = [(1, 1), (1, -1), (4, 1), (4, -1), (6, -1), (7, -1)]
    messages = [f"34200.00000000{n},{kind},9,5,100,{direction}" for n, (kind, direction) in enumerate(kinds)]
    got = read(write(tmp_path, messages, [quote(10_100, 10_000)] * len(kinds)))
    assert bytes(got["action"]) == b"AATTTN" and bytes(got["side"]) == b"BAABNN"
    assert (got["ts_event"] - OPEN).tolist() == [34_200 * 10**9 + n for n in range(len(kinds))]
    assert (got["bid_px"][:, 9] == ABSENT_PX).all() and not got["bid_sz"][:, 9].any()
    assert got["bid_px"][0, :3].tolist() == [100, 99, 98] and got["ask_px"][0, 0] == 101


def test_blocks_of_two_files_are_cut_to_one_length(tmp_path: Path) -> None:
    n = 30_000  # the book file comes in more blocks than the message file
    messages = [f"34200.{k:09d},1,{k},1,100,1" for k in range(n)]
    path = write(tmp_path, messages, [quote(10_100 + 100 * (k % 50), 10_000) for k in range(n)])
    blocks = list(lobster.books(lobster.pair_of(path)))
    assert len(blocks) > 1
    assert np.concatenate([b["order_id"] for b in blocks]).tolist() == list(range(n))
    assert np.concatenate([b["ask_px"][:, 0] for b in blocks]).tolist() == [101 + k % 50 for k in range(n)]


@pytest.mark.parametrize(
    ("messages", "quotes", "words"),
    [
        (["34200.1,1,9,5,100,1"] * 2, [quote(10_100, 10_000)], "message_10.csv: more than the 1 rows"),
        (["34200.1,1,9,5,100,1"], [quote(10_100, 10_000)] * 2, "orderbook_10.csv: more than the 1 rows"),
        (["34200.1,9,9,5,100,1"], [quote(10_100, 10_000)], "row 0: type 9, none of 1 to 7"),
        (["34200.1,1,9,5,100,1"], [quote(10_150, 10_000)], "row 0: a price that is no multiple of 0.01"),
        (["34200.1,1,9,5,100"], [quote(10_100, 10_000)], "message_10.csv: .*columns"),
        (["34200.1,1,9,x,100,1"], [quote(10_100, 10_000)], "message_10.csv: .*invalid value 'x'"),
    ],
)
def test_a_broken_pair_is_refused(tmp_path: Path, messages: list[str], quotes: list[str], words: str) -> None:
    with pytest.raises(BadInput, match=words):
        read(write(tmp_path, messages, quotes))


def test_half_a_pair_and_other_depths_are_refused(tmp_path: Path) -> None:
    path = write(tmp_path, [], [])
    (tmp_path / NAME.format("orderbook")).unlink()
    with pytest.raises(BadInput, match=r"orderbook_10\.csv: no such file"):
        lobster.pair_of(path)
    with pytest.raises(BadInput, match="5 levels, 10 are needed"):
        lobster.pair_of(tmp_path / "AAPL_2012-06-21_34200000_57600000_message_5.csv")
    assert not lobster.is_lobster(tmp_path / "a.csv")
