"""One run's world: configuration, tape, buffers, environment and weights, put together once and handed to stages."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

from foxhunt_assets.simulator import state as sim_state
from foxhunt_assets.simulator.actions import N_ACTIONS
from foxhunt_assets.simulator.observe import ACCOUNT_FEATURES
from foxhunt_assets.simulator.simulator import Simulator
from foxhunt_assets.simulator.walk import EvalWalk, TrainWalk, session_end_rows
from foxhunt_assets.trainer import clock, replay, reward, rollout, slots
from foxhunt_assets.trainer.clock import Clock
from foxhunt_assets.trainer.config import TrainerConfig
from foxhunt_assets.trainer.params import Layout, param_table
from foxhunt_assets.trainer.program import Registry
from foxhunt_assets.trainer.replay import Replay
from foxhunt_assets.trainer.rollout import Rollout
from foxhunt_assets.trainer.tape import Tape

N_ACCOUNT = len(ACCOUNT_FEATURES)


@dataclass
class World:
    """Everything the stages of a run share. `evaluating` worlds hold frozen weights and no learning buffers."""

    config: TrainerConfig
    seed: int
    tape: Tape
    device: torch.device
    evaluating: bool
    buffers: Registry = field(init=False)
    layout: Layout = field(init=False)
    simulator: Simulator = field(init=False)

    def __post_init__(self) -> None:
        c, b = self.config, Registry(self.device)
        self.buffers = b
        self.layout = Layout(param_table(c, self.tape.features.shape[1], N_ACTIONS, N_ACCOUNT))
        b.add(*self.layout.specs(), slots.SPEC, clock.SPEC, *sim_state.specs(c.model.accounts, c.env))
        b.add(*reward.specs(c.model.accounts))
        if not self.evaluating:
            b.add(*replay.specs(c, N_ACTIONS, N_ACCOUNT), *rollout.specs(c, N_ACTIONS, N_ACCOUNT))
            self.replay, self.rollout = Replay(b, c), Rollout(b, c)
        self.clock = Clock(b)
        self.walk = self._walk()
        self.simulator = Simulator(c.env, self.tape.market, self.walk, b, c.model.accounts, c.model.window)

    def initialise(self) -> None:
        """Weights, target and slots before step 0; nothing in them depends on anything but seed and configuration."""
        b = self.buffers
        self.layout.initialise(b["weights"], self.seed)
        b["target_q"].copy_(b["weights"][self.layout.branches["q"]])
        slots.bootstrap(b["isv_full"], self.config)

    def _walk(self) -> TrainWalk | EvalWalk:
        spec, c, market = self.tape.spec, self.config, self.tape.market
        ends = session_end_rows(market.rows, [(s.row_end, s.ended_by) for s in spec.segments])
        if self.evaluating:
            return EvalWalk(market, spec.test, ends, self.buffers, n_steps=c.run.n_eval_steps)
        return TrainWalk(market, spec.train, ends, self.buffers, seed=self.seed, window=c.model.window)

    @property
    def eval_walk(self) -> EvalWalk:
        """The walk of an evaluating world."""
        assert isinstance(self.walk, EvalWalk)
        return self.walk

    @property
    def reward_scale(self) -> torch.Tensor:
        return self.buffers["isv_full"][slots.REWARD_SCALE]

    @property
    def pi_floor(self) -> float:
        """Least sampling probability of a legal action; exploration_scale scales it (0 in evaluation)."""
        return 0.0 if self.evaluating else self.config.learning.pi_floor

    def support(self) -> torch.Tensor:
        """The C51 atoms, float32 [N], from the span slots."""
        isv, n = self.buffers["isv_full"], self.config.model.atoms
        steps = torch.arange(n, dtype=torch.float32, device=self.device) / (n - 1)
        return isv[slots.V_MIN] + (isv[slots.V_MAX] - isv[slots.V_MIN]) * steps
