"""What diagnostics measure of an acting batch and of a row."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from benchmarks.kernel_rows.row import Row
from kernels.acting import kernel as acting_kernel
from kernels.acting import reference as acting
from kernels.events import kernel as events_kernel
from kernels.events import reference as events
from kernels.geometry import kernel as geometry_kernel
from kernels.geometry import reference as geometry
from kernels.lob import reference as lob
from kernels.moves import kernel as moves_kernel
from kernels.moves import reference as moves
from kernels.statistics import kernel as statistics_kernel
from kernels.statistics import reference as statistics


def batch_rows(r: int, steps: int = 32, features: int = 56, h: int = 128) -> list[Row]:
    """Activations of R windows, and R rows of books and of the hidden state."""
    wide = [torch.randn(steps * r, h) for _ in range(8)]
    narrow = [torch.randn(steps * r, features) for _ in range(3)]
    state, before = torch.randn(2, r, h)
    starts = torch.rand(r) < 0.1
    px = torch.randint(100, 130, (5000, 10), dtype=torch.int32)
    now = torch.randint(0, 4000, (r,))
    moments = torch.zeros(features, moves.MOMENTS, dtype=torch.float64)
    tape = (torch.randn(r, steps, features), (px, px + 1, px, px), now, now + 3, lob.ABSENT, 0.0, moments)
    return [
        Row(f"statistics of 11 matrices of {steps * r} rows", statistics_kernel.summary, statistics.summary,
            ([*wide, *narrow], None, [False] * 11, 8.0), steps * r * 4 * (8 * h + 3 * features), 1e-9),
        Row(f"geometry {r} x {h}", geometry_kernel.geometry, geometry.geometry, (state, before, starts), 8 * r * h,
            1e-9),
        Row(f"moves {r} x {features}", moves_kernel.moves, moves.moves, tape, r * (4 * features + 32 + 320), 1e-9),
    ]  # fmt: skip


def step_rows(r: int, n: int = 11, atoms: int = 21) -> list[Row]:
    """What R accounts predicted, chose and were paid, and which events a step reached."""
    q, pi = torch.randn(2, r, n)
    action, draws, v = torch.arange(r) % n, torch.randint(0, 2**32, (r,)), torch.randn(r)
    starts, now = torch.rand(r) < 0.1, torch.randint(0, 4000, (r,))
    low, sigmas = torch.tensor(-1.0), torch.linspace(-3, 3, atoms, dtype=torch.float64)
    said = acting.Heads(
        torch.randn(r, n, atoms), q, low, -low, v, pi, pi.softmax(1), torch.ones_like(q).bool(),
        torch.randn(r, 3, atoms), sigmas,
    )  # fmt: skip
    done = acting.Acted(action, draws, action, starts, now, torch.randint(-1, atoms, (5000, 3)))
    paid = acting.Paid(v, v, v, draws, draws, torch.zeros_like(starts))
    chosen = torch.nn.functional.one_hot(action, n)
    history = acting.History(  # long under way and always the same, so that nothing moves from call to call
        chosen.double(), action.clone(), chosen.sum(0).repeat(256, 1), torch.full_like(action[:1], 1000),
        torch.zeros(1, dtype=torch.float64),
    )  # fmt: skip
    scale = acting.Scale(0.01, 0.01, 0.01, 5000.0, 5.0, 1 / 64)
    trades = torch.randint(0, 4, (r, 12, 17))
    step = events.Step(starts, trades, torch.rand(r, 12) < 0.1, torch.randint(0, 5, (r,)))
    codes, places = events.Codes(1, 2, 1, 3, 4), torch.arange(9)
    counts = (action[:1] + 3, action[:1], action[:1] + 2)

    def marked(of: Any) -> Callable[[], tuple[torch.Tensor, ...]]:
        seen, actions = torch.zeros(9, dtype=torch.bool), torch.zeros(n, dtype=torch.bool)

        def call() -> tuple[torch.Tensor, ...]:
            of.mark(step, codes, events.Learned(action, *counts, actions, 3, 3), places, seen)
            return seen, actions

        return call

    return [
        Row(f"acting batch {r}", acting_kernel.acting, acting.acting, (said, done, paid, history, scale),
            r * (4 * (atoms + 3 * n + 3 * atoms + 5) + n + 19 * 8), 1e-9),
        Row(f"events of {r} accounts", marked(events_kernel), marked(events), (), r * (12 * 9 + 17), compiled=False),
    ]  # fmt: skip
