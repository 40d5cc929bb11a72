"""The simulator on a CUDA device: the kernels of kernels.account over the run's own buffers, bit for bit the twin."""

from __future__ import annotations

import torch

from foxhunt_assets.contracts.tables import ABSENT_PX
from foxhunt_assets.simulator.config import EnvConfig
from foxhunt_assets.simulator.market_view import MarketView
from foxhunt_assets.simulator.observe import ACCOUNT_FEATURES
from foxhunt_assets.simulator.outcome import StepOutcome
from foxhunt_assets.simulator.state import Buffers, specs
from foxhunt_assets.simulator.walk import Step, Walk
from kernels.account import op as account

_BOOK = ("bid_px", "ask_px", "bid_sz", "ask_sz")


class OnDevice:
    """One launch a step, one an advance; both write what accounts see and may do, so that looking costs none.

    warm: bool [N], the row has a whole window of its segment behind it.
    """

    def __init__(self, env: EnvConfig, market: MarketView, walk: Walk, buffers: Buffers, warm: torch.Tensor):
        rows_left = walk.stretch_last - torch.arange(market.rows, device=market.device)
        self._state = {spec.name: buffers[spec.name] for spec in specs(walk.accounts, env)}
        scales = torch.tensor([float(f.scale(env)) for f in ACCOUNT_FEATURES], dtype=torch.float32)
        tables, numbers = walk.jump()
        tensors = {
            **{name: getattr(market, name) for name in _BOOK},
            "facts": account.row_facts(
                market.ts, market.ts_event, market.fee_cents, market.low_bid_px, market.high_ask_px, rows_left, warm
            ),
            "session_end": walk.session_end,
            "scales": scales.to(market.device),
            **self._state,
            **tables,
        }
        self._kernels = account.Account(walk.accounts, tensors, {**settings(env, market.tick_cents), **numbers})
        self._outcome = StepOutcome(**self._kernels.outcome)
        self._looked: tuple[bool, int] | None = None

    def step(
        self, actions: torch.Tensor, step: Step, entry_signs: torch.Tensor, phase_end: bool, drain: bool
    ) -> StepOutcome:
        self._kernels.step(actions, step, entry_signs, phase_end, drain)
        self._looked = self._version()
        return self._outcome

    def advance(self, step: Step) -> None:
        fresh = self._looked == self._version()
        self._kernels.advance(step)
        now = self._version()
        self._looked = now if fresh and not now[0] else None

    def legal_mask(self) -> torch.Tensor:
        self._look()
        return self._kernels.legal

    def observe(self) -> torch.Tensor:
        self._look()
        return self._kernels.seen

    def _look(self) -> None:
        """Look anew where others wrote the state (a phase begins, a checkpoint was read) since a kernel last looked.

        A captured graph cannot ask that when it is replayed: it looks for itself unless it has just made a step.
        """
        if self._looked != self._version():
            self._kernels.observe()
            self._looked = self._version()

    def _version(self) -> tuple[bool, int]:
        """Whether a graph is being captured, and how often torch wrote the state; kernels do not count."""
        capturing = self._kernels.seen.is_cuda and torch.cuda.is_current_stream_capturing()
        return capturing, sum(x._version for x in self._state.values())


def settings(env: EnvConfig, tick_cents: int) -> dict[str, int | float]:
    """The scalars of account.cu."""
    distance = min(max(env.initial_r_ticks * env.trail_initial_mult, env.trail_min_ticks), env.trail_max_ticks)
    return {
        "absent": ABSENT_PX, "tick_cents": tick_cents, "max_units": env.max_units, "latency": env.latency_steps,
        "min_hold": env.min_hold_steps, "episode_length": env.episode_length, "start_equity": env.start_equity_cents,
        "lots_small": env.lots_small, "lots_large": env.lots_large, "initial_r": float(env.initial_r_ticks),
        "distance": float(distance), "tighten": float(env.trail_tighten), "loosen": float(env.trail_loosen),
        "least": float(env.trail_min_ticks), "most": float(env.trail_max_ticks),
    }  # fmt: skip
