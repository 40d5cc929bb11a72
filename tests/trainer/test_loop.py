"""Whole runs on a small fold: same seed same bits, another seed other bits, resume, quarantine, errors."""

import json
import math
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import load_file

from foxhunt_assets import storage
from foxhunt_assets.contracts.diag import flatten, leaves, live_leaves
from foxhunt_assets.contracts.sidecar import read_diag
from foxhunt_assets.determinism.compare import compare_runs
from foxhunt_assets.errors import BadInput, ContractBroken
from foxhunt_assets.trainer import checkpoint, diag, loop, rollout
from foxhunt_assets.trainer.assemble import assemble
from foxhunt_assets.trainer.program import Flags, StageFault, WiringFault
from foxhunt_assets.trainer.run_spec import RunSpec
from kernels.build import KernelError
from tests.trainer.fold_by_hand import evaluation_of, make_fold_on_disk, tiny_config


def _quiet(_: str) -> None:
    pass


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """One training and its evaluation, shared by the tests that only look at them."""
    spec = make_fold_on_disk(tmp_path_factory.mktemp("home"), tiny_config())
    loop.train(spec, _quiet)
    loop.evaluate(evaluation_of(spec), _quiet)
    return spec


def _other(spec, home: Path, **changes):
    """The same orders in other folders."""
    places = {"out": home / "run" / "train", "quarantine": home / "quarantine", "resume": home / "work" / "train"}
    return replace(spec, **{k: str(v) for k, v in places.items()}, lock=str(home / "lock"), **changes)


def test_the_folders_hold_what_the_design_names(trained):
    train, evaluation = Path(trained.out), Path(evaluation_of(trained).out)
    common = {"config.json", "trades.parquet", "timing.parquet", "manifest.json"}
    assert {p.name for p in train.iterdir()} == common | {
        "diag.jsonl", "diag.parquet", "train_summary.json", "checkpoint.safetensors", "checkpoint.json",
    }  # fmt: skip
    assert {p.name for p in evaluation.iterdir()} == common | {
        "eval_diag.jsonl", "eval_diag.parquet", "eval_summary.json", "equity.parquet",
    }  # fmt: skip
    assert not Path(trained.resume).exists()
    text = (train / "config.json").read_text()
    assert str(train.parent) not in text and "run_id" not in text


def test_every_row_holds_exactly_the_live_leaves(trained):
    for path in (Path(trained.out) / "diag.jsonl", Path(evaluation_of(trained).out) / "eval_diag.jsonl"):
        for line in path.read_text().splitlines():
            assert list(flatten(json.loads(line))) == [leaf.path for leaf in live_leaves()]


def test_evaluation_continues_the_axis_and_drains_once(trained):
    train = read_diag(Path(trained.out) / "diag.jsonl")
    evaluation = read_diag(Path(evaluation_of(trained).out) / "eval_diag.jsonl")
    n = trained.config.run.n_steps
    assert train["step"].tolist() == list(range(n))
    assert evaluation["step"].tolist() == list(range(n, n + len(evaluation["step"])))
    assert evaluation["run.drain_row"].tolist() == [0] * (len(evaluation["step"]) - 1) + [1]


def test_money_agrees_to_the_cent_everywhere(trained):
    folder = Path(evaluation_of(trained).out)
    summary, rows = storage.read_json(folder / "eval_summary.json"), read_diag(folder / "eval_diag.jsonl")
    trades, equity = pq.read_table(folder / "trades.parquet"), pq.read_table(folder / "equity.parquet").to_pydict()
    last = max(equity["step"])
    by_equity = sum(e for s, e in zip(equity["step"], equity["equity_cents"]) if s == last)
    assert summary["n_trades"] > 0
    assert summary["total_pnl_cents"] == sum(trades["pnl_cents"].to_pylist()) == by_equity
    assert round(rows["trading.realized_pnl_usd_cum"][-1] * 100) == summary["total_pnl_cents"]
    assert rows["trading.realized_pnl_usd_cum"][-1] == summary["total_pnl_usd"]


def test_one_seed_one_set_of_bits_and_another_seed_another(trained, tmp_path):
    same = _other(trained, tmp_path / "same")
    loop.train(same, _quiet)
    assert compare_runs(Path(trained.out), Path(same.out)).verdict == "PASS"
    different = _other(trained, tmp_path / "different", seed=trained.seed + 1)
    loop.train(different, _quiet)
    a, b = (load_file(Path(s.out) / "checkpoint.safetensors") for s in (trained, different))
    assert not any(a[k].equal(b[k]) for k in a if k.startswith("weights.") and "_w" in k and not k.endswith("_w_c"))


