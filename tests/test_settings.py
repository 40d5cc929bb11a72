"""foxhunt.toml and the environment: what is taken, what is refused, and that a refusal names file, key and remedy."""

from __future__ import annotations

from pathlib import Path

import pytest

from foxhunt_assets.errors import BadInput
from foxhunt_assets.settings import Settings, load
from foxhunt_assets.trainer.config import from_profile


def loaded(home: Path, text: str, **env: str) -> Settings:
    (home / "foxhunt.toml").write_text(text)
    return load({"FOXHUNT_HOME": str(home), **env})


def test_defaults_stand_where_nothing_is_said(tmp_path: Path) -> None:
    settings = load({"FOXHUNT_HOME": str(tmp_path)})
    assert (settings.data.clock, settings.data.row_ms, settings.data.instrument_mode) == ("grid", 250, "front_month")
    assert settings.folds.sessions_per_block is None and settings.data_dir == tmp_path / "data"


def test_clock_mode_and_block_are_settings(tmp_path: Path) -> None:
    text = '[data]\nclock = "event"\ninstrument_mode = "ESH4, ESM4"\n[folds]\nsessions_per_block = 5\n'
    settings = loaded(tmp_path, text)
    assert settings.data.row_ms == 0 and settings.data.grid_ms == 250
    assert settings.folds.sessions_per_block == 5
    assert settings.hash != load({"FOXHUNT_HOME": str(tmp_path / "elsewhere")}).hash


def test_the_environment_names_the_data_folder_and_the_identity_does_not_see_it(tmp_path: Path) -> None:
    (tmp_path / "x").mkdir()
    here = loaded(tmp_path / "x", "", FOXHUNT_DATA_DIR=str(tmp_path))
    assert here.data_dir == tmp_path and here.hash == loaded(tmp_path / "x", "").hash


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('[data]\nclock = "ticks"', "data.clock must be grid or event"),
        ("[data]\ngrid_ms = 100", "data.grid_ms must be a positive multiple of 250"),
        ("[data]\ngrid_ms = 60250", "data.grid_ms must be a positive multiple of 250, at most 60000"),
        ("[data]\ngrid_ms = 0", "data.grid_ms must be a positive multiple of 250"),
        ('[data]\ninstrument_mode = "ESH4,,ESM4"', "data.instrument_mode must be front_month, volume, all, or symbols"),
        ('[data]\ninstrument_mode = ""', "data.instrument_mode must be"),
        ("[data]\ninstrument_mode = 4", "data.instrument_mode must be"),
        ("[folds]\nsessions_per_block = 0", "folds.sessions_per_block must be an integer of 1 or more"),
        ("[folds]\nsessions_per_block = true", "folds.sessions_per_block must be an integer of 1 or more"),
        ("[folds]\nsessions_per_block = 1.5", "folds.sessions_per_block must be an integer of 1 or more"),
        ("[folds]\nn_folds = 0", "folds.n_folds must be"),
        ("[folds]\nn_folds = 101", "folds.n_folds must be an integer of 1 to 100"),
        ("[folds]\nseeds = [9223372036854775808]", "folds.seeds must be distinct integers of 0 or more, under 2**63"),
        ("[folds]\nseeds = [1, 1]", "folds.seeds must be distinct"),
        ("[folds]\nseeds = 3", "folds.seeds must be distinct"),
        ('[folds]\nembargo_rows = "7"', "folds.embargo_rows must be an integer of 0 or more"),
        ('[data]\ngrid_ms = "250"', "data.grid_ms must be a positive multiple of 250"),
        ("[data]\ndir = 4", "data.dir must be an absolute path"),
        ('[data]\ndir = "data"', "data.dir must be an absolute path"),
        ("[data]\nroot = 4", "data.root must be text"),
        ("[training]\nprofile = []", "training.profile must be text"),
        ("[training]\noverrides = 1", "training.overrides and evaluation.overrides must be tables"),
        ("folds = 2", "folds must be a table"),
        ("[folds]\nblocks = 2", "unknown key folds.blocks; known: n_folds, seeds, embargo_rows, sessions_per_block"),
        ("[dta]", "unknown key dta; known: data, folds, training, evaluation"),
        ("[data", "not valid TOML"),
    ],
)
def test_what_cannot_be_meant_is_refused_in_one_line(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(BadInput) as error:
        loaded(tmp_path, text)
    assert words in str(error.value) and str(tmp_path / "foxhunt.toml") in str(error.value)
    assert "\n" not in str(error.value)


def test_a_file_that_is_no_text_or_no_file_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "foxhunt.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(BadInput, match=r"foxhunt\.toml: not valid TOML"):
        load({"FOXHUNT_HOME": str(tmp_path)})
    (tmp_path / "foxhunt.toml").unlink()
    (tmp_path / "foxhunt.toml").mkdir()
    with pytest.raises(BadInput, match=r"foxhunt\.toml: cannot be read: Is a directory"):
        load({"FOXHUNT_HOME": str(tmp_path)})


def test_the_environment_sets_determinism_and_the_update_cadence(tmp_path: Path) -> None:
    text = "[training.overrides.run]\nn_steps = 7\ndeterministic = 1\n"
    settings = loaded(tmp_path, text, FOXHUNT_DETERMINISTIC="0", FOXHUNT_USE_ROLLOUT="0")
    assert settings.training.overrides == {"run": {"n_steps": 7, "deterministic": 0}, "learning": {"mode": "per_step"}}
    config = from_profile("quick", settings.training.overrides)
    assert config.run.deterministic == 0 and config.learning.per_step
    assert config.hash != from_profile("quick", {"run": {"n_steps": 7}}).hash  # another mode is another run
    assert loaded(tmp_path, text, FOXHUNT_DETERMINISTIC="").training.overrides["run"]["deterministic"] == 1


@pytest.mark.parametrize("variable", ["FOXHUNT_DETERMINISTIC", "FOXHUNT_USE_ROLLOUT"])
def test_a_variable_with_another_value_is_refused(tmp_path: Path, variable: str) -> None:
    with pytest.raises(BadInput, match=rf"{variable} is 'yes'; set it to 0, 1"):
        loaded(tmp_path, "", **{variable: "yes"})


def test_overrides_that_are_no_table_are_named_with_a_variable_set_too(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="overrides must be tables"):
        loaded(tmp_path, "[training]\noverrides = 1", FOXHUNT_DETERMINISTIC="1")
