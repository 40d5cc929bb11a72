"""Real aggressors replayed through the fill rule, and small books whose answer is known."""

from __future__ import annotations

from pathlib import Path

import pytest

from foxhunt_assets.contracts.instruments import CONTRACTS
from foxhunt_assets.errors import BadInput
from foxhunt_assets.evaluation import fills
from foxhunt_assets.market import snapshots
from foxhunt_assets.market.snapshot_folder import open_snapshots
from tests.market import made_dbn as made

ES = CONTRACTS["ES"]
T0 = made.ns("2024-03-01T15:00:00")
HOUR = "nautilus_trader/esh4-glbx-mdp3-20231225.mbo.dbn.zst"


def replay(path: Path, out: Path) -> fills.Replay:
    snapshots.decode(path, out, ES, snapshots.EVENT_CLOCK)
    return fills.replay(path, open_snapshots(out), ES.tick)


def test_each_reason_on_a_book_of_three_prices(tmp_path: Path) -> None:
    """Bids 5 at 100 and 5 at 99; asks 5 at 101 and 5 at 102. Trades never change the book here: no C follows them."""
    book = [("B", 100), ("B", 99), ("A", 101), ("A", 102)]
    records = [made.mbo(T0 + i, "A", side, 1 + i, px, 5) for i, (side, px) in enumerate(book)]
    trades = [
        ("B", 101, 5, 0), ("B", 102, 3, made.F_LAST),  # one aggressor takes two prices
        ("A", 100, 5, made.F_LAST),
        ("A", 100, 8, made.F_LAST),  # more than the 5 displayed
        ("B", 102, 2, made.F_LAST),  # while 101 is displayed
        ("A", 101, 1, made.F_LAST),  # better than any bid
        ("N", 101, 4, made.F_LAST),
    ]  # fmt: skip
    records += [made.mbo(T0 + 100 + i, "T", s, 0, px, n, flags) for i, (s, px, n, flags) in enumerate(trades)]
    got = replay(made.write_mbo(tmp_path / "a.dbn", records), tmp_path)
    names = [list(fills.REASONS)[i] for i in got.reason]
    assert names == [
        "match", "match", "match", "more_than_displayed", "less_than_displayed", "better_than_displayed", "no_side",
    ]  # fmt: skip
    assert got.filled.tolist() == [5, 3, 5, 8, 2, 1, 0]
    assert got.tick_lots.tolist() == [505, 306, 500, 5 * 100 + 3 * 99, 2 * 101, 100, 0]
    assert got.lot_rate == pytest.approx(6 / 7) and got.price_rate == pytest.approx(3 / 7)
    assert got.mean_error_ticks == pytest.approx((3 - 2 + 1) / 24)


def test_a_crossed_book_fills_nothing(tmp_path: Path) -> None:
    records = [made.mbo(T0, "A", "B", 1, 100, 5), made.mbo(T0 + 1, "A", "A", 2, 99, 5)]
    got = replay(made.write_mbo(tmp_path / "a.dbn", [*records, made.mbo(T0 + 2, "T", "B", 0, 99, 1)]), tmp_path)
    assert got.counts()["unsound_book"] == 1 and got.lot_rate == 0


def test_a_file_without_a_trade_or_without_orders_is_refused(tmp_path: Path) -> None:
    orders = [made.mbo(T0, "A", "B", 1, 100, 5), made.mbo(T0, "A", "A", 2, 101, 5)]
    quotes = made.write_mbo(tmp_path / "a.dbn", orders)
    with pytest.raises(BadInput, match="no trade"):
        replay(quotes, tmp_path)
    with pytest.raises(BadInput, match="needs an MBO file"):
        replay(made.write_mbp(tmp_path / "b.dbn", [made.mbp(T0)]), tmp_path)


def test_real_aggressors_of_the_hour(real_data: Path, tmp_path: Path) -> None:
    """2,973 trades, 9,892 lots: 25 meet icebergs, 9 find less than was displayed, one is the opening cross."""
    got = replay(real_data / HOUR, tmp_path)
    assert len(got.record) == 2_973 and got.lots.sum() == 9_892
    assert got.counts() == {
        "match": 2_938, "no_side": 1, "unsound_book": 0, "more_than_displayed": 25, "less_than_displayed": 9,
        "better_than_displayed": 0,
    }  # fmt: skip
    assert (got.filled == got.lots).sum() == 2_972
    assert got.price_rate == pytest.approx(0.98823, abs=1e-5)
    assert got.mean_error_ticks == pytest.approx(0.0191, abs=1e-4)
