"""The peer of the captured passes computes what they do: small, on a CPU, not compiled."""

import pytest
import torch

from benchmarks import twins
from benchmarks.step import filled
from foxhunt_assets.trainer.assemble import assemble
from tests.trainer.fold_by_hand import make_fold_on_disk, tiny_config


@pytest.fixture(params=["rollout", "per_step"])
def run(request, tmp_path):
    made = assemble(make_fold_on_disk(tmp_path, tiny_config(learning={"mode": request.param})))
    made.world.simulator.reset(0)
    return filled(made)


@pytest.mark.parametrize("passes", [twins.acting, twins.learning])
def test_the_peer_computes_the_passes(run, passes):
    sides = passes(run)
    for x in sides.outputs().values():
        x.fill_(torch.nan)  # nothing of an earlier call counts
    sides.ours()
    theirs = sides.peer(sides.function)
    assert twins.apart(sides.outputs(), theirs)[0] < twins.TOLERANCE
    name, x = next(iter(theirs.items()))
    far, where = twins.apart(sides.outputs(), theirs | {name: x + x.abs().max()})
    assert far > 0.9 and where == name
