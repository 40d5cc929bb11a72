"""Rows against the records they name: an honest folder has no fault, and every kind of difference is found."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from foxhunt_assets.contracts.instruments import contract
from foxhunt_assets.market import snapshots
from foxhunt_assets.market.snapshot_folder import open_snapshots
from foxhunt_assets.market.trace import trace_faults
from tests.market import made_dbn as made
from tests.market.made_dbn import MS, mbo, mbp, ns

ES = contract("ES")
T0 = ns("2024-03-01T15:00:00")


@pytest.fixture
def decoded(tmp_path: Path) -> tuple[Path, Path]:
    """(file, folder) of 40 records; one has an empty side."""
    records = [mbp(T0 + i * 200 * MS, bid=20_000 + i, ask=None if i == 7 else 20_001 + i, lag=5) for i in range(40)]
    path = made.write_mbp(tmp_path / "a.dbn", records)
    snapshots.decode(path, tmp_path, ES, 0)
    return path, tmp_path


def test_an_honest_folder_is_traced_whole_or_by_sample(decoded: tuple[Path, Path]) -> None:
    assert trace_faults(*decoded, ES, 1_000) == ([], 40)
    assert trace_faults(*decoded, ES, 7) == ([], 7)


def rewrite(folder: Path, name: str, row: int, value: int, level: int | None = None) -> None:
    table = open_snapshots(folder)
    held = pa.table([pa.array(c.to_pylist(), c.type) for c in table.columns], schema=table.schema)
    values = held[name].to_pylist()
    if level is None:
        values[row] = value
    else:
        values[row][level] = value
    held = held.set_column(held.column_names.index(name), held.schema.field(name), pa.array(values, held[name].type))
    with pa.ipc.new_file(str(folder / "snapshots.arrow"), held.schema) as writer:
        writer.write_table(held)


@pytest.mark.parametrize(
    ("name", "value", "level"),
    [
        ("bid_px", 20_002, 0), ("ask_px", -(2**31), 9), ("bid_sz", 11, 0), ("ask_ct", 3, 3),
        ("ts_event", T0, None), ("ts_recv", T0, None), ("instrument_id", 5, None), ("action", 67, None),
        ("side", 65, None), ("flags", 130, None),
    ],
)  # fmt: skip
def test_any_other_value_is_found_and_the_record_named(
    decoded: tuple[Path, Path], name: str, value: int, level: int | None
) -> None:
    path, folder = decoded
    rewrite(folder, name, 3, value, level)
    (fault,) = trace_faults(path, folder, ES, 1_000)[0]
    assert fault == f"record 3: {name} is not what its row says (1 such rows)"


def test_a_price_on_an_absent_level_and_a_row_past_the_file_are_found(decoded: tuple[Path, Path]) -> None:
    path, folder = decoded
    rewrite(folder, "ask_px", 7, 20_008, 0)
    assert trace_faults(path, folder, ES, 1_000)[0] == ["record 7: ask_px is not what its row says (1 such rows)"]
    rewrite(folder, "ask_px", 7, -(2**31), 0)
    rewrite(folder, "source_row", 39, 40)
    assert trace_faults(path, folder, ES, 1_000)[0] == ["1 rows name records past the 40 of a.dbn"]


def test_another_tick_is_found_in_either_schema(tmp_path: Path) -> None:
    """The same rows read as NQ of a tick of 0.10, were there one: no price of the file fits."""
    from dataclasses import replace

    orders = [mbo(T0, "A", "B", 1, 20_000, 5), mbo(T0 + MS, "A", "A", 2, 20_001, 7)]
    path = made.write_mbo(tmp_path / "a.dbn", orders)
    snapshots.decode(path, tmp_path, ES, 0)
    assert trace_faults(path, tmp_path, ES, 10) == ([], 2)
    odd = replace(ES, tick=100_000_000)
    (fault,) = trace_faults(path, tmp_path, odd, 10)[0]
    assert fault == "record 2: price on the tick is not what its row says (1 such rows)"


def test_the_real_hour_is_traced_in_every_series_order(real_data: Path, tmp_path: Path) -> None:
    path = real_data / "nautilus_trader/esh4-glbx-mdp3-20231225.mbo.dbn.zst"
    snapshots.decode(path, tmp_path, ES, 250, "all")
    assert trace_faults(path, tmp_path, ES, 2_000) == ([], 2_000)


def test_a_parent_file_is_traced_though_its_rows_lie_series_after_series(tmp_path: Path) -> None:
    both = {"ESH4": [(*made.YEAR, made.ESH4)], "ESM4": [(*made.YEAR, made.ESM4)]}
    records = np.concatenate([mbp(T0 + i * MS, iid=(made.ESH4, made.ESM4)[i % 2], bid=20_000 + i, ask=20_001 + i)
                              for i in range(9)])  # fmt: skip
    path = made.write_mbp(tmp_path / "a.dbn", [records], mappings=both)
    snapshots.decode(path, tmp_path, ES, 0, "all")
    assert open_snapshots(tmp_path)["source_row"].to_pylist() == [0, 2, 4, 6, 8, 1, 3, 5, 7]
    assert trace_faults(path, tmp_path, ES, 100) == ([], 9)
