"""Metadata is plain, inside its budget, and says where, which bytes and which code."""

from __future__ import annotations

import json

import dagster as dg
import numpy as np
import pytest

from foxhunt_assets import storage
from foxhunt_assets.assets import metadata as M
from foxhunt_assets.assets import pictures
from foxhunt_assets.errors import ContractBroken
from foxhunt_assets.resources import World
from foxhunt_assets.settings import Settings
from tests.assets.fakes import commit


def test_numpy_becomes_python_and_what_is_not_finite_becomes_its_name():
    raw = {"a": np.float32(0.5), "b": [np.int64(3), float("nan")], "c": (np.bool_(True), float("-inf")), "d": None}
    plain = M.to_py(raw)
    assert plain == {"a": 0.5, "b": [3, "nan"], "c": [True, "-inf"], "d": None}
    assert type(plain["a"]) is float and type(plain["b"][0]) is int and type(plain["c"][0]) is bool
    json.dumps(plain, allow_nan=False)


def test_the_budget_is_forty_numbers_and_64_kb():
    assert len(M.within_budget({f"n{i}": i for i in range(40)})) == 40
    with pytest.raises(ContractBroken, match="41 numbers"):
        M.within_budget({f"n{i}": i for i in range(41)})
    M.within_budget({"text": "x" * 60_000})
    with pytest.raises(ContractBroken, match="bytes"):
        M.within_budget({"text": dg.MetadataValue.md("x" * 66_000)})


def test_the_712_leaves_do_not_fit_and_are_refused():
    with pytest.raises(ContractBroken, match="712 numbers"):
        M.within_budget({f"leaf{i}": float(i) for i in range(712)})


def test_a_folder_s_metadata_names_folder_manifest_code_and_configuration(tmp_path):
    world = World(Settings(home=tmp_path))
    folder = commit(tmp_path / "f", {"a": "1"})
    found = M.folder_metadata(world, folder, {"rows": np.int32(7)})
    assert found["folder"].value == str(folder) and found["rows"] == 7
    assert found["manifest_sha256"] == storage.file_sha256(folder / "manifest.json")
    assert found["config"] == world.config.hash and len(found["code"]) == 64 and found["git"]


@pytest.mark.parametrize("n", [2, 100_000])
def test_the_book_picture_fits_the_budget_whatever_the_length(n):
    walk = np.random.default_rng(0).normal(size=n).cumsum()
    size, numbers = M.weight({"picture": pictures.book(walk, np.abs(walk), "t")})
    assert 2_000 < size < M.MAX_BYTES and numbers == 0


def test_a_picture_is_drawn_coarser_until_it_fits():
    asked = []

    def draw(dpi):
        asked.append(dpi)
        return b"x" * (600 * dpi)

    shown = pictures.embed(draw, "alt text")
    assert asked == [80, 60] and shown.value.startswith("![alt text](data:image/png;base64,")
