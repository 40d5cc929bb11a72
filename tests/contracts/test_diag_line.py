"""A line is what json makes of the nested row, and what it refuses the leaf-by-leaf check refuses too."""

import json
import math

import numpy as np
import pytest

from foxhunt_assets.contracts.diag import live_leaves, nest, row_faults
from foxhunt_assets.contracts.diag_line import STAGES, diag_line
from foxhunt_assets.errors import ContractBroken


def _row(seed: int) -> dict:
    """A value inside the bounds of every live leaf."""
    rng = np.random.default_rng(seed)
    row = {}
    for leaf in live_leaves():
        low = max(-1e6, -math.inf if leaf.minimum is None else leaf.minimum)
        high = min(1e6, math.inf if leaf.maximum is None else leaf.maximum)
        value = rng.uniform(low, high)
        row[leaf.path] = {"int": lambda v: math.floor(v), "bool": lambda v: bool(v > 0.5)}.get(leaf.dtype, float)(value)
    return row


@pytest.mark.parametrize("seed", range(20))
def test_a_line_is_the_json_of_the_nested_row(seed):
    row = _row(seed)
    assert row_faults(row) == []
    assert diag_line().text(row) == json.dumps(nest(row), allow_nan=False, separators=(",", ":")) + "\n"
    back = dict(reversed(row.items()))  # the order is the contract's, whatever the row's
    assert diag_line().text(back) == diag_line().text(row)


@pytest.mark.parametrize("leaf", ["loss.pi", "v.pred_mean", "data.terminated_step", "pi.entropy_mean"])
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_is_named(leaf, value):
    with pytest.raises(ContractBroken, match=f"step .*: {leaf}: .* is not "):
        diag_line().text(_row(0) | {leaf: value})


def test_the_earliest_stage_is_named_and_every_producer_is_a_stage():
    assert {leaf.producer for leaf in live_leaves()} <= set(STAGES)
    with pytest.raises(
        ContractBroken, match=r"loss\.pi: nan is not finite; stage losses made it \(3 leaves at fault\)"
    ):
        diag_line().text(_row(0) | dict.fromkeys(("optim.update_norm", "loss.pi", "optim.q.grad_norm"), math.nan))


def test_bounds_missing_and_extra_leaves_are_named():
    with pytest.raises(ContractBroken, match=r"pi\.entropy_mean: -0\.1 is under 0"):
        diag_line().text(_row(0) | {"pi.entropy_mean": -0.1})
    row = _row(0)
    del row["loss.v"]
    with pytest.raises(ContractBroken, match=r"loss\.v: missing"):
        diag_line().text(row)
    with pytest.raises(ContractBroken, match=r"nothing\.of\.this: not in the contract"):
        diag_line().text(_row(0) | {"nothing.of.this": 1})
    with pytest.raises(ContractBroken, match="step x: step: 'x' is not int"):
        diag_line().text(_row(0) | {"step": "x"})
