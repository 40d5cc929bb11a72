"""Configuration: profiles, identity, and the errors a person can make."""

import pytest

from foxhunt_assets.errors import BadInput
from foxhunt_assets.trainer.config import PROFILES, TrainerConfig, from_profile
from foxhunt_assets.trainer.slots import bootstrap, slots


@pytest.mark.parametrize("profile", PROFILES)
def test_a_profile_survives_json_and_keeps_its_hash(profile):
    config = from_profile(profile)
    assert TrainerConfig.from_json(config.to_json()) == config
    assert TrainerConfig.from_json(config.to_json()).hash == config.hash


def test_overrides_change_single_values_and_the_hash():
    base, changed = from_profile("demo"), from_profile("demo", {"env": {"latency_steps": 2}})
    assert (changed.env.latency_steps, changed.env.min_hold_steps) == (2, base.env.min_hold_steps)
    assert changed.hash != base.hash
    assert changed.purge_rows == base.purge_rows + 1


@pytest.mark.parametrize(
    "overrides, message",
    [
        ({"env": {"latency": 2}}, "unknown key env.latency"),
        ({"env": {"latency_steps": 0}}, "latency_steps must be 1 or more"),
        ({"env": {"latency_steps": True}}, "must be int"),
        ({"learning": {"gamma": "high"}}, "learning.gamma must be float"),
        ({"learning": {"gamma": 1.5}}, "gamma and gae_lambda must lie in"),
        ({"learning": {"lr_q": float("nan")}}, "learning.lr_q must be finite"),
        ({"learning": {"lr_q": -1.0}}, "must be 0 or more"),
        ({"learning": {"beta2": 1.0}}, "beta1 and beta2 must lie in"),
        ({"env": 3}, "env must be a table, not 3"),
        ({"learning": {"replay_capacity": 1000}}, "power of two"),
        ({"labels": {"horizons": [8, 4, 2]}}, "ascending"),
        ({"labels": {"horizons": ["8", 32, 128]}}, "whole numbers"),
        ({"model": {"window": 33}}, "window must be 32 at most"),
        ({"model": {"atoms": 51}}, "atoms must be 21 at most"),
        ({"model": {"hidden": 256, "accounts": 256}}, "hidden or accounts must be 128 at most"),
        ({"model": {"hidden": 257, "accounts": 64}}, "hidden and frd_hidden must be 256 at most"),
        ({"learning": {"mode": "daily"}}, "learning.mode must be one of rollout, per_step"),
        ({"run": {"deterministic": 3}}, "run.deterministic must be 0, 1 or 2"),
        ({"learning": {"minibatches": 0}}, "minibatches and replay_rows must be 1 or more"),
        ({"learning": {"replay_rows": 0}}, "replay_rows must be 1 or more"),
        ({"run": {"checkpoint_every": 0}}, "checkpoint_every and threads must be 1 or more"),
        ({"run": {"n_eval_steps": 0}}, "n_eval_steps"),
    ],
)
def test_mistakes_are_named(overrides, message):
    with pytest.raises(BadInput, match=message):
        from_profile("demo", overrides)


def test_unknown_profile_lists_the_known():
    with pytest.raises(BadInput, match="demo, quick, mid, full"):
        from_profile("huge")


def test_slots_take_the_configuration_and_refuse_what_is_out_of_bounds():
    import torch

    isv = torch.zeros(759)
    bootstrap(isv, from_profile("demo", {"learning": {"gamma": 0.997}}))
    assert float(isv[400]) == pytest.approx(0.997) and float(isv[484]) == 1 and float(isv[485]) == -1
    with pytest.raises(BadInput, match="slot 400"):
        bootstrap(isv, from_profile("demo", {"learning": {"gamma": 0.5}}))


def test_slot_numbers_are_distinct_and_inside_the_storage():
    numbers = [slot.index for slot in slots()]
    assert len(numbers) == len(set(numbers)) and min(numbers) >= 0 and max(numbers) == 758
