"""The compiled rules of snapshot rows against the same rules in numpy, on rows with random damage."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from foxhunt_assets.contracts.instruments import CONTRACTS
from foxhunt_assets.contracts.tables import ABSENT_PX
from foxhunt_assets.market import snapshots
from foxhunt_assets.market.row_rules import RULES, RowRules, Rows, Table
from foxhunt_assets.market.snapshot_folder import open_segments, open_snapshots, values
from tests.market import made_dbn as made
from tests.market import rules_by_hand

T0 = made.ns("2024-03-01T15:00:00")
SECOND = 10**9
EDGES = (0, 1, -1, 2, 250_000_000, 20_003, 2**30, -(2**30), ABSENT_PX, 2**31 - 1)


def rows_of(folder: Path, grid_ms: int) -> tuple[dict[str, np.ndarray], Table]:
    """Two instruments one after the other, with trades, a silence and rows outside every session."""
    two = {"ESH4": [(*made.YEAR, made.ESH4)], "ESM4": [(*made.YEAR, made.ESM4)]}
    evening = made.ns("2024-03-01T21:59:59")
    records = [
        made.mbp(t + i * 300 * made.MS, 20_000 + i % 3, 20_001 + i % 3, iid=iid, action="TA"[i % 2], size=i % 4)
        for t in (T0, T0 + 150 * SECOND, evening)
        for i in range(150)
        for iid in (made.ESH4, made.ESM4)
    ]
    path = made.write_mbp(folder / "a.dbn", records, mappings=two)
    snapshots.decode(path, folder, CONTRACTS["ES"], grid_ms, "all")
    batch = open_snapshots(folder).combine_chunks().to_batches()[0]
    segments = open_segments(folder).to_pylist()
    parts = (np.array([s[name] for s in segments], np.int64) for name in ("row_start", "row_end", "instrument_id"))
    return {name: values(batch[name]).copy() for name in Rows._fields}, Table(*parts)


def compiled(c: dict[str, np.ndarray], grid: int, by_series: bool, table: Table, cut: int) -> list[str]:
    """What the rules say of rows [0, cut) and of the rest."""
    rules = RowRules(grid, by_series, table)
    return [rules.first_broken(Rows(**{n: v[part] for n, v in c.items()})) for part in (slice(cut), slice(cut, None))]


def as_they_are_made(c: dict[str, np.ndarray], grid: int, by_series: bool, table: Table, cut: int) -> str:
    """What the rules say when the table is known only after all rows."""
    rules = RowRules(grid, by_series)
    for part in (slice(cut), slice(cut, None)):
        rules.first_broken(Rows(**{n: v[part] for n, v in c.items()}))
    return rules.fault or rules.off_table(table)


def damage(c: dict[str, np.ndarray], rng: np.random.Generator) -> None:
    """A value changed; or a level taken away; or a best price far away; or the clock put forward from some row on."""
    row = rng.integers(len(c["ts"]))
    kind = rng.integers(8)
    if kind == 0:
        c["ts"][row:] += 250 * made.MS
    elif kind == 1:
        side, level = rng.choice(["bid", "ask"]), rng.integers(10)
        for plane, nothing in (("px", ABSENT_PX), ("sz", 0), ("ct", 0)):
            c[f"{side}_{plane}"][row, level] = nothing
    elif kind == 2:
        side, far = (("bid", 2**30), ("ask", -(2**30)))[rng.integers(2)]
        c[f"{side}_px"][row, 0] = far - rng.integers(2) * np.sign(far)
    else:
        column = c[rng.choice(Rows._fields)].reshape(len(c["ts"]), -1)
        place = rng.integers(column.shape[1])
        value = int(rng.choice(EDGES)) + int(rng.integers(2)) * int(column[row, place])
        column[row, place] = np.int64(value).astype(column.dtype)


@pytest.mark.parametrize("grid_ms", [0, 250])
def test_random_damage_is_named_as_by_the_rules_in_numpy(tmp_path: Path, grid_ms: int) -> None:
    sound, table = rows_of(tmp_path, grid_ms)
    n, grid = len(sound["ts"]), grid_ms * 10**6
    assert compiled(sound, grid, True, table, n // 2) == ["", ""]
    assert as_they_are_made(sound, grid, True, table, n // 2) == ""
    for short in (Table(*(column[:-1] for column in table)), Table(*(column[1:] for column in table))):
        assert "than the table says" in as_they_are_made(sound, grid, True, short, n // 2)
    rng = np.random.default_rng(grid_ms)
    named = set()
    for _ in range(2_000):
        c = {name: column.copy() for name, column in sound.items()}
        for _ in range(rng.integers(1, 3)):
            damage(c, rng)
        by_series = bool(rng.integers(4))
        want = rules_by_hand.first_broken(c, grid, by_series, table)
        assert compiled(c, grid, by_series, table, n) == [want, ""]
        named.add(want.partition(": ")[2].partition(" (")[0])
        cut = compiled(c, grid, by_series, table, n // 2)
        assert bool(cut[0] or cut[1]) == bool(want), "where a batch ends hides nothing"
        late = as_they_are_made(c, grid, by_series, table, n // 2)
        assert bool(late) == bool(want), "nor does a table that comes last"
    on_the_grid = {"ts is no multiple of {grid} ns", "not {grid} ns after the row before"}
    reachable = {rule.format(grid=grid) for rule in RULES if grid or rule not in on_the_grid}
    assert named - {""} == reachable, "every rule has been broken"