def test_a_finished_run_is_not_run_again(trained):
    said = []
    loop.train(trained, said.append)
    assert said == [f"already finished: {trained.out}"]


def test_a_fold_made_anew_since_the_order_is_refused(trained, tmp_path):
    spec = _other(trained, tmp_path, inputs={"fold_spec": "0" * 64})
    with pytest.raises(BadInput, match="not the fold_spec this run was ordered with"):
        loop.train(spec, _quiet)
    assert not Path(spec.out).exists()


@pytest.mark.parametrize("stop_at", [31, 45])
def test_a_resumed_training_equals_an_uninterrupted_one(trained, tmp_path, monkeypatch, stop_at):
    spec = _other(trained, tmp_path)
    write = diag.DiagWriter.write

    def stop(self, row, elapsed_s):
        if row["step"] == stop_at:
            raise KeyboardInterrupt
        write(self, row, elapsed_s)

    monkeypatch.setattr(diag.DiagWriter, "write", stop)
    with pytest.raises(KeyboardInterrupt):
        loop.train(spec, _quiet)
    monkeypatch.undo()
    assert not Path(spec.out).exists()
    said = []
    loop.train(spec, said.append)
    assert said[0] == f"resuming from step {stop_at // 20 * 20}"
    assert compare_runs(Path(trained.out), Path(spec.out)).verdict == "PASS"


def test_a_number_that_is_none_stops_the_run_names_its_stage_and_keeps_the_checkpoint(trained, tmp_path, monkeypatch):
    spec = _other(trained, tmp_path)
    finish = rollout.Rollout.finish

    def poisoned(self):
        finish(self)
        self.b["rollout_return"][0, 0] = math.nan

    monkeypatch.setattr(rollout.Rollout, "finish", poisoned)
    with pytest.raises(ContractBroken, match=r"step 31: (loss\.v|v\.bias_mean): nan is not finite; stage losses"):
        loop.train(spec, _quiet)
    monkeypatch.undo()
    assert not Path(spec.out).exists() and [p.name for p in Path(spec.resume).glob("step_*")] == ["step_000000020"]
    loop.train(spec, _quiet)
    assert compare_runs(Path(trained.out), Path(spec.out)).verdict == "PASS"


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB\nmore"), "out of device memory (CUDA out"),
        (KernelError("kernel gae_returns: not started with grid (1,)"), "kernel gae_returns: not started"),
    ],
)
def test_a_device_that_gives_up_stops_the_run_and_names_the_stage(trained, tmp_path, monkeypatch, error, said):
    spec = _other(trained, tmp_path)

    def give_up(*_):
        raise error

    monkeypatch.setattr(rollout.Rollout, "finish", give_up)
    with pytest.raises(StageFault, match=r"stage collect\.bootstrap: ") as raised:
        loop.train(spec, _quiet)
    assert said in str(raised.value) and "\n" not in str(raised.value)
    assert list(Path(spec.resume).glob("step_*"))


def test_one_update_a_row_trains_evaluates_and_keeps_the_contract(trained, tmp_path):
    config = replace(trained.config, learning=replace(trained.config.learning, mode="per_step", replay_rows=8))
    spec = _other(trained, tmp_path, config=config)
    loop.train(spec, _quiet)
    columns = read_diag(Path(spec.out) / "diag.jsonl")
    assert not columns["rollout.enabled"].any() and not columns["rollout.windows_cum"].any()
    assert (columns["optim.update_norm"] > 0).all()  # every row moved the weights
    assert storage.read_json(Path(spec.out) / "train_summary.json")["updates"] == config.run.n_steps
    # one-step TD: the advantage of a row is its return less its value
    close = columns["rollout.adv_mean"] - (columns["rollout.returns_mean"] - columns["v.pred_mean"])
    assert abs(close).max() < 1e-5
    loop.evaluate(evaluation_of(spec), _quiet)


def test_a_checkpoint_of_another_machine_is_not_gone_on_from(trained, tmp_path, monkeypatch):
    spec, save = _other(trained, tmp_path), checkpoint.Resume.save

    def elsewhere(self, world, trades, meta):
        libraries = {**meta["machine"]["libraries"], "torch": "2.0.0"}
        save(self, world, trades, {**meta, "machine": {**meta["machine"], "libraries": libraries}})
        raise KeyboardInterrupt

    monkeypatch.setattr(checkpoint.Resume, "save", elsewhere)
    with pytest.raises(KeyboardInterrupt):
        loop.train(spec, _quiet)
    monkeypatch.undo()
    said, killed = [], Path(spec.out).with_name(".train.1.dead")  # what a kill in the midst of a commit leaves
    killed.mkdir(parents=True)
    loop.train(spec, said.append)
    assert said[0].startswith("starting anew: the checkpoint of step 20") and not killed.exists()
    assert compare_runs(Path(trained.out), Path(spec.out)).verdict == "PASS"


