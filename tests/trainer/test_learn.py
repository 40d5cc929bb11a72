"""One learning minibatch, stage by stage."""

import torch

from foxhunt_assets.trainer.assemble import assemble
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
