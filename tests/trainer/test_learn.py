"""One learning minibatch, stage by stage."""

import torch

from foxhunt_assets.trainer.assemble import assemble
from foxhunt_assets.trainer.learn import Learner
from foxhunt_assets.trainer.program import Flags
from tests.trainer.fold_by_hand import make_fold_on_disk, tiny_config


def test_a_gradient_that_is_no_number_moves_neither_network(tmp_path):
    run = assemble(make_fold_on_disk(tmp_path, tiny_config(learning={"mode": "per_step"})))
    b, flags = run.world.buffers, Flags(closes=True)
    run.world.simulator.reset(0)
    b["target_q"].zero_()  # any Polyak step shows
    for name in ("collect", "shuffle"):
        run.program.run(name, flags)
    for spoil in (True, False):
        kept = {name: b[name].clone() for name in ("weights", "target_q", "adam_m", "adam_v", "adam_t")}
        for stage in run.program.lists["learn"]:
            if spoil and stage.name == "optimise":
                b["grads"][3] = float("nan")
            stage.run(flags)
        moved = {name for name, x in kept.items() if not torch.equal(b[name], x)}
        assert moved == (set() if spoil else set(kept))


def test_parts_of_a_stage_that_run_side_by_side_do_not_hang_on_each_other(tmp_path, monkeypatch):
    found, turned = [], []
    in_order = Learner._side_by_side

    def backwards(learner, *parts):
        turned.append(len(parts))
        in_order(learner, *parts[::-1])

    for side_by_side in (in_order, backwards):
        monkeypatch.setattr(Learner, "_side_by_side", side_by_side)
        run = assemble(make_fold_on_disk(tmp_path / side_by_side.__name__, tiny_config(learning={"mode": "per_step"})))
        run.world.simulator.reset(0)
        for name in ("collect", "shuffle", "learn", "advance", "collect", "shuffle", "learn"):
            run.program.run(name, Flags(closes=True))
        found.append(run.world.buffers)
    assert turned == [3] * 4
    for name, x in found[0].items():
        assert torch.equal(x.view(-1).view(torch.uint8), found[1][name].view(-1).view(torch.uint8)), name
