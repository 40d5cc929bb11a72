"""A stage reads what it declares and nothing else: all the rest is spoiled while it runs, and its results stay.

Two like runs go side by side. In one of them each stage finds no number, a huge one or a turned flag in every element
of every buffer that it declares neither read nor changed; what it writes must have the bits of the other run. What
stages leave beside the buffers is watched instead: who looks at it must have declared that.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
import torch

from foxhunt_assets.trainer import slots
from foxhunt_assets.trainer.assemble import Assembly, assemble
from foxhunt_assets.trainer.collect import Collector
from foxhunt_assets.trainer.program import Flags, Stage
from foxhunt_assets.trainer.run_spec import RunSpec
from tests.trainer.fold_by_hand import evaluation_of, make_fold_on_disk, tiny_config

WINDOW = 32  # the shortest there may be
SPOILS = ((float("nan"), -(2**62)), (1e30, 2**62))  # for floats and for whole numbers, which are cut to their type
BITS = {1: torch.uint8, 4: torch.int32, 8: torch.int64}
Rows = list[tuple[Flags, tuple[str, ...]]]

ROW, LEARN = ("measure", "advance"), ("shuffle", "learn", "learn")
TRAINING: Rows = [  # a window, its two minibatches, and a row of the next
    *[(Flags(), ("collect", *ROW))] * 2, *[(Flags(), ("collect", "advance"))] * (WINDOW - 3),
    (Flags(closes=True), ("collect", *LEARN, *ROW)), (Flags(last=True), ("collect", *ROW)),
]  # fmt: skip
PER_STEP: Rows = [(Flags(closes=True, last=i == 2), ("collect", *LEARN[:2], *ROW)) for i in range(3)]
EVALUATION: Rows = [(Flags(last=i == 3, drain=i == 3), ("collect", *ROW)) for i in range(4)]
UNWATCHED = range(2, WINDOW - 1)  # rows like those before them, which only fill the window

Spoil = tuple[float, int]
Declare = Callable[[Stage], Stage]


@pytest.fixture(scope="module")
def training(tmp_path_factory):
    config = tiny_config(learning={"rollout_steps": WINDOW, "minibatches": 2, "epochs": 1}, env={"episode_length": 4})
    return make_fold_on_disk(tmp_path_factory.mktemp("home"), config)


@pytest.fixture(scope="module")
def per_step(training):
    learning = replace(training.config.learning, mode="per_step")
    return replace(training, config=replace(training.config, learning=learning))


def _begin(order: RunSpec) -> Assembly:
    run = assemble(order)
    if run.world.evaluating:
        slots.set_evaluation(run.world.buffers["isv_full"])
    run.world.simulator.reset(0)
    return run


def _spoil(x: torch.Tensor, spoil: Spoil) -> None:
    if x.dtype == torch.bool:
        x.logical_not_()
    elif x.is_floating_point():
        x.fill_(spoil[0])
    else:
        x.fill_(max(torch.iinfo(x.dtype).min, min(torch.iinfo(x.dtype).max, spoil[1])))


def _same(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Which elements have the same bits."""
    return a.view(BITS[a.element_size()]) == b.view(BITS[b.element_size()])


def _written_otherwise(stage: Stage, like: Stage, runs: list[Assembly], flags: Flags, spoil: Spoil) -> list[str]:
    """Run a stage of the first run and the like one of the second, which finds spoiled what it does not declare;
    buffers that it then writes otherwise."""
    clean, spoiled = (run.world.buffers for run in runs)
    kept = {name: x.clone() for name, x in spoiled.items() if name not in (*stage.reads, *stage.inouts)}
    for name in kept:
        _spoil(spoiled[name], spoil)
    waste = {name: spoiled[name].clone() for name in stage.writes if name in kept}
    stage.run(flags)
    like.run(flags)
    found = []
    for name in (*stage.writes, *stage.inouts):
        same = _same(clean[name], spoiled[name])
        if name in waste:  # where neither of them wrote
            same |= _same(clean[name], kept[name]) & _same(spoiled[name], waste[name])
        if not same.all():
            found.append(name)
    for name, x in kept.items():
        spoiled[name].copy_(clean[name] if name in stage.writes else x)
    return found


