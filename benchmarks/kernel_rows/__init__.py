"""The rows of the kernels' table, a file a theme.
Shapes are those of a training step (128 or 1,024 accounts, windows of 32, 56 features, 128 channels, 11 actions, 21
atoms; a minibatch has 2,048 rows) and larger ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import torch

from benchmarks.kernel_rows import encoder, learning, market, measuring, plumbing
from benchmarks.kernel_rows.row import Row

__all__ = ["Row", "rows"]


def rows(device: str) -> Iterator[Row]:
    """Every row on a device, made when it is asked for; torch's default device holds while rows are made."""
    torch.manual_seed(0)
    for make in _makers():
        with torch.device(device):
            made = make()
        yield from made


def _makers() -> Iterator[Callable[[], list[Row]]]:
    for r in (128, 1024, 2048):
        yield partial(market.window_rows, r)
        yield partial(encoder.scan_rows, r)
    for r in (128, 2048):
        yield partial(encoder.layer_rows, r)
    yield partial(encoder.compose_rows, 56, 128)
    for r in (128, 1024):
        yield partial(encoder.head_rows, r)
        yield partial(learning.act_rows, r, 32 if r == 128 else 256)
        yield partial(learning.minibatch_rows, r)
        yield partial(learning.gradient_rows, r)
    yield partial(learning.optimiser_rows, 340_000, 2048)
    for capacity, draws in ((65_536, 128), (65_536, 1024), (1 << 20, 1024)):
        yield partial(learning.tree_rows, capacity, draws)
    for r in (128, 1024):
        yield partial(measuring.batch_rows, r)
        yield partial(measuring.step_rows, r)
    for accounts in (128, 8192, 131_072):
        yield partial(market.order_rows, accounts)
        yield partial(market.account_rows, accounts)
    yield plumbing.rows
