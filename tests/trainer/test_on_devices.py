"""One run's rows on a CPU, on a GPU launch by launch and as captured graphs: the same code, the same bits a device."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import torch
from torch.overrides import TorchFunctionMode

from foxhunt_assets.simulator.trades import TradeLog
from foxhunt_assets.trainer import loop
from foxhunt_assets.trainer.assemble import Assembly, assemble
from foxhunt_assets.trainer.capture import Runner
from foxhunt_assets.trainer.numbers import Row
from foxhunt_assets.trainer.outbox import Outbox
from foxhunt_assets.trainer.program import Flags
from tests.trainer.fold_by_hand import make_fold_on_disk, tiny_config

# How far a leaf of the first row may lie from a CPU's: 128 units in its last place as a float32, or 8 of 1, since means
# of both signs come to nothing out of activations and logits of that size.
APART = {"rel": 2.0**-16, "abs": 2.0**-20}
STEPS = 130  # four windows of 32 rows: where graphs are, the second is captured and the others replayed
GPU = pytest.param("cuda", marks=[pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")])


class Kept:
    """What RowLog does with rows, in memory."""

    def __init__(self, run: Assembly) -> None:
        self.run, self.rows, self.trades = run, [], TradeLog("train")

    def take(self, sent: torch.Tensor) -> None:
        tables = self.run.diag.packing.tables(sent)
        self.trades.add(tables["trades"], tables["mask"].bool())
        self.rows.append(self.run.diag.row(sent))


def train(home: Path, device: str, captured: bool, steps: int = STEPS) -> tuple[list[Row], dict[str, torch.Tensor]]:
    """Rows and final state of `steps` training steps."""
    spec = dataclasses.replace(make_fold_on_disk(home, tiny_config()), device=device)
    run = assemble(spec)
    run.runner = Runner(run.program, captured)
    run.world.simulator.reset(0)
    kept = Kept(run)
    window = spec.config.learning.rollout_steps
    with Outbox(run.world.device, kept.take) as outbox:
        for step in range(steps):
            loop._training_row(run, Flags(closes=(step + 1) % window == 0))
            outbox.post(run.diag.outgoing)
        outbox.flush()
    state = {name: x.cpu() for name, x in run.world.buffers.state().items()}
    return kept.rows, state | {"trades": kept.trades.state()}


class NoHostReads(TorchFunctionMode):
    """Refuses what waits for a device to answer."""

    FORBIDDEN = (
        "item", "tolist", "__bool__", "__int__", "__float__", "__index__", "__contains__", "numpy", "cpu", "unique",
        "nonzero", "bincount", "masked_select",
    )  # fmt: skip

    def __torch_function__(self, function, types, args=(), kwargs=None):
        name = getattr(function, "__name__", "")
        assert name not in self.FORBIDDEN, f"{name} in a stage"
        return function(*args, **(kwargs or {}))


def test_no_stage_waits_for_the_host(tmp_path):
    run = assemble(make_fold_on_disk(tmp_path, tiny_config()))
    run.world.simulator.reset(0)
    for step in range(33):
        closes = step == 31
        for name in ("collect", *(["shuffle", "learn"] if closes else []), "measure", "advance"):
            if step == 0:  # the first row lays out its packing
                run.program.run(name, Flags(closes=closes))
                continue
            with NoHostReads():
                run.program.run(name, Flags(closes=closes))
    assert run.world.clock.step.item() == 33 and run.world.clock.update.item() == 1


@pytest.mark.parametrize(
    "ask", [float, int, bool, torch.Tensor.item, torch.Tensor.tolist, torch.Tensor.unique, lambda x: [1, 2][x.long()]]
)
def test_what_waits_for_the_host_is_refused(ask):
    x = torch.ones(())
    with pytest.raises(AssertionError, match="in a stage"), NoHostReads():
        ask(x)


def test_groups_of_a_row_do_not_depend_on_each_other(tmp_path):
    """On a GPU they are measured side by side: any order must give the same rows."""
    found = []
    for name, turn in (("as they stand", list), ("backwards", lambda groups: groups[::-1])):
        run = assemble(make_fold_on_disk(tmp_path / name, tiny_config()))
        *groups, packed = run.program.lists["measure"]
        run.program.lists["measure"] = [*turn(groups), packed]
        run.world.simulator.reset(0)
        kept = Kept(run)
        for step in range(34):
            loop._training_row(run, Flags(closes=step == 31))
            kept.take(run.diag.outgoing)
        found.append(kept.rows)
    assert found[0] == found[1]


@pytest.mark.parametrize("device", [GPU])
def test_captured_and_eager_runs_are_equal_bit_for_bit(device, tmp_path):
    eager, eager_state = train(tmp_path / "eager", device, captured=False)
    captured, captured_state = train(tmp_path / "captured", device, captured=True)
    assert len(eager) == len(captured) == STEPS
    for a, b in zip(eager, captured):
        assert a == b, [k for k in a if a[k] != b[k]][:5]
    for name, x in eager_state.items():
        assert torch.equal(x, captured_state[name]), name


@pytest.mark.parametrize("device", [GPU])
def test_a_replayed_row_waits_for_nothing(device, tmp_path):
    run = assemble(dataclasses.replace(make_fold_on_disk(tmp_path, tiny_config()), device=device))
    run.world.simulator.reset(0)
    kept = Kept(run)
    with Outbox(run.world.device, kept.take) as outbox:
        for step in range(200):
            if step == 100:
                torch.cuda.set_sync_debug_mode("error")
            loop._training_row(run, Flags(closes=(step + 1) % 32 == 0))
            outbox.post(run.diag.outgoing)
        torch.cuda.set_sync_debug_mode("default")
        outbox.flush()
    assert [row["step"] for row in kept.rows] == list(range(200))


class Rounded(TorchFunctionMode):
    """Moves float32 results by roundings: those of products by up to two units in the last place of their largest,
    those of sums and functions by one of their own."""

    PRODUCTS = ("matmul", "mm", "addmm", "bmm", "baddbmm", "linear")
    OTHERS = (
        "exp", "log", "expm1", "log1p", "softmax", "log_softmax", "sigmoid", "tanh", "rsqrt", "sum", "mean", "var",
    )  # fmt: skip

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.generator = torch.Generator().manual_seed(seed)

    def __torch_function__(self, function, types, args=(), kwargs=None):
        out, name = function(*args, **(kwargs or {})), getattr(function, "__name__", "")
        if name not in self.PRODUCTS + self.OTHERS or out.dtype != torch.float32:
            return out
        most, unit = (2, out.abs().max()) if name in self.PRODUCTS else (1, out.abs())
        return out + torch.randint(-most, most + 1, out.shape, generator=self.generator) * 2.0**-23 * unit


def _same_row(here: Row, there: Row, **apart: float) -> None:
    for path, value in here.items():
        if isinstance(value, float):
            assert there[path] == pytest.approx(value, **apart), path
        elif not path.endswith("digest32") and not path.startswith("checksums."):
            assert there[path] == value, path


def test_roundings_move_the_first_row_by_less_than_half_of_what_a_device_may(tmp_path):
    (here,), _ = train(tmp_path / "plain", "cpu", captured=False, steps=1)
    moved = 0
    for seed in range(4):
        with Rounded(seed):
            (there,), _ = train(tmp_path / str(seed), "cpu", captured=False, steps=1)
        _same_row(here, there, **{name: bound / 2 for name, bound in APART.items()})
        moved = sum(there[path] != value for path, value in here.items())
    assert moved > 50  # of 342 floats: the roundings arrive


@pytest.mark.parametrize("device", [GPU])
def test_the_first_row_is_the_one_of_a_cpu(device, tmp_path):
    (here,), state = train(tmp_path / "cpu", "cpu", captured=False, steps=1)
    (there,), other = train(tmp_path / "gpu", device, captured=True, steps=1)
    _same_row(here, there, **APART)
    for name in ("acct_row", "acct_cash_cents"):
        assert torch.equal(state[name], other[name]), name
