"""Which test springs each trap of these formats and markets, and each public report of a reader that fell into one.

`traps.tsv` has a line for each: the tests that fail if the code falls in, or why it cannot. What is held here: the list
is whole, every test it names exists, and the few traps that no other file tests.
"""

from __future__ import annotations

import ast
import csv
from datetime import date
from pathlib import Path

import numpy as np
import torch

from foxhunt_assets.contracts.instruments import contract
from foxhunt_assets.market import snapshots, tape
from foxhunt_assets.market.folds import TapeSource
from foxhunt_assets.market.labels import make_labels
from foxhunt_assets.market.snapshot_folder import open_snapshots
from tests.market import made_dbn as made
from tests.market.made_dbn import MS, mbp, ns
from tests.market.made_snapshots import random_columns, segment, write_folder

TESTS = Path(__file__).resolve().parents[1]
IDS = [f"T{n}" for n in range(1, 42)] + [f"case {n}" for n in range(1, 26)]


def table() -> list[dict[str, str]]:
    with (TESTS / "market/traps.tsv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, delimiter="\t"))


def functions_of(path: Path) -> set[str]:
    """Names of the test functions of a file."""
    body = ast.parse(path.read_text(encoding="utf-8")).body
    return {f.name for f in body if isinstance(f, ast.FunctionDef) and f.name.startswith("test_")}


def test_every_trap_and_every_public_report_has_one_line() -> None:
    rows = table()
    assert [row["id"] for row in rows] == IDS
    for row in rows:
        assert 3 <= len(row["what"].split()) <= 12, row["id"]
        assert bool(row["tests"]) != bool(row["reason"]), f"{row['id']}: tests, or the reason why there can be none"
        assert bool(row["source"]) == row["id"].startswith("case"), row["id"]
        assert not row["source"] or ("/" in row["source"] and "#" in row["source"])


def test_every_test_that_is_named_exists() -> None:
    named = {name for row in table() for name in row["tests"].split()}
    assert len(named) > 50
    there = {path: functions_of(TESTS / path) for path in {name.partition("::")[0] for name in named}}
    assert [name for name in sorted(named) if name.partition("::")[2] not in there[name.partition("::")[0]]] == []


def test_prices_stay_as_they_came_and_no_label_spans_the_roll(tmp_path: Path) -> None:
    """From ESH4 to ESM4 over the weekend the price jumps 55 points: not adjusted away, and no label sees it."""
    mappings = {"ESH4": [(*made.YEAR, made.ESH4)], "ESM4": [(*made.YEAR, made.ESM4)]}
    friday, sunday = ns("2024-03-08T21:59:59"), ns("2024-03-10T22:00:00")
    records = [mbp(friday + i * MS, bid=20_000 + i, ask=20_001 + i) for i in range(4)]
    records += [mbp(sunday + i * MS, bid=20_220 + i, ask=20_221 + i, iid=made.ESM4) for i in range(4)]
    path = made.write_mbp(tmp_path / "a.dbn", records, mappings=mappings)
    snapshots.decode(path, tmp_path, contract("ES"), snapshots.EVENT_CLOCK)
    rows = open_snapshots(tmp_path)
    bid, ask = (np.array(rows[name].to_pylist())[:, 0] for name in ("bid_px", "ask_px"))
    assert bid.tolist() == [*range(20_000, 20_004), *range(20_220, 20_224)]
    inside = torch.tensor(rows["segment"].to_numpy())
    labels = make_labels(torch.tensor(bid), torch.tensor(ask), inside, [1, 3, 4], 1.0).T.tolist()
    assert labels == [[13, 13, 13, -1] * 2, [16, -1, -1, -1] * 2, [-1] * 8]


def test_tick_and_point_values_are_the_exchange_s() -> None:
    """CME's contract specifications: ES 50 USD a point, MES 5 and NQ 20, all in ticks of 0.25."""
    for root, point, tick in (("ES", 5_000, 1_250), ("MES", 500, 125), ("NQ", 2_000, 500)):
        facts = contract(root)
        assert (facts.tick, facts.tick_points) == (250_000_000, 0.25)
        assert (facts.multiplier_cents, facts.tick_cents, facts.months) == (point, tick, "HMUZ")
    assert contract("ES").fee_on(date(2024, 3, 1)) > 0


def test_labels_do_not_depend_on_how_the_rows_are_stored(tmp_path: Path) -> None:
    columns = random_columns(100, 1)
    found = []
    for name, cuts in (("one", [100]), ("many", [7, 33, 34, 90, 100])):
        write_folder(tmp_path / name, columns, cuts, [segment(0, 0, 60), segment(1, 60, 100)])
        read = tape.read_columns([TapeSource(name, 0, 100, "")], tmp_path.joinpath, ["bid_px", "ask_px"])
        inside = torch.tensor([0] * 60 + [1] * 40, dtype=torch.int32)
        found.append(make_labels(read["bid_px"][:, 0], read["ask_px"][:, 0], inside, [5, 20], 2.0))
    assert torch.equal(found[0], found[1])
    assert (found[0][:, 0] == -1).nonzero().flatten().tolist() == [*range(55, 60), *range(95, 100)]
    assert (found[0][:, 1] == -1).sum() == 40
