"""The oracle of an evaluation: there for a market with a drift that can be known, and for no other."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from foxhunt_assets import audits, storage
from foxhunt_assets.assets import verdicts
from foxhunt_assets.contracts.instruments import contract
from foxhunt_assets.evaluation.oracle import oracle
from foxhunt_assets.market import folds, snapshots, synthetic, tape
from foxhunt_assets.resources import World
from foxhunt_assets.simulator.config import EnvConfig
from foxhunt_assets.simulator.market_view import MarketView
from tests.assets import fakes
from tests.evaluation.test_oracle import COLUMNS, simulators
from tests.market.specs import spec_of

KEYS = ("one", "two")
SUMMARY = {"fold": "fold_0", "accounts": 4, "n_steps": 200}


@pytest.fixture
def home(tmp_path):
    """(world, tape, simulators) of a fold over two generated sessions; its tape takes a part of the second."""
    world = World(fakes.tiny_settings(tmp_path))
    sources = []
    for key, path in zip(KEYS, synthetic.write_files(tmp_path / "data", "planted", 4, 2, 2), strict=True):
        folder = world.layout.snapshots(key)
        folder.mkdir(parents=True)
        report = snapshots.decode(path, folder, contract("ES"), 250)
        recipe = synthetic.read_recipe(path)
        storage.write_json(folder / "decode.json", {**report, "recipe": recipe.to_json()})
        start = 0 if key == "one" else 50
        sources.append(folds.TapeSource(key, start, folds.source_info(key, folder).n_rows, ""))
    n = sum(s.row_end - s.row_start for s in sources)
    spec = replace(spec_of(n, [(0, n)]), sources=tuple(sources), synthetic=True)
    storage.write_json(world.layout.fold("fold_0") / "spec" / audits.SPEC_FILE, spec.to_json())
    columns = tape.read_columns(sources, world.layout.snapshots, COLUMNS)
    columns["segment"] = columns["segment"].masked_fill(columns["ts"] >= columns["ts"][n // 2], 1)
    market = MarketView(**columns, fee_cents=torch.full((n,), 225), tick_cents=1_250)
    cut = int((columns["segment"] == 0).sum())
    make = simulators(market, [(0, cut), (cut, n)], 4, 200, EnvConfig(min_hold_steps=4))
    return world, SimpleNamespace(market=market), make


def test_the_pressure_of_each_file_stands_at_the_rows_the_fold_took_of_it(home, monkeypatch):
    world, made, make = home
    monkeypatch.setattr(verdicts, "walk_again", lambda *a: (make, made))
    found = verdicts.oracle_of(world, world.settings.home, SUMMARY)
    ts = made.market.ts.numpy()
    recipes = [synthetic.read_recipe(p) for p in sorted((world.settings.home / "data").glob("*.zst"))]
    known = sum(synthetic.latent_at(r, ts) * (abs(ts - r.openings[0].start) < 3_600 * 10**9) for r in recipes)
    assert set(known) == {-1, 0, 1}
    assert found.account_cents == oracle(make, torch.from_numpy(known), 200).account_cents and found.cents > 0


@pytest.mark.parametrize("change", ["martingale", "no recipe"])
def test_without_a_drift_that_can_be_known_there_is_no_oracle(home, change):
    world, _, _ = home
    place = world.layout.snapshots("two") / "decode.json"
    report = storage.read_json(place)
    recipe = {**report["recipe"], "setting": "martingale"} if change == "martingale" else None
    storage.write_json(place, {**report, "recipe": recipe})
    assert verdicts.oracle_of(world, world.settings.home, SUMMARY) is None
