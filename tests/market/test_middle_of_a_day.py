"""An MBO file that begins without the book before it: rows from where ten levels of both sides are proven, no other."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from foxhunt_assets.contracts.instruments import contract
from foxhunt_assets.errors import BadInput
from foxhunt_assets.market import inspect, snapshots
from foxhunt_assets.market.dbn import F_SNAPSHOT, DbnReader
from foxhunt_assets.market.snapshot_folder import open_segments, open_snapshots
from tests.market import made_dbn as made
from tests.market.made_dbn import MS, mbo, ns

ES = contract("ES")
T0 = ns("2024-03-01T15:00:00")
HOUR = "nautilus_trader/esh4-glbx-mdp3-20231225.mbo.dbn.zst"


def decoded(path: Path) -> tuple[dict[str, Any], pa.Table]:
    """Report and rows of a file on the event clock."""
    report = snapshots.decode(path, path.parent, ES, snapshots.EVENT_CLOCK)
    snapshots.validate(path.parent)
    return report, open_snapshots(path.parent)


def ten_levels(t: int) -> list[np.ndarray]:
    """One event that adds orders 1 to 10 at 20,000 and below and 11 to 20 at 20,001 and above."""
    bids = [mbo(t, "A", "B", 1 + k, 20_000 - k, 5, 0) for k in range(10)]
    asks = [mbo(t, "A", "A", 11 + k, 20_001 + k, 5, 128 * (k == 9)) for k in range(10)]
    return bids + asks


@pytest.mark.parametrize(
    ("low", "high", "proven"), [(19_990, 20_011, 1), (19_991, 20_011, 0), (19_990, 20_010, 0), (None, None, 0)]
)
def test_ten_levels_are_known_once_trades_went_beyond_both_tenths(
    tmp_path: Path, low: int | None, high: int | None, proven: int
) -> None:
    trades = [] if low is None else [mbo(T0, "T", "B", 0, high, 1), mbo(T0, "T", "A", 0, low, 1)]
    records = [
        *trades, *ten_levels(T0 + MS),
        mbo(T0 + 2 * MS, "C", "B", 10, 19_991, 5),  # nine levels: whatever lay below the range may be the tenth
        mbo(T0 + 3 * MS, "A", "B", 21, 19_991, 5),
        mbo(T0 + 4 * MS, "R", "N", 0, 0, 0), mbo(T0 + 5 * MS, "A", "A", 22, 20_005, 5),
    ]  # fmt: skip
    path = made.write_mbo(tmp_path / "a.dbn", records, clear=False)
    if not proven:
        with pytest.raises(BadInput, match="no book ever has both sides"):
            decoded(path)
        return
    report, rows = decoded(path)
    assert rows["source_row"].to_pylist() == [21, 23, 25], "after an R the book is known whatever has traded"
    assert open_segments(tmp_path)["ended_by"].to_pylist() == ["gap", "reset", "file"]
    assert rows["ofi"][1].as_py() == [0] * 10, "nothing of the events between"
    assert report["unproven_events"] == len(trades) + 1
    assert report["warnings"] == [
        "begins without the book before it: 3 of 6 event ends make no row, because older orders may lie on their ten "
        "levels; download it from the start of a UTC day"
    ]
    facts = inspect.inspect(path)
    assert facts["unproven_events"] == 3 and "1 session, rows of 50% of it" in facts["verdict"]


def cut_hour(real_data: Path, folder: Path, first: int, clear: bool) -> Path:
    """The real hour from record `first` on, with or without a clear that calls the book empty there."""
    with DbnReader(real_data / HOUR) as reader:
        records = np.concatenate([b.copy() for b in reader.batches()]).view(reader.header.dtype).ravel()[first:]
        symbols = {"ESH4": [(date(2023, 12, 1), date(2024, 3, 15), int(records["instrument_id"][0]))]}
    folder.mkdir()
    return made.write_mbo(folder / "a.dbn.zst", [records], clear=clear, mappings=symbols)


def books_of(table: pa.Table, shift: int = 0) -> dict[int, bytes]:
    """The ten levels of each row by its record."""
    planes = np.stack([np.array(table[f"{s}_{p}"].to_pylist()) for s in ("bid", "ask") for p in ("px", "sz", "ct")], 1)
    return {row + shift: levels.tobytes() for row, levels in zip(table["source_row"].to_pylist(), planes, strict=True)}


@pytest.mark.slow
@pytest.mark.parametrize("first", [9_500, 17_198])
def test_of_the_real_hour_cut_open_the_rows_that_are_right_are_kept_and_no_other(
    real_data: Path, tmp_path: Path, first: int
) -> None:
    """Against the books of the whole hour. Called whole, the same file has at least 19 wrong rows in 20."""
    (tmp_path / "whole").mkdir()
    snapshots.decode(real_data / HOUR, tmp_path / "whole", ES, snapshots.EVENT_CLOCK)
    true = books_of(open_snapshots(tmp_path / "whole"))
    naive = books_of(decoded(cut_hour(real_data, tmp_path / "naive", first, clear=True))[1], first - 1)
    right = {row for row, levels in naive.items() if levels == true[row]}
    assert 1_000 < len(right) < len(naive) / 20
    path = cut_hour(real_data, tmp_path / "cut", first, clear=False)
    report, rows = decoded(path)
    kept = books_of(rows, first)
    assert set(kept) == right and all(levels == true[row] for row, levels in kept.items())
    assert report["unproven_events"] == len(naive) - len(kept) == inspect.inspect(path)["unproven_events"]


def test_the_second_half_of_the_real_hour_is_never_proven(real_data: Path, tmp_path: Path) -> None:
    path = cut_hour(real_data, tmp_path / "half", 34_396, clear=False)
    with pytest.raises(BadInput, match="trading never proves ten levels of both sides; download it from the start"):
        snapshots.decode(path, path.parent, ES, 250)


def test_a_clear_at_the_start_makes_the_book_of_its_own_instrument_known_and_a_snapshot_all(tmp_path: Path) -> None:
    both = {"ESH4": [(*made.YEAR, made.ESH4)], "ESM4": [(*made.YEAR, made.ESM4)]}
    other = ten_levels(T0 + MS)
    for record in other:
        record["instrument_id"] = made.ESM4
    records = [mbo(T0, "R", "N", 0, 0, 0), *ten_levels(T0), *other]
    for flags, known in ((0, ["ESH4"]), (F_SNAPSHOT, ["ESH4", "ESM4"])):
        records[0]["flags"] = flags
        path = made.write_mbo(tmp_path / "a.dbn", records, clear=False, mappings=both)
        report = snapshots.decode(path, tmp_path, ES, snapshots.EVENT_CLOCK, "all")
        assert open_segments(tmp_path)["symbol"].to_pylist() == known
        assert report["unproven_events"] == 2 - len(known)