def test_a_resume_that_lost_rows_is_refused(trained, tmp_path, monkeypatch):
    spec, save = _other(trained, tmp_path), checkpoint.Resume.save

    def stop(self, *args):
        save(self, *args)
        raise KeyboardInterrupt

    monkeypatch.setattr(checkpoint.Resume, "save", stop)
    with pytest.raises(KeyboardInterrupt):
        loop.train(spec, _quiet)
    monkeypatch.undo()
    rows = Path(spec.resume) / "diag.jsonl"
    rows.write_bytes(rows.read_bytes()[:-40])
    with pytest.raises(BadInput, match=r"diag\.jsonl: rows that step_000000020 counts on are gone"):
        loop.train(spec, _quiet)


def test_a_resume_that_lost_a_buffer_is_refused(trained, tmp_path, monkeypatch):
    spec = _other(trained, tmp_path)
    state = checkpoint.Resume.save

    def lossy(self, world, trades, meta):
        monkeypatch.setattr(world.buffers, "state", lambda: {"weights": world.buffers["weights"]})
        state(self, world, trades, meta)
        raise KeyboardInterrupt

    monkeypatch.setattr(checkpoint.Resume, "save", lossy)
    with pytest.raises(KeyboardInterrupt):
        loop.train(spec, _quiet)
    monkeypatch.undo()
    with pytest.raises(Exception, match="disagree on buffer"):
        loop.train(spec, _quiet)


def test_what_breaks_its_contract_lies_in_quarantine_and_is_no_run(trained, tmp_path, monkeypatch):
    spec = _other(trained, tmp_path, config=tiny_config(run={"n_steps": 6}))
    honest = diag.DiagBuilder.row

    def forged(self, *packed):
        row = honest(self, *packed)
        row["trading.realized_pnl_usd_cum"] += 0.01
        return row

    monkeypatch.setattr(diag.DiagBuilder, "row", forged)
    with pytest.raises(ContractBroken, match=r"realized_pnl_usd_cum|pnl_cum_is_sum"):
        loop.train(spec, _quiet)
    assert not Path(spec.out).exists()
    (place,) = (tmp_path / "quarantine").iterdir()
    assert "rule" in (place / "report.txt").read_text()


@pytest.mark.parametrize(("part", "value"), [("labels", {"range_sigma": 2.0}), ("model", {"frd_atoms": 11})])
def test_atoms_other_than_the_labels_are_refused(trained, tmp_path, part, value):
    with pytest.raises(BadInput, match="the labels are cut for"):
        loop.train(_other(trained, tmp_path, config=tiny_config(**{part: value})), _quiet)


def test_labels_of_another_tape_are_refused(trained, tmp_path):
    fold = tmp_path / "fold"
    shutil.copytree(trained.fold_dir, fold)
    labels = fold / "labels" / "frd_labels.arrow"
    with pa.ipc.open_file(str(labels)) as file:
        table = file.read_all()
    with pa.ipc.new_file(str(labels), table.schema) as writer:
        writer.write_table(table.slice(1))
    with pytest.raises(BadInput, match=r"rows of labels for a tape of \d+; materialise frd_labels"):
        loop.train(_other(trained, tmp_path, fold_dir=str(fold)), _quiet)


@pytest.mark.parametrize("text", ["{}", "[1]", '{"kind": "train", "config": {"profile": "demo"}, "more": 1}'])
def test_orders_that_are_none_are_refused(tmp_path, text):
    (tmp_path / "run.json").write_text(text)
    with pytest.raises(BadInput, match=r"run\.json: not the orders of a run"):
        RunSpec.read(tmp_path / "run.json")


def test_a_row_outside_its_bounds_stops_the_run_and_is_named(trained, tmp_path, monkeypatch):
    spec = _other(trained, tmp_path)
    row = diag.DiagBuilder.row
    monkeypatch.setattr(diag.DiagBuilder, "row", lambda self, *packed: row(self, *packed) | {"per.len": -1})
    with pytest.raises(ContractBroken, match=r"step 0: per\.len: -1\.0 is under 0\.0; stage replay made it"):
        loop.train(spec, _quiet)


def test_evaluation_refuses_a_changed_checkpoint(trained, tmp_path):

    copy = tmp_path / "train"
    shutil.copytree(trained.out, copy)
    path = copy / "checkpoint.safetensors"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    spec = replace(evaluation_of(trained), train_dir=str(copy), out=str(tmp_path / "eval"))
    with pytest.raises(BadInput, match=r"checkpoint\.safetensors: changed since it was committed"):
        loop.evaluate(spec, _quiet)


