"""The leaf profile catches every kind of fault, and its verdict is that of pandera on the whole table."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest

from foxhunt_assets.contracts import pandera_schemas as schemas
from foxhunt_assets.contracts.diag import leaves
from foxhunt_assets.contracts.profile import leaf_profile, profile_faults
from tests.contracts.test_sidecar import CONTRACT, leaf

GOOD = pa.table(
    {
        "step": pa.array([0, 1, 2], pa.int64()),
        "loss.q": pa.array([0.0, 9.5, 1.0], pa.float64()),
        "pyramid.max": pa.array([True, False, True]),
        "sum.a.b": pa.array([-1e300, 0.0, 1.0], pa.float64()),
    }
)


def column(name: str, values: list, dtype: pa.DataType) -> Callable[[pa.Table], pa.Table]:
    return lambda t: t.set_column(t.column_names.index(name), name, pa.array(values, dtype))


F, I = pa.float64(), pa.int64()  # noqa: E741
MUTATIONS: dict[str, tuple[Callable[[pa.Table], pa.Table], str]] = {
    "NaN": (column("loss.q", [0.0, float("nan"), 1.0], F), "loss.q: 1 nonfinite"),
    "infinity": (column("loss.q", [0.0, float("inf"), 1.0], F), "loss.q: 1 nonfinite"),
    "infinity without a bound": (column("sum.a.b", [0.0, float("-inf"), 1.0], F), "sum.a.b: 1 nonfinite"),
    "infinity over a lower bound": (column("sum.a.b", [0.0, 1.0, float("inf")], F), "sum.a.b: 1 nonfinite"),
    "null": (column("loss.q", [0.0, None, 1.0], F), "loss.q: 1 nulls"),
    "null integer": (column("step", [0, None, 2], I), "step: 1 nulls"),
    "over the maximum": (column("loss.q", [0.0, 9.6, 9.7], F), "loss.q: 2 above_max"),
    "under the minimum": (column("step", [-1, 1, 2], I), "step: 1 below_min"),
    "missing": (lambda t: t.drop_columns(["loss.q"]), "loss.q: missing"),
    "extra": (lambda t: t.append_column("x.y", pa.array([1, 2, 3])), "x.y: not in the contract"),
    "another type": (column("loss.q", [0, 1, 2], I), "loss.q: another type than the contract's"),
    "integer as float": (column("step", [0.0, 1.0, 2.0], F), "step: another type than the contract's"),
    "bool as integer": (column("pyramid.max", [0, 1, 0], I), "pyramid.max: another type than the contract's"),
    "duplicate": (lambda t: t.append_column("loss.q", t.column("loss.q")), "loss.q: 2 columns of this name"),
    "no rows": (lambda t: t.slice(0, 0), "step: no rows"),
}


def test_a_clean_table_has_no_fault_in_either_form() -> None:
    assert profile_faults(leaf_profile(GOOD, CONTRACT)) == []
    assert schemas.faults(schemas.profile_schema(), schemas.profile_frame(GOOD, CONTRACT)) == []
    assert schemas.faults(schemas.diag_schema(CONTRACT), schemas.frame(GOOD)) == []


@pytest.mark.parametrize("name", MUTATIONS)
def test_profile_pandera_on_the_profile_and_pandera_on_the_table_all_catch_it(name: str) -> None:
    change, fault = MUTATIONS[name]
    table = change(GOOD)
    assert profile_faults(leaf_profile(table, CONTRACT))[0] == fault
    assert schemas.faults(schemas.profile_schema(), schemas.profile_frame(table, CONTRACT))
    if name != "duplicate":  # a pandas frame of it would drop one of the two
        assert schemas.faults(schemas.diag_schema(CONTRACT), schemas.frame(table))


def test_the_report_is_bounded() -> None:
    many = tuple(leaf(f"a{i}", "float") for i in range(30))
    empty = pa.table({"step": pa.array([1])})
    found = profile_faults(leaf_profile(empty, many), limit=20)
    assert len(found) == 21 and found[-1] == "and 11 more leaves"


def test_the_whole_contract_fits_the_profile() -> None:
    types = {"int": I, "float": F, "bool": pa.bool_()}
    low = {x.path: x.minimum if x.minimum is not None else min(0.0, x.maximum or 0.0) for x in leaves()}
    table = pa.table(
        {x.path: pa.array([0 if x.dtype == "bool" else low[x.path]] * 2).cast(types[x.dtype]) for x in leaves()}
    )
    profile = leaf_profile(table, leaves())
    assert len(profile["path"]) == 712 and profile_faults(profile) == []
    assert schemas.faults(schemas.profile_schema(), schemas.profile_frame(table, leaves())) == []
