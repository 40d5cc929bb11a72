"""The rows of the kernels' table, small, with the sources run in the shim: none is stale, and no family is without."""

import dataclasses
import re
from functools import partial
from pathlib import Path

import pytest
import torch

from benchmarks._kernel_speed import agree
from benchmarks.kernel_rows import Row, encoder, learning, market, measuring, plumbing
from kernels import build
from tests.kernels import shim

SMALL = {
    "windows": partial(market.window_rows, 2, 3, 8, 50),
    "scan": partial(encoder.scan_rows, 2, 3, 8),
    "layers": partial(encoder.layer_rows, 2, 3, 7, 8),
    "composed weights": partial(encoder.compose_rows, 3, 4),
    "heads": partial(encoder.head_rows, 2, 8),
    "acting": partial(learning.act_rows, 3, 4),
    "minibatch": partial(learning.minibatch_rows, 3),
    "gradients": partial(learning.gradient_rows, 3, 8),
    "optimiser": partial(learning.optimiser_rows, 50, 2),
    "tree": partial(learning.tree_rows, 64, 5),
    "batch measured": partial(measuring.batch_rows, 3, 2, 8, 8),
    "step measured": partial(measuring.step_rows, 3),
    "orders": partial(market.order_rows, 3),
    "accounts": partial(market.account_rows, 3, 200),
    "plumbing": partial(plumbing.rows, 64, 8),
}


@pytest.mark.parametrize("theme", SMALL)
def test_kernels_and_twins_of_the_rows_agree(theme, monkeypatch):
    torch.manual_seed(0)
    with shim.installed(monkeypatch, shim.POISONS[0], schedules=1) as launched:
        rows = SMALL[theme]()
        for row in rows:
            launched.clear()
            agree(row)
            assert launched, row.name
    assert len({row.name for row in rows}) == len(rows)


def test_a_row_whose_kernel_is_apart_from_its_twin_does_not_count():
    x = torch.ones(3)
    row = Row("x", lambda x: x + 1e-3, lambda x: x, (x,), 0, tolerance=2e-3)
    agree(row)
    with pytest.raises(AssertionError, match=r"x: 0\.00100"):
        agree(dataclasses.replace(row, tolerance=5e-4))
    with pytest.raises(AssertionError, match="x: not equal to the twin"):
        agree(dataclasses.replace(row, kernel=lambda x: x.int(), twin=lambda x: x.int() + 1))


def test_every_family_has_a_row():
    sources = "".join(path.read_text() for path in Path(encoder.__file__).parent.glob("*.py"))
    through_the_simulator = {"account", "tally"}
    assert set(re.findall(r"from kernels\.(\w+) import", sources)) | through_the_simulator >= set(build.families())
