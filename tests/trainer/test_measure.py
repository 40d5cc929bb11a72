"""Leaves of what the encoder is given and selects, against the tape, the encoder's tensors and the contract's rules."""

import dataclasses
import math

import numpy as np
import pytest
import torch

from foxhunt_assets.contracts.diag import live_by_path
from foxhunt_assets.contracts.rules.base import Phase
from foxhunt_assets.contracts.rules.walk import RULES
from foxhunt_assets.market import features
from foxhunt_assets.simulator.actions import HOLD
from foxhunt_assets.trainer import measure
from foxhunt_assets.trainer.assemble import Assembly, assemble
from foxhunt_assets.trainer.program import Flags
from tests.contracts.rule_cases import CONFIG
from tests.trainer.fold_by_hand import make_fold_on_disk, tiny_config

TICK = 0.25  # points, of the fold by hand


@pytest.fixture(scope="module")
def acted(tmp_path_factory) -> Assembly:
    """A run that has collected its first twelve rows, the last one not yet advanced from."""
    run = assemble(make_fold_on_disk(tmp_path_factory.mktemp("home"), tiny_config()))
    run.world.simulator.reset(0)
    for step in range(12):
        for name in ("collect", "measure", *(["advance"] if step < 11 else [])):
            run.program.run(name, Flags())
    return run


def raw(run: Assembly, name: str) -> list[float]:
    return run.world.tape.raw[run.collector.anchor, features.index(name)].tolist()


def mean(values: list[float]) -> float:
    return math.fsum(values) / len(values)


def test_flow_and_microstructure_leaves_are_means_of_the_newest_raw_features(acted):
    found = measure.inputs(acted.world, acted.collector, acted.world.buffers)
    depth = raw(acted, "ofi_depth")
    want = {"features.ofi.depth_mean": mean(depth), "features.ofi.depth_abs_max": max(abs(v) for v in depth)}
    points = {"realized_variance": TICK**2, "intra_bar_momentum": TICK}
    for name in (f.name for f in features.FEATURES if f.group == "micro"):
        want[f"features.micro.{name}_mean"] = mean(raw(acted, name)) * points.get(name, 1)
    assert len(want) == 12 and all(live_by_path()[path].status == "live" for path in want)
    for path, value in want.items():
        assert float(found[path]) == pytest.approx(value, rel=1e-12), path
    assert len({float(found[path]) for path in want}) == 12


def test_group_masses_are_shares_of_the_mask(acted):
    found = measure.encoding(acted.collector, acted.world.buffers)
    weights = acted.collector.encoded.vsn_mask.double().numpy().mean((0, 1))
    for group in features.GROUPS:
        members = [i for i, f in enumerate(features.FEATURES) if f.group == group]
        assert float(found[f"vsn.mask_{group}"]) == pytest.approx(weights[members].sum(), rel=1e-12), group
    assert measure._group_mass(torch.arange(56.0))["vsn.mask_flow"] == 55


def test_the_rule_on_group_masses_runs_on_them_and_can_fail(acted):
    found = measure.encoding(acted.collector, acted.world.buffers)
    columns = {path: np.array([float(found[path])] * 2) for path in found if path.startswith("vsn.mask_")}
    (rule,) = (rule for rule in RULES if rule.name == "vsn_mass")
    assert set(rule.leaves) <= set(live_by_path())
    assert not rule.check(Phase("train", columns, CONFIG)).any()
    columns["vsn.mask_flow"] = columns["vsn.mask_flow"] + [0, 1e-3]
    assert rule.check(Phase("train", columns, CONFIG)).tolist() == [False, True]


def test_an_account_that_starts_an_episode_has_no_carry_to_leave_and_no_action_to_switch_from(tmp_path):
    run = assemble(make_fold_on_disk(tmp_path, tiny_config()))
    run.world.simulator.reset(0)
    run.program.run("collect", Flags())
    world, collector, b = run.world, run.collector, run.world.buffers
    assert (collector.encoded.h != 0).any() and (collector.outcome.executed != HOLD).any()
    assert float(measure.encoding(collector, b)["encoder.cfc_carry_delta_norm"]) == 0
    assert float(measure.policy(world, collector, b)["actions.switch_frac"]) == 0


def test_a_row_in_which_nobody_moves_leaves_the_look_ahead_moments_alone(acted, monkeypatch):
    b = acted.world.buffers
    before = b["diag_moments"].clone()
    still = acted.collector.outcome
    monkeypatch.setattr(acted.collector, "outcome", dataclasses.replace(still, next_row=acted.collector.anchor))
    measure.inputs(acted.world, acted.collector, b)
    assert (before != 0).any() and torch.equal(b["diag_moments"], before)