def test_a_new_fee_needs_no_new_training(trained, tmp_path):
    env = replace(trained.config.env, fee_cents=(("2000-01-01", 1000),))
    spec = replace(evaluation_of(trained), config=replace(trained.config, env=env), out=str(tmp_path / "eval"))
    assert spec.run_id != evaluation_of(trained).run_id
    loop.evaluate(spec, _quiet)
    dear = storage.read_json(tmp_path / "eval" / "eval_summary.json")
    base = storage.read_json(Path(evaluation_of(trained).out) / "eval_summary.json")
    assert dear["fees_usd"] > base["fees_usd"] and dear["run_id"] == base["run_id"]


def test_what_the_training_s_slots_hold_cannot_change_in_its_evaluation(trained, tmp_path):
    env = replace(trained.config.env, min_hold_steps=5)
    spec = replace(evaluation_of(trained), config=replace(trained.config, env=env), out=str(tmp_path / "eval"))
    with pytest.raises(BadInput, match=r"trained with \S+ 2, this evaluation wants 5; move it"):
        loop.evaluate(spec, _quiet)
    assert not Path(spec.out).exists()


@pytest.mark.slow
def test_no_live_leaf_is_constant_over_200_steps_unless_the_contract_says_why(trained, tmp_path):
    spec = _other(trained, tmp_path, config=tiny_config(run={"n_steps": 200}))
    loop.train(spec, _quiet)
    columns = read_diag(Path(spec.out) / "diag.jsonl")
    constant = {
        leaf.path
        for leaf in live_leaves()
        if leaf.phase_rule not in ("config", "eval_only")
        and not leaf.path.startswith("isv_config.")
        and len(set(columns[leaf.path].tolist())) == 1
    }
    excused = {leaf.path for leaf in leaves() if leaf.may_be_constant}
    assert constant - excused == set()


def test_every_buffer_is_written_and_read_by_some_stage(trained, tmp_path):
    run = assemble(_other(trained, tmp_path))
    assert run.program.unwired() == []
    run.world.simulator.reset(0)
    for step in range(32):
        flags = Flags(closes=step == 31)
        for name in ("collect", *(["shuffle", "learn"] if flags.closes else []), "measure", "advance"):
            (run.program.audit if step in (0, 31) else run.program.run)(name, flags)


def test_an_evaluation_writes_what_its_stages_declare(trained):
    run = assemble(evaluation_of(trained))
    run.world.simulator.reset(0)
    for flags in (Flags(), Flags(), Flags(last=True, drain=True)):
        for name in ("collect", "measure", "advance"):
            run.program.audit(name, flags)
    assert run.world.clock.step.item() == 3
    stages = run.program.lists["collect"]
    stages[0] = replace(stages[0], writes=tuple(n for n in stages[0].writes if n != "carry"))
    run.world.buffers["carry"].fill_(7.0)
    with pytest.raises(WiringFault, match=r"collect\.gather wrote carry without declaring it"):
        run.program.audit("collect", Flags())


@pytest.mark.slow
def test_a_killed_parent_takes_the_trainer_with_it_and_the_next_run_is_clean(trained, tmp_path):
    config = replace(trained.config, run=replace(trained.config.run, n_steps=100_000))
    child = tmp_path / "child.py"
    spec = _other(trained, tmp_path, config=config)
    child.write_text(
        "import json, os, subprocess, sys\n"
        "order = json.load(open(sys.argv[1])); order['parent'] = os.getpid()\n"
        "json.dump(order, open(sys.argv[1], 'w'))\n"
        "p = subprocess.Popen([sys.executable, '-m', 'foxhunt_assets.trainer', 'train', sys.argv[1]])\n"
        "print(p.pid, flush=True); p.wait()\n"
    )
    order = tmp_path / "run.json"
    storage.write_json(order, spec.to_json())
    parent = subprocess.Popen([sys.executable, str(child), str(order)], stdout=subprocess.PIPE, text=True)
    pid = int(parent.stdout.readline())
    _until(lambda: any(Path(spec.resume).glob("step_*")), 60)
    os.kill(parent.pid, signal.SIGKILL)
    parent.wait()
    _until(lambda: not _alive(pid), 10)
    assert not Path(spec.out).exists()
    short = replace(spec, config=trained.config, resume=str(tmp_path / "work" / "other"))
    loop.train(short, _quiet)
    assert compare_runs(Path(trained.out), Path(short.out)).verdict == "PASS"


def _until(condition, seconds: float) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.1)


def _alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z" or len(os.listdir(f"/proc/{pid}/task")) > 1  # its last threads hold its locks