def undeclared(order: RunSpec, rows: Rows, spoil: Spoil, declare: Declare = lambda stage: stage) -> Iterator[str]:
    """Stages whose results hang on what they do not declare; all after the first may be its consequence.

    declare: changes the declaration of a stage.
    """
    runs = [_begin(order), _begin(order)]
    for i, (flags, names) in enumerate(rows):
        for name in names:
            if i in UNWATCHED:
                for run in runs:
                    run.program.run(name, flags)
                continue
            for stage, like in zip(*(run.program.lists[name] for run in runs), strict=True):
                try:
                    found = _written_otherwise(declare(stage), like, runs, flags, spoil)
                except (IndexError, RuntimeError) as error:  # a row number out of bounds is either
                    yield f"{name}.{stage.name} fails: {error}"
                    return
                if found:
                    yield f"{name}.{stage.name} writes {', '.join(found)}"
        if not _same(*(run.diag.outgoing for run in runs)).all():
            yield f"row {i} sends other numbers"


def looked_at(order: RunSpec, rows: Rows) -> dict[str, set[str]]:
    """Of each stage, what it takes of the results that stages of the list "collect" leave on the collector."""
    run = _begin(order)
    lists = run.program.lists
    results = {name for stage in lists["collect"] for name in stage.results}
    seen: set[str] = set()

    class Watched(Collector):
        def __getattribute__(self, name):
            if name in results:
                seen.add(name)
            return super().__getattribute__(name)

    run.collector.__class__ = Watched
    found: dict[str, set[str]] = {}
    for i, (flags, names) in enumerate(rows):
        for name in names:
            if i in UNWATCHED:
                run.program.run(name, flags)
                continue
            for stage in lists[name]:
                seen.clear()
                stage.run(flags)
                found.setdefault(f"{name}.{stage.name}", set()).update(seen)
    assert set().union(*found.values()) == results, "a result that nobody looks at"
    return found


@pytest.mark.parametrize("order", ["training", "per_step", "evaluation"])
def test_stages_look_at_no_result_that_they_do_not_declare(request, order):
    training, per_step = (request.getfixturevalue(name) for name in ("training", "per_step"))
    of, rows = {
        "training": (training, TRAINING), "per_step": (per_step, PER_STEP),
        "evaluation": (evaluation_of(training), EVALUATION),
    }[order]  # fmt: skip
    declared = {
        f"{name}.{stage.name}": {*stage.reads, *stage.results}
        for name, stages in _begin(of).program.lists.items()
        for stage in stages
    }
    found = looked_at(of, rows)
    assert found["measure.acting"] == {"anchor", "outcome", "td_abs"} and found["measure.slots"] == set()
    for stage, names in found.items():
        assert names <= declared[stage], f"{stage} takes {', '.join(sorted(names - declared[stage]))}"


@pytest.mark.parametrize("spoil", SPOILS, ids=["no number", "huge"])
@pytest.mark.parametrize(
    ("order", "rows"),
    [("training", TRAINING), ("per_step", PER_STEP), ("evaluation", EVALUATION)],
    ids=["training", "one update a row", "evaluation"],
)
def test_stages_read_what_they_declare(request, order, rows, spoil):
    training, per_step = (request.getfixturevalue(name) for name in ("training", "per_step"))
    orders = {"training": training, "per_step": per_step, "evaluation": evaluation_of(training)}
    assert next(undeclared(orders[order], rows, spoil), None) is None


@pytest.mark.parametrize(
    ("stage", "buffer", "said"),
    [
        ("encode", "carry", "collect.encode writes h_t"),
        ("act", "legal", "collect.act writes pi, "),
        ("act", "clock", "collect.act writes action, "),
        ("replay", "replay_count", "collect.replay writes replay_count"),
        ("gather", "epoch_order", "learn.gather fails: index "),
        ("backward_encoder", "learn_x", "learn.backward_encoder writes grads"),
    ],
    ids=["floats", "flags", "whole numbers", "what a stage changes", "row numbers", "what the encoder was made of"],
)
def test_a_name_left_out_of_a_declaration_is_found(per_step, stage, buffer, said):
    def left_out(declared: Stage) -> Stage:
        if declared.name != stage:
            return declared
        reads, inouts = (tuple(n for n in names if n != buffer) for names in (declared.reads, declared.inouts))
        moved = (buffer,) if buffer in declared.inouts else ()  # from changed to written
        return replace(declared, reads=reads, inouts=inouts, writes=(*declared.writes, *moved))

    assert next(undeclared(per_step, PER_STEP, SPOILS[0], left_out)).startswith(said)
