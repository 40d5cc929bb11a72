"""What the rules between leaves need of a configuration: for the run that commits its rows and for who checks them."""

from __future__ import annotations

from functools import partial

import torch

from foxhunt_assets.contracts.diag import live_leaves
from foxhunt_assets.contracts.diag_rules import RuleConfig
from foxhunt_assets.contracts.instruments import contract
from foxhunt_assets.market.features import FEATURES
from foxhunt_assets.trainer import measure_learning, slots
from foxhunt_assets.trainer.config import TrainerConfig
from foxhunt_assets.trainer.diag import written
from foxhunt_assets.trainer.numbers import Group, Row, finished


def rule_config(config: TrainerConfig, root: str, n_train: int) -> RuleConfig:
    """n_train: training steps, which an evaluation's own configuration does not tell."""
    facts = contract(root)
    return RuleConfig(
        accounts=config.model.accounts, n_train=n_train, rollout=not config.learning.per_step,
        rollout_steps=config.learning.rollout_steps,
        replay_capacity=config.learning.replay_capacity, replay_rows=config.learning.replay_rows,
        max_units=config.env.max_units, tick_cents=facts.tick_cents, multiplier_cents=facts.multiplier_cents,
        fee_cents=tuple(cents for _, cents in config.env.fee_cents or facts.fee_cents),
        warmup_steps=config.run.warmup_steps, n_features=len(FEATURES), leaf_values=config_leaves(config),
    )  # fmt: skip


def config_leaves(config: TrainerConfig) -> Row:
    """The live `config` leaves whose value a configuration fixes, as a row writes them."""
    isv = torch.zeros(slots.N_SLOTS, dtype=torch.float32)
    slots.bootstrap(isv, config)
    group = Group("slots", measure_learning.measured_slots(isv), partial(measure_learning.slot_leaves, config))
    found = finished(group)
    fixed = {leaf.path for leaf in live_leaves() if leaf.phase_rule == "config"}
    return written({path: value for path, value in found.items() if path in fixed})
