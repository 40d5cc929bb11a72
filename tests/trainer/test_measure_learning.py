"""Leaves of learning that are made on the host, and checksums against digests of the very tensors."""

import dataclasses

import pytest
import torch

from foxhunt_assets.trainer.assemble import Assembly, assemble
from foxhunt_assets.trainer.measure_learning import (
    _OF_A_STEP,
    EVENTS,
    Checksums,
    Coverage,
    Drift,
    LearningLeaves,
    Spectra,
    memory,
    memory_leaves,
    slope,
)
from foxhunt_assets.trainer.numbers import Group, finished
from foxhunt_assets.trainer.program import Flags
from foxhunt_assets.trainer.replay import INSERTED
from kernels.digest import op as digest
from kernels.digest import reference
from tests.trainer.fold_by_hand import make_fold_on_disk, tiny_config


@pytest.fixture(scope="module")
def learned(tmp_path_factory) -> Assembly:
    """A run of one window and its minibatches, the last row not yet measured."""
    config = tiny_config()
    run = assemble(make_fold_on_disk(tmp_path_factory.mktemp("home"), config))
    run.world.simulator.reset(0)
    rows = config.learning.rollout_steps
    for step in range(rows):
        flags = Flags(closes=step == rows - 1)
        run.program.run("collect", flags)
        if step < rows - 1:
            run.program.run("measure", flags)
            run.program.run("advance", flags)
    run.program.run("shuffle", flags)
    run.program.run("learn", flags)
    return run


def test_slope_is_least_squares():
    def from_means(x, y):
        mean = [sum(values) / 3 for values in (x, y, [a * a for a in x], [a * b for a, b in zip(x, y)])]
        return slope(*mean)

    assert from_means([1.0, 2.0, 4.0], [1.0, 5.0, 6.0]) == pytest.approx(1.5)  # 7 / (14 / 3)
    assert from_means([0.1] * 3, [1.0, 2.0, 4.0]) == 0


def test_checksums_are_digests_of_what_lies_in_the_buffers(learned):
    w, b, c = learned.world, learned.world.buffers, learned.collector
    before = b["digest_chains"].clone()
    measured = Checksums(w, c)
    row = finished(Group("checksums", measured.measure, measured.finish))

    def leaf(*tensors, seed=0):
        words = [x.contiguous().view(-1).view(torch.uint8) for x in tensors]
        padded = [torch.nn.functional.pad(x, (0, -x.numel() % 8)) for x in words]
        assert sum(x.numel() for x in words) == sum(x.numel() for x in padded), "parts that fill no words of 8 bytes"
        return digest.leaf53(digest.digest64(torch.cat(words), seed))

    assert row["checksums.optimizer"] == leaf(b["adam_m"], b["adam_v"], b["adam_t"])
    assert row["checksums.batch_inputs"] == leaf(c.anchor, b["x"], w.tape.labels[c.anchor])
    assert row["checksums.grads"] == leaf(b["grads"]) and row["checksums.isv"] != 0
    assert row["encoder.h_t_digest32"] == reference.digest32(c.encoded.h)
    assert row["grad_trunk.combined_digest32"] == reference.digest32(b["grad_h_t_combined"])
    n, count = w.config.model.accounts, int(b["replay_count"])
    at = torch.arange(count - n, count) % w.replay.capacity
    inserted = [b[name][at] for name in INSERTED]
    chained = digest.Digests([inserted], [int(before[0])]).run()
    assert b["digest_chains"].tolist()[0] == int(chained) != int(before[0])
    assert row["checksums.replay_inserts"] == digest.leaf53(digest.unsigned(int(chained)))


def test_leaves_of_a_learning_step_are_0_in_a_row_without_one(learned):
    measured = Checksums(learned.world, learned.collector)
    read = {"digests": list(range(1, 1 + len(measured.names))), "stepped": 0.0}
    without = measured.finish(dict(read))
    assert {name for name, value in without.items() if value == 0} == set(_OF_A_STEP)
    assert all(measured.finish(read | {"stepped": 1.0}).values())


def test_memory_leaves_count_what_the_ring_holds(learned):
    w, b = learned.world, learned.world.buffers
    found = finished(Group("memory", lambda: memory(w), lambda read: memory_leaves(w.replay.capacity, read)))
    leaves = b["priority_tree"][w.replay.capacity :].double()
    length = min(int(b["replay_count"]), w.replay.capacity)
    held = leaves[:length]
    assert found["per.len"] == length and found["per.priority_max"] == float(held.max())
    assert found["per.tree_sum"] == float(b["priority_tree"][1])
    assert found["per.priority_ess_frac"] == pytest.approx(float(held.sum() ** 2 / (length * (held**2).sum())))
    never = int((b["replay_draws"][:length] == 0).sum())
    assert 0 < never < length and found["per.never_sampled_frac"] == pytest.approx(never / length)


def test_window_leaves_are_moments_of_the_finished_window(learned):
    b = learned.world.buffers
    learning = LearningLeaves()
    found = finished(Group("learning", lambda: {name: b[name] for name in learning.buffers}, learning))
    advantage = b["rollout_advantage"].double()
    assert found["rollout.adv_mean"] == pytest.approx(float(advantage.mean()), rel=1e-9)
    assert found["pi.adv_pos_frac"] == pytest.approx(float((advantage > 0).double().mean()))


def test_weight_leaves_follow_the_weights(learned):
    w, b = learned.world, learned.world.buffers
    measured = Drift(w)
    found = finished(Group("drift", measured.measure, measured.finish))
    flat, birth, enc = b["weights"].double(), b["birth_weights"].double(), w.layout.encoder
    assert found["optim.weight_norm"] == pytest.approx(float(flat.norm()))
    assert found["numerics.weight_abs_max"] == float(flat.abs().max())
    drift = float((flat[enc] - birth[enc]).norm() / birth[enc].norm())
    assert found["numerics.trunk_drift_from_init"] == pytest.approx(drift) and drift > 0
    q = flat[w.layout.branches["q"]]
    assert found["target_net.drift_q"] == pytest.approx(float((q - b["target_q"]).norm() / q.norm()))


def test_singular_values_are_found_by_iteration(learned):
    w = learned.world
    measured = Spectra(w)
    for _ in range(60):
        measured.measure()
    found = finished(Group("spectra", measured.measure, measured.finish))
    top = float(torch.linalg.matrix_norm(w.layout.views(w.buffers["weights"])["vsn_w"].double(), 2))
    assert found["spectral.vsn_w"] == pytest.approx(top, rel=1e-2)


def test_coverage_marks_the_events_by_their_names(learned):
    w, b = learned.world, learned.world.buffers
    b["events_seen"].fill_(False)
    outcome = learned.collector.outcome
    held, learned.collector.outcome = outcome, dataclasses.replace(
        outcome, trade_closed=torch.ones_like(outcome.trade_closed), trade_mask=torch.zeros_like(outcome.trade_mask),
        end_reason=torch.zeros_like(outcome.end_reason),
    )  # fmt: skip
    try:
        seen = Coverage(w, learned.collector).measure()["events"]
    finally:
        learned.collector.outcome = held
    names = {name for name, x in zip(EVENTS, seen.tolist()) if x}
    assert names - {"all eleven actions executed"} == {"replay warm", "first close", "first PPO window"}
