"""Generated parent files: three instruments that are each true to their book, thin spells, and the latent state."""

from __future__ import annotations

from datetime import date
from itertools import pairwise

import databento
import numpy as np
import pytest

from foxhunt_assets.contracts.instruments import contract
from foxhunt_assets.errors import BadInput
from foxhunt_assets.market import snapshots, synthetic, volume
from foxhunt_assets.market.snapshot_folder import open_segments, open_snapshots
from foxhunt_assets.market.synthetic_parent import CARRY_TICKS, SPREAD_TICK
from tests.market.grid_by_hand import TICK, UNDEF, records

ES = contract("ES")
LAST = 128


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Ten minutes plain, and as a parent file with thin spells: the same seed."""
    made = {}
    for name, changes in (("plain", {}), ("parent", {"parent": True}), ("both", {"parent": True, "thin": True})):
        (made[name],) = synthetic.write_files(tmp_path_factory.mktemp(name), "planted", 3, 1, 10, **changes)
    return made


def of(r, iid):
    return r[r["instrument_id"] == iid]


def ids(path):
    store = databento.DBNStore.from_file(path)
    return {symbol: int(parts[0]["symbol"]) for symbol, parts in store.mappings.items()}


def test_the_official_client_maps_three_instruments_of_one_parent(files):
    store = databento.DBNStore.from_file(files["both"])
    assert store.symbols == ["ES.FUT"] and str(store.stype_in) == "parent"
    assert set(store.to_df()["symbol"]) == {"ESM4", "ESU4", "ESM4-ESU4"} == set(ids(files["both"]))
    r = records(files["both"])
    assert (np.diff(r["ts_recv"].astype(np.int64)) >= 0).all()
    for iid in ids(files["both"]).values():
        assert (np.diff(of(r, iid)["ts_event"].astype(np.int64)) >= 0).all()


def test_the_front_month_is_the_same_with_and_without_company(files):
    plain, parent = records(files["plain"]), records(files["parent"])
    assert of(parent, ids(files["parent"])["ESM4"]).tobytes() == plain.tobytes()


def test_the_back_month_lies_a_carry_above_and_the_spread_on_its_own_tick_below_zero(files):
    r, known = records(files["parent"]), ids(files["parent"])
    front, back, spread = (of(r, known[s]) for s in ("ESM4", "ESU4", "ESM4-ESU4"))
    assert 0.02 < len(back) / len(front) < 0.3 and len(spread) > 100
    ends = back[((back["flags"] & LAST) != 0) & (back["bid_px_00"] != UNDEF)]
    before = front[(front["flags"] & LAST) != 0][1:]  # without the clear
    at = np.searchsorted(before["sequence"], ends["sequence"])
    assert (ends["bid_px_00"] // TICK == before["bid_px_00"][at] // TICK + CARRY_TICKS - 1).all()
    assert (ends["ask_px_00"] // TICK == before["ask_px_00"][at] // TICK + CARRY_TICKS + 1).all()
    prices = spread["bid_px_00"][spread["bid_px_00"] != UNDEF]
    assert (prices < 0).all() and (prices % SPREAD_TICK == 0).all() and (prices % TICK != 0).any()
    ends = spread[(spread["flags"] & LAST) != 0][1:]
    assert set((ends["ask_px_00"] - ends["bid_px_00"]) // SPREAD_TICK) == {1}


def book(row):
    """{(side, price): size} of a record."""
    return {
        (side, int(row[f"{name}_px_{k:02d}"])): int(row[f"{name}_sz_{k:02d}"])
        for side, name in ((b"B", "bid"), (b"A", "ask"))
        for k in range(10)
        if row[f"{name}_px_{k:02d}"] != UNDEF
    }


@pytest.mark.parametrize("symbol", ["ESM4", "ESU4", "ESM4-ESU4"])
def test_each_record_of_each_instrument_says_what_happened_to_its_book(files, symbol):
    """An add is there after it and with its size; a cancelled level is there before; a trade moves nothing."""
    r = of(records(files["both"]), ids(files["both"])[symbol])
    clears = np.flatnonzero(r["action"] == b"R")
    assert clears.tolist() == [0] and not book(r[0])
    seen = set()
    for before, row in pairwise(r):
        old, new, key = book(before), book(row), (bytes(row["side"]), int(row["price"]))
        seen.add(bytes(row["action"]))
        if row["action"] == b"T":
            assert old == new and old[(b"A" if row["side"] == b"B" else b"B", int(row["price"]))] >= row["size"]
        elif row["action"] == b"A":
            assert new[key] - old.get(key, 0) == row["size"] > 0
        elif row["action"] == b"C":
            assert old[key] - new.get(key, 0) == row["size"] > 0
        other = b"A" if row["side"] == b"B" else b"B"
        if row["action"] != b"T":
            assert {k: v for k, v in old.items() if k[0] == other} == {k: v for k, v in new.items() if k[0] == other}
    assert {b"A", b"C", b"T"} <= seen
    assert r["flags"][-1] == LAST and set(np.unique(r["flags"])) == {0, LAST}


def test_thin_spells_leave_a_side_with_three_levels_or_none_and_end(files):
    r = of(records(files["both"]), ids(files["both"])["ESM4"])
    ends = r[(r["flags"] & LAST) != 0][1:]
    shown = {n: sum((ends[f"{n}_px_{k:02d}"] != UNDEF).astype(int) for k in range(10)) for n in ("bid", "ask")}
    for name in ("bid", "ask"):
        assert set(np.unique(shown[name])) == {0, 3, 10}
        for k in range(10):  # an absent level is the last of its side, without size or count
            absent = ends[f"{name}_px_{k:02d}"] == UNDEF
            assert not ends[f"{name}_sz_{k:02d}"][absent].any() and not ends[f"{name}_ct_{k:02d}"][absent].any()
            assert (absent == (shown[name] <= k)).all()
    thin = (shown["bid"] < 10) | (shown["ask"] < 10)
    spells = np.diff(np.flatnonzero(np.diff(thin.astype(int))))[::2]
    assert 0.05 < thin.mean() < 0.25 and len(spells) > 8
    assert not ((shown["bid"] < 10) & (shown["ask"] < 10)).any()


def test_the_decoder_keeps_what_a_mode_says(files, tmp_path):
    want = {"front_month": ["ESM4"], "all": ["ESM4", "ESU4"], "ESU4": ["ESU4"], "volume": ["ESM4"]}
    for mode, symbols in want.items():
        out = tmp_path / mode
        out.mkdir()
        report = snapshots.decode(files["both"], out, ES, 250, mode)
        snapshots.validate(out)
        assert report["instruments"] == symbols and report["records_spread"] > 100
        segments = open_segments(out).to_pylist()
        assert [s["symbol"] for s in segments] == symbols
        assert open_snapshots(out).num_rows >= 2_390 * len(symbols)
        if mode != "ESU4":
            assert report["one_sided_in_session"] > 100
    assert volume.file_volume(files["both"], ES).lots[date(2024, 4, 1)].keys() == {24_293, 24_296}


def test_the_latent_state_from_the_recipe_is_the_one_that_moved_the_mid(tmp_path):
    """P(up) is 1/2 + z/4: the direction of every move against the state at its instant, bounds of 4 standard errors."""
    (path,) = synthetic.write_files(tmp_path, "planted", 5, 1, 60)
    recipe = synthetic.read_recipe(path)
    assert recipe is not None and (recipe.setting, recipe.seed, recipe.day) == ("planted", 5, "2024-04-01")
    r = records(path)
    books = r[(r["flags"] & LAST) != 0][1:]
    mid = (books["bid_px_00"] + books["ask_px_00"]) // TICK
    moved = np.flatnonzero(np.diff(mid)) + 1
    up = np.diff(mid)[moved - 1] > 0
    z = synthetic.latent_at(recipe, books["ts_event"][moved].astype(np.int64))
    for state in (-1, 0, 1):
        mine = up[z == state]
        assert len(mine) > 800
        assert abs(mine.mean() - (0.5 + state / 4)) < 4 * np.sqrt(0.25 / len(mine)), state
    times, states = synthetic.latent_path(recipe)
    held = np.diff(times) / 1e9
    assert held.min() >= 10 and held.max() < 61 and (np.diff(states) != 0).all()
    assert synthetic.latent_at(recipe, times[:1] - 1).tolist() == [0]


def test_the_latent_state_goes_on_through_the_break_of_a_long_session(tmp_path):
    """452 minutes from a Friday: two openings, a roll; the state after the break is drawn where the kernel drew it."""
    (path,) = synthetic.write_files(tmp_path, "planted", 0, 1, 500, date(2024, 6, 14), 8)
    r = records(path)
    monday = r[r["ts_event"].astype(np.int64) > r["ts_event"][0].astype(np.int64) + 40 * 3_600 * 10**9]
    books = monday[(monday["flags"] & LAST) != 0][2:]
    mid = (books["bid_px_00"] + books["ask_px_00"]) // TICK
    moved = np.flatnonzero(np.diff(mid)) + 1
    z = synthetic.latent_at(synthetic.read_recipe(path), books["ts_event"][moved].astype(np.int64))
    agrees = (np.sign(np.diff(mid)[moved - 1]) * z)[z != 0] > 0
    assert len(agrees) > 1_000 and abs(agrees.mean() - 0.75) < 4 * np.sqrt(0.25 / len(agrees))


def test_a_file_without_its_recipe_has_no_oracle(tmp_path):
    (path,) = synthetic.write_files(tmp_path, "martingale", 1, 1, 1)
    synthetic.recipe_path(path).unlink()
    assert synthetic.read_recipe(path) is None
    synthetic.recipe_path(path).write_text("{")
    with pytest.raises(BadInput, match="not JSON"):
        synthetic.read_recipe(path)
