"""What is ordered before what, told by a device that only takes notes: every order that matters, and no order more."""

from contextlib import contextmanager

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from foxhunt_assets.trainer.assemble import assemble
from foxhunt_assets.trainer.lanes import Lanes
from foxhunt_assets.trainer.program import Stage
from tests.trainer.fold_by_hand import evaluation_of, make_fold_on_disk, tiny_config

GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")


class Notes:
    """Streams as the sets of what is done before their next work begins. before: that set, of each work so far."""

    def __init__(self, *_):
        self.done = set()

    def record_event(self):
        return frozenset(self.done)

    def wait_event(self, event):
        self.done |= event

    def wait_stream(self, other):
        self.done |= other.done


@contextmanager
def noting():
    current = [Notes()]

    @contextmanager
    def on(stream):
        current.append(stream)
        yield
        current.pop()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.cuda, "Stream", Notes)
        patch.setattr(torch.cuda, "stream", on)
        patch.setattr(torch.cuda, "current_stream", lambda *_: current[-1])
        yield current


def befores(stages: list[Stage], runs: int = 1) -> list[list[set[int]]]:
    """For each run of the stages, what comes before each; the last set of a run: before whatever comes after it.

    Numbers go on from run to run.
    """
    found, lanes, number = [], Lanes(torch.device("cuda"), Stage.hangs_on), 0
    with noting() as current:
        for _ in range(runs):
            before = []
            with lanes:
                for stage in stages:
                    with lanes.of(stage, stage.beside):
                        before.append(set(current[-1].done))
                        current[-1].done.add(number)
                        number += 1
            found.append([*before, set(current[-1].done)])
    return found


NAMES = st.lists(st.sampled_from("abcd"), max_size=2).map(tuple)
STAGES = st.lists(
    st.builds(Stage, st.just(""), st.none(), NAMES, NAMES, NAMES, beside=st.booleans()), min_size=1, max_size=9
)


@given(STAGES)
def test_what_hangs_on_another_comes_after_it_and_a_run_after_the_run_before(stages):
    abreast: list[Stage] = []
    for stage in stages:  # a program refuses the others
        abreast = [*abreast, stage] if stage.beside else []
        if any(stage.hangs_on(other) for other in abreast[:-1]):
            return
    first, second = befores(stages, runs=2)
    for i, stage in enumerate(stages):
        for j in range(i):
            assert j in first[i] or not stage.hangs_on(stages[j])
            assert j in first[i] or stage.beside or stages[j].beside  # the main lane is one after another
    assert first[-1] == set(range(len(stages)))
    assert all(first[-1] <= before for before in second)


def test_work_beside_waits_for_no_more_than_it_hangs_on_and_the_main_lane_for_all_of_it():
    stages = [
        Stage("make", None, writes=("a",)), Stage("long", None, writes=("b",)), Stage("use", None, ("a",), beside=True),
        Stage("free", None, (), ("c",), beside=True), Stage("late", None, (), ("d",), beside=True, behind="long"),
        Stage("end", None),
    ]  # fmt: skip
    (found,) = befores(stages)
    assert found == [set(), {0}, {0}, set(), {0, 1}, {0, 1, 2, 3, 4}, {0, 1, 2, 3, 4, 5}]


def test_a_lane_begins_anew_behind_what_the_main_one_read_of_it():
    """Be it soon or late: what the lane left lies in memory that it would use again."""
    beside, other = (Stage("measure", None, (), (name,), beside=True) for name in "ab")
    main, read = Stage("main", None), Stage("read", None, ("a",))
    for then in ([read], [main, read], [main, main, read]):
        stages = [main, beside, *then, other]
        (found,) = befores(stages)
        assert found[1] == set() and found[len(stages) - 1] == set(range(len(stages) - 1))


@pytest.mark.parametrize("kind", ["training", "evaluation"])
def test_measuring_waits_for_no_stage_that_it_does_not_read(kind, tmp_path):
    order = make_fold_on_disk(tmp_path, tiny_config())
    program = assemble(order if kind == "training" else evaluation_of(order)).program
    stages = [stage for name in ("collect", "measure", "advance") for stage in program.lists[name]]
    (found,) = befores(stages)
    names = [stage.name for stage in stages]
    last = {stage.name: names[max(before, default=0)] for stage, before in zip(stages, found) if stage.beside}
    begun = {"perception": "act", "counters": "simulate", "health": "simulate", "acting": "reward"}
    assert {name: last[name] for name in begun} == begun
    if kind == "training":
        storing = {"spectra": "act", "memory": "rollout", "events": "rollout", "checksums": "rollout"}
        assert {name: last[name] for name in storing} == storing
        assert [name for name, stage in last.items() if stage == "bootstrap"] == ["learning"]
    for i, stage in enumerate(stages):
        for j in range(i):
            assert j in found[i] or not stage.hangs_on(stages[j]), (stage.name, names[j])
    assert found[names.index("advance")] == set(range(names.index("advance")))


@pytest.mark.gpu
@GPU
def test_lanes_of_a_captured_graph_compute_what_the_order_says():
    x, y, z = (torch.zeros(1 << 20, device="cuda") for _ in range(3))
    stages = [
        Stage("x", lambda _: x.add_(1), inouts=("x",)),
        Stage("slow", lambda _: [z.sin_() for _ in range(50)], inouts=("z",)),
        Stage("y", lambda _: y.add_(x), ("x",), inouts=("y",), beside=True),
        Stage("after", lambda _: x.mul_(2), (), (), ("x",)),
    ]  # fmt: skip
    lanes = Lanes(torch.device("cuda"), Stage.hangs_on)

    def run():
        with lanes:
            for stage in stages:
                with lanes.of(stage, stage.beside):
                    stage.run(None)

    run()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    for _ in range(9):
        graph.replay()
    value = total = 0.0
    for _ in range(10):
        value += 1
        total, value = total + value, value * 2
    assert x.eq(value).all() and y.eq(total).all()
