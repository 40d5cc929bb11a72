"""The registry and the wiring audit: each finds the fault it is there for."""

import pytest
import torch

from foxhunt_assets.contracts.buffers import BufferSpec
from foxhunt_assets.trainer.program import Flags, Program, Registry, Stage, WiringFault


def _program(run, **declared):
    registry = Registry()
    registry.add(BufferSpec("a", (2,), "float32", "account"), BufferSpec("b", (2,), "int64", "transient", fill=7))
    program = Program(registry)
    program.add("list", [Stage("only", lambda _: run(registry), **declared)])
    return program


def test_a_declared_write_passes_and_an_undeclared_one_is_named():
    _program(lambda r: r["a"].add_(1), writes=("a",)).audit("list", Flags())
    with pytest.raises(WiringFault, match=r"list\.only wrote b"):
        _program(lambda r: r["b"].add_(1), writes=("a",)).audit("list", Flags())


def test_names_must_exist_once():
    with pytest.raises(WiringFault, match="unknown buffer c"):
        _program(lambda r: None, reads=("c",))
    registry = Registry()
    spec = BufferSpec("a", (1,), "float32", "account")
    registry.add(spec)
    with pytest.raises(WiringFault, match="registered twice"):
        registry.add(spec)


def test_unwired_buffers_are_listed():
    assert _program(lambda r: None, reads=("a",)).unwired() == ["a", "b"]
    assert _program(lambda r: None, inouts=("a", "b")).unwired() == []


def test_results_must_be_left_before_they_are_read_and_count_as_written():
    registry = Registry()
    registry.add(BufferSpec("a", (1,), "float32", "account"))
    program = Program(registry)
    reader = Stage("reader", lambda _: None, ("made",), ("a",))
    with pytest.raises(WiringFault, match=r"stage list\.reader names the unknown buffer made"):
        program.add("list", [reader])
    program.add("before", [Stage("maker", lambda _: None, results=("made",))])
    program.add("list", [reader])
    assert program.unwired() == []


def test_stages_side_by_side_must_not_hang_on_each_other():
    registry = Registry()
    registry.add(*(BufferSpec(name, (1,), "float32", "account") for name in "ab"))
    program = Program(registry)
    first = Stage("first", lambda _: None, ("a",), ("b",), beside=True)
    for second in (
        Stage("second", lambda _: None, ("b",), beside=True),
        Stage("second", print, (), ("a",), beside=True),
    ):
        with pytest.raises(WiringFault, match=r"list\.second hangs on first and runs beside it"):
            program.add("list", [first, second])
        program.add("list", [first, Stage("between", lambda _: None), second])
    program.add("list", [first, Stage("second", lambda _: None, ("a",), beside=True)])


def test_nor_over_lists_that_run_as_one():
    registry, ran = Registry(), []
    registry.add(*(BufferSpec(name, (1,), "float32", "account") for name in "ab"))
    program = Program(registry)
    program.add("one", [Stage("first", lambda _: ran.append("first"), ("a",), ("b",), beside=True)])
    program.add("two", [Stage("second", lambda _: ran.append("second"), ("b",), beside=True)])
    program.add("between", [Stage("main", lambda _: None)])
    program.run("one", Flags(), "between", "two")
    with pytest.raises(WiringFault, match=r"stage two\.second hangs on first and runs beside it"):
        program.run("one", Flags(), "two")
    assert ran == ["first", "second", "first"]


def test_state_is_the_state_groups_and_loads_back_or_names_the_fault():
    registry = Registry()
    registry.add(BufferSpec("a", (2,), "float32", "account"), BufferSpec("b", (2,), "int64", "transient"))
    saved = {k: v.clone() for k, v in registry.state().items()}
    assert list(saved) == ["a"]
    registry["a"].fill_(3)
    registry.load_state(saved)
    assert torch.equal(registry["a"], torch.zeros(2))
    with pytest.raises(WiringFault, match="disagree on buffer a"):
        registry.load_state({})
    with pytest.raises(WiringFault, match="holds a as"):
        registry.load_state({"a": torch.zeros(3)})
