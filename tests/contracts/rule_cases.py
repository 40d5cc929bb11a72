"""Hand-made rows for every rule between leaves: rows that hold, and one change that breaks them.

Four accounts, three train rows (steps 0 to 2) and, where a case has them, eval rows from step 3 on. Values are
worked out by hand from the rule's text, not by the code under test.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from foxhunt_assets.contracts.diag import leaves
from foxhunt_assets.contracts.rules.base import ACTIONS, RuleConfig

CONFIG = RuleConfig(
    accounts=4,
    n_train=3,
    rollout_steps=2,
    replay_capacity=8,
    replay_rows=4,
    max_units=2,
    tick_cents=1250,
    multiplier_cents=5000,
    fee_cents=(225,),
    warmup_steps=2,
    leaf_values={"run.fold_index": 1},
)


@dataclass(frozen=True)
class Case:
    """train, eval: leaf -> values. breaks: leaf -> (row, value), in phase `where` (or in trades or summary)."""

    breaks: dict[str, Any]
    train: dict[str, list[Any]] | None = None
    eval: dict[str, list[Any]] | None = None
    where: str = "train"
    trades: dict[str, list[Any]] | None = None
    summary: dict[str, Any] | None = None
    config: dict[str, Any] = field(default_factory=dict)


def hist(prefix: str, *counts: dict[str, Any], rows: int = 3) -> dict[str, list[Any]]:
    """Eleven columns under a prefix; counts[r] names the non-zero actions of row r (a0 .. a10)."""
    out = {f"{prefix}.{a}": [0] * rows for a in ACTIONS}
    for row, named in enumerate(counts):
        for short, value in named.items():
            out[next(p for p in out if p.split(".")[-1].startswith(short + "_"))][row] = value
    return out


def same(value: Any, *names: str, rows: int = 3) -> dict[str, list[Any]]:
    return {name: [value] * rows for name in names}


_HELD = next(leaf.path for leaf in leaves() if leaf.phase_rule == "held" and leaf.dtype == "float")
_CHECKSUMS = {
    "checksums.encoder_w": [1, 2, 2], "checksums.heads_w": [1, 2, 3], "checksums.optimizer": [1, 2, 3],
    "checksums.target_w": [1, 1, 1], "checksums.vsn_w": [1, 1, 1], "optim.update_norm": [0.0, 0.5, 0.5],
}  # fmt: skip
_WALK = {"data.episode_starts_step": [4, 0, 1]}
_BRANCHES = (
    "vsn", "mamba2_l1", "mamba2_l2", "ln", "attn", "cfc", "bce", "aux", "q", "pi", "v", "iqn", "dueling", "frd",
    "outcome",
)  # fmt: skip
_TRADES = {
    "pnl_cents": [1000, -300, 500, 50],
    "exit_step": [0, 1, 1, 2],
    "side": [1, -1, 1, -1],
    "reason": ["policy", "trail", "session", "phase_end"],
    "actions": ["a6>a3", "a1>trail", "a0>session", "a5>phase_end"],
}
# Entropies: three of four accounts on one action and one on another: -(.75 ln .75 + .25 ln .25).
_H_HALF, _H_QUARTER, _LN11 = 0.6931471805599453, 0.5623351446188083, 2.3978952727983707

WALK: dict[str, Case] = {
    "axis": Case({"step": (0, 4)}, train={}, eval={"step": [3, 4]}, where="eval"),
    "eval_axis": Case(
        {"run.eval_step": (1, 2)},
        train={"run.eval_step": [0, 0, 0]},
        eval={"run.eval_step": [0, 1], "step": [3, 4]},
        where="eval",
    ),
    "phase": Case({"run.phase_code": (1, 1)}, train={"run.phase_code": [0, 0, 0]}),
    "drained": Case({"run.drain_row": (1, 0)}, eval={"run.drain_row": [0, 1], "step": [3, 4]}, where="eval"),
    "idle_is_zero": Case({"loss.q": (1, 1e-300)}, eval={"loss.q": [0.0, 0.0], "step": [3, 4]}, where="eval"),
    "held_is_held": Case(
        {_HELD: (1, 0.30000000000000004)},
        train={_HELD: [0.1, 0.2, 0.3]},
        eval={_HELD: [0.3, 0.3], "step": [3, 4]},
        where="eval",
    ),
    "config_is_config": Case({"run.fold_index": (2, 2)}, train={"run.fold_index": [1, 1, 1]}),
    "anchor_order": Case(
        {"data.anchor_mean": (0, 9.0)},
        train={"data.anchor_min": [5, 6, 7], "data.anchor_mean": [6.5, 7.5, 8.5], "data.anchor_max": [8, 9, 10]},
    ),
    "contiguous_walk": Case({"data.anchor_mean": (1, 7.25)}, train={"data.anchor_mean": [6.0, 7.0, 90.0], **_WALK}),
    "episode_age": Case({"data.episode_age_mean": (1, 0.75)}, train={"data.episode_age_mean": [0.0, 1.0, 1.5],
    **_WALK}),
    "segment_clock": Case(
        {"data.segment_rows_left_min": (1, 9)}, train={"data.segment_rows_left_min": [9, 8, 30], **_WALK}
    ),
    "episode_book": Case(
        {"data.terminated_step": (1, 1)},
        train={"data.terminated_step": [0, 0, 2], "data.truncated_step": [0, 1, 0], **_WALK},
    ),
    "distinct_windows": Case({"data.anchor_unique_frac": (2, 0.6)},
    train={"data.anchor_unique_frac": [1.0, 0.25, 0.5]}),
    "no_leak_border": Case({"data.purge_margin_min": (2, -1)}, train={"data.purge_margin_min": [2, 1, 0]}),
    "no_future": Case({"lob.fill_lag_ms_mean": (2, -0.1)}, train={"lob.fill_lag_ms_mean": [250.0, 0.0, 250.0]}),
    "shift_order": Case(
        {"features.shift_abs_mean": (1, 0.9)},
        train={
            "features.input_abs_max": [5.0] * 3, "features.shift_abs_max": [0.8] * 3,
            "features.shift_abs_mean": [0.3] * 3, "features.input_mean": [-0.2] * 3,
        },
    ),
    "vsn_mass": Case(
        {"vsn.mask_flow": (2, 0.06)},
        train={
            **same(0.3, "vsn.mask_price", "vsn.mask_size"), **same(0.2, "vsn.mask_micro"),
            **same(0.05, "vsn.mask_ofi", "vsn.mask_flow"), **same(0.1, "vsn.mask_time"),
        },
    ),
    "vsn_max": Case({"vsn.mask_max": (1, 0.017)}, train={"vsn.mask_max": [0.018, 0.5, 1.0]}),
    "abs_order": Case(
        {"encoder.h_t_abs_max": (2, 0.4)},
        train={
            f"encoder.{b}_abs_{m}": [0.5 if m == "mean" else 2.0] * 3
            for b in ("vsn_out", "mamba2_l1", "mamba2_l2", "attn_context", "h_t") for m in ("mean", "max")
        },
    ),
    "weights_move_then_freeze": Case(
        {"checksums.heads_w": (1, 6)},
        train=_CHECKSUMS,
        eval={**{k: [5, 5] for k in _CHECKSUMS}, "optim.update_norm": [0.0, 0.0], "step": [3, 4]},
        where="eval",
    ),
    "events_grow": Case(
        {"audit.events_reached": (2, 1)},
        train={"audit.events_reached": [0, 2, 2], "trading.total_trades": [0, 1, 1]},
    ),
}  # fmt: skip

LEARNING: dict[str, Case] = {
    # (1 x .6 + 2 x .3 + 1 x 0 + 1 x 1.2 + 1 x .6 + 1 x 3) / 6 = 1, and -0.25 outside the balance
    "loss_total": Case(
        {"loss.total": (1, 0.7501)},
        train={
            "loss.bce": [0.6] * 3, "loss.q": [0.3] * 3, "loss.pi": [0.0] * 3, "loss.v": [1.2] * 3,
            "loss.aux": [0.6] * 3, "loss.frd": [3.0] * 3, "lambdas.q": [2.0] * 3,
            **same(1.0, "lambdas.bce", "lambdas.pi", "lambdas.v", "lambdas.aux", "lambdas.frd"),
            "loss.outside_balance": [-0.25] * 3, "loss.total": [0.75] * 3,
        },
    ),
    # (3 x 1 + 2 x .5 + 1 x .5) / 2 = 2.25; no label at all gives 0
    "frd_loss": Case(
        {"loss.frd": (0, 2.0)},
        train={
            "loss.frd": [2.25, 0.0, 3.0],
            "frd.h1.loss": [3.0, 0.0, 3.0], "frd.h1.label_valid_frac": [1.0, 0.0, 1.0],
            "frd.h2.loss": [2.0, 0.0, 3.0], "frd.h2.label_valid_frac": [0.5, 0.0, 0.0],
            "frd.h3.loss": [1.0, 0.0, 3.0], "frd.h3.label_valid_frac": [0.5, 0.0, 0.0],
        },
    ),
    "c51_budget": Case(
        {"grad_trunk.c51_bs": (1, 1.0)},
        train={
            "grad_trunk.c51": [1.0, 2.0, 4.0], "lambdas.q": [1.0, 0.5, 1.0],
            "health.grad_budget_c51": [0.5, 0.25, 0.9], "grad_trunk.c51_bs": [7.0, 0.5, 1.0],
        },
    ),
    "cql_budget": Case(
        {"grad_trunk.cql_sx": (2, 0.1)},
        train={
            "grad_trunk.cql": [1.0, 2.0, 4.0], "health.cql_alpha": [0.5, 0.1, 0.2],
            "health.grad_budget_cql": [0.5, 0.5, 0.5], "grad_trunk.cql_sx": [9.0, 0.5, 0.2],
        },
    ),
    # .5 x 1 + 1 x 1 + 2 x .25 + 3 x .5 = 3.5
    "pred_triangle": Case(
        {"grad_trunk.pred": (0, 3.51)},
        train={
            "grad_trunk.pred": [3.5, 0.0, 1.0], "grad_trunk.bce": [1.0] * 3, "grad_trunk.aux": [1.0] * 3,
            "grad_trunk.frd": [0.25] * 3, "grad_trunk.outcome": [0.5] * 3, "lambdas.bce": [0.5] * 3,
            "lambdas.aux": [1.0] * 3, "lambdas.frd": [2.0] * 3, "isv_config.outcome_lambda": [3.0] * 3,
        },
    ),
    # 15 branches of norm 2: the whole is sqrt(60); on row 2 a policy update ran, so nothing is asked
    "branch_norms": Case(
        {"optim.grad_norm_pre_clip": (1, 7.75)},
        train={
            **same(2.0, *(f"optim.{b}.grad_norm" for b in _BRANCHES)),
            "optim.grad_norm_pre_clip": [7.745966692414834, 7.745966692414834, 1.0],
            "rollout.windows_cum": [0, 0, 1],
        },
    ),
    "grad_bound": Case(
        {"optim.grad_abs_max": (2, 1.1)},
        train={"optim.grad_abs_max": [0.5, 0.0, 1.0], "optim.grad_norm_pre_clip": [1.0, 0.0, 1.0]},
    ),
    "q_order": Case(
        {"q.mean_by_action.a6_long_large": (1, 0.6)},
        train={
            "q.q_gap": [0.1] * 3, "q.q_spread": [0.9] * 3, "q.q_max_mean": [0.5] * 3,
            **hist("q.mean_by_action", *[{"a0": -0.4, "a6": 0.5}] * 3),
        },
    ),
    # row 2 must lie inside row 1's span, [-1, 1]
    "q_in_span": Case(
        {"q.mean_by_action.a6_long_large": (2, 1.5)},
        train={
            "c51.c51_v_min": [-2.0, -1.0, -2.0], "c51.c51_v_max": [2.0, 1.0, 2.0],
            **hist("q.mean_by_action", {"a6": 9.0}, {"a6": 1.9}, {"a0": -0.9}),
        },
    ),
    # 2 + .1 x (4 - 2) = 2.2; 2.2 + .1 x (1 - 2.2) = 2.08, as WIN under 1 counts as 1
    "span_speed": Case(
        {"c51.c51_v_max": (2, 2.2)},
        train={
            "c51.c51_v_max": [2.0, 2.2, 2.08], "isv_config.c51_span_alpha": [0.1] * 3,
            "risk_stack.atom_calibration.win_bound": [9.0, 4.0, 0.5],
        },
    ),
    "atom_alias": Case(
        {"c51.c51_v_max": (1, 1.5000000000000002)},
        train=same(1.5, "c51.c51_v_max", "risk_stack.atom_calibration.atom_max"),
    ),
    # bound 1 + .5 x 3 = 2.5, headroom 3 - 2.5, 3 sigma = .6, 3 / .6 = 5
    "atom_algebra": Case(
        {"risk_stack.atom_calibration.atom_max_over_3sigma": (0, 5.1)},
        train={
            f"risk_stack.atom_calibration.{k}": [v] * 3
            for k, v in {
                "win_bound": 1.0, "gamma": 0.5, "atom_max": 3.0, "dynamic_bound": 2.5, "atom_max_headroom": 0.5,
                "popart_sigma": 0.2, "v_target_max_3sigma": 0.6, "atom_max_over_3sigma": 5.0,
            }.items()
        },
    ),
    "saturation": Case(
        {"c51.target_overshoot": (1, 0.0)},
        train={
            "c51.target_overshoot": [0.0, 0.2, 0.1], "c51.target_sat_hi_frac": [0.0, 0.1, 0.0],
            "c51.target_sat_lo_frac": [0.0, 0.0, 0.1],
        },
    ),
    "projection_mass": Case({"c51.target_mass_err_max": (1, 2e-5)},
    train={"c51.target_mass_err_max": [0.0, 1e-6, 9e-6]}),
    "td_order": Case(
        {"q.td_signed_mean": (1, -0.4)},
        train={"q.td_abs_mean": [0.3] * 3, "q.td_abs_max": [0.9] * 3, "q.td_signed_mean": [0.1, -0.3, 0.0]},
    ),
    "double_q": Case({"q.double_q_gap": (1, -0.1)}, train={"q.double_q_gap": [0.0, 0.1, 0.2]}),
    "v_order": Case(
        {"v.bias_mean": (2, -0.6)}, train={"v.bias_mean": [0.1, 0.0, -0.5], "v.error_abs_mean": [0.2, 0.0, 0.5]}
    ),
    "entropy_order": Case({"pi.entropy_min": (0, 2.1)}, train={"pi.entropy_min": [1.0] * 3,
    "pi.entropy_mean": [2.0] * 3}),
    "account_entropy_order": Case(
        {"sac.account_entropy_mean": (0, 0.5)},
        train={"sac.account_entropy_min": [1.0] * 3, "sac.account_entropy_mean": [2.0] * 3},
    ),
    "executed_entropy": Case(
        {"sac.action_entropy_step": (1, _H_HALF)},
        train={
            "sac.action_entropy_step": [_H_HALF, _H_QUARTER, 0.0],
            **hist("act_hist", {"a0": 2, "a2": 2}, {"a2": 3, "a6": 1}, {"a2": 4}),
        },
    ),
    # 2 + .05 x (1 - 2) = 1.95; 1.95 + .05 x (1.95 - 1.95)
    "entropy_ema": Case(
        {"sac.action_entropy_ema": (1, 1.9)},
        train={"sac.action_entropy_ema": [2.0, 1.95, 1.95], "sac.action_entropy_step": [1.7, 1.0, 1.95]},
    ),
    "quantile_order": Case(
        {"iqn.crossing_frac": (2, 0.0)},
        train={
            "iqn.q_tau10": [-1.0, 0.0, 3.0], "iqn.q_tau50": [0.0, 0.0, 2.0], "iqn.q_tau90": [1.0, 0.0, 1.0],
            "iqn.crossing_frac": [0.0, 0.0, 0.5],
        },
    ),
    "taus_move": Case({"iqn.tau_digest32": (1, 7)}, train={"iqn.tau_digest32": [7, 8, 7],
    "iqn.tau_row_std_min": [0.2] * 3}),
    "frd_tails": Case(
        {"frd.h2.lower_tail_mass": (1, 0.7)},
        train={
            f"frd.{h}.{leaf}": [value] * 3 for h in ("h1", "h2", "h3")
            for leaf, value in (("upper_tail_mass", 0.4), ("lower_tail_mass", 0.6), ("expected_sigma", -3.0))
        },
    ),
    "outcome_order": Case(
        {"outcome.outcome_ema_max": (0, -0.1)},
        train={f"outcome.outcome_ema_{m}": [v] * 3 for m, v in (("min", -0.5), ("mean", 0.0), ("max", 0.5))},
    ),
    "reward_order": Case(
        {"rewards.sum": (1, 4.4)}, train={"rewards.min": [-1.0] * 3, "rewards.sum": [4.0] * 3,
            "rewards.max": [1.0] * 3}
    ),
    # 50 USD x 4 x (1.0 - 0.045) = 191 USD on row 0; nothing; 50 x 4 x -0.5 = -100
    "money_in_reward": Case(
        {"trading.equity_usd": (1, 191.02)},
        train={
            "reward_terms.core_pnl": [1.0, 0.0, -0.5], "reward_terms.tx_cost": [-0.045, 0.0, 0.0],
            "trading.equity_usd": [191.0, 191.0, 91.0], "trading.realized_pnl_usd_delta": [0.0] * 3,
        },
    ),
    "terms_complete": Case(
        {"reward_terms.sum_residual_abs_max": (0, 2e-4)},
        train={"reward_terms.sum_residual_abs_max": [1e-5, 0.0, 5e-4], "rewards.raw_abs_mean": [0.1, 0.0, 2.0]},
    ),
    "raw_zero": Case(
        {"rewards.raw_abs_mean": (1, 0.1)},
        train={
            "rewards.raw_nonzero_frac": [0.5, 0.0, 0.25], "rewards.raw_abs_mean": [0.5, 0.0, 0.1],
            "trading.raw_reward_sum": [-2.0, 0.0, 0.4],
        },
    ),
    "scale_step": Case(
        {"rewards.scale": (2, 0.0106)},
        train={
            "rewards.scale": [0.01, 0.0102, 0.01], "isv_config.reward_scale_step_clamp": [0.02] * 3,
            "isv_config.reward_scale_min": [1e-6] * 3,
        },
    ),
    "clamp_win": Case(
        {"reward_clamp.would_clip_win_frac": (1, 0.0)},
        train={
            "reward_clamp.pos_scaled_max": [5.0, 1.5, 1.5], "reward_clamp.would_clip_win_frac": [0.0, 0.25, 0.0],
            "risk_stack.atom_calibration.win_bound": [1.0, 2.0, 1.0],
        },
    ),
    "clamp_loss": Case(
        {"reward_clamp.ratio": (0, 3.0)},
        train={
            "reward_clamp.neg_scaled_max": [5.0, 2.5, 1.0], "reward_clamp.would_clip_loss_frac": [0.0, 0.25, 0.0],
            "reward_clamp.ratio": [2.0, 1.0, 1.0], "risk_stack.atom_calibration.win_bound": [1.0, 2.0, 1.0],
        },
    ),
    "sparse_ema": Case(
        {"reward_clamp.clip_rate_ema": (1, 0.1)},
        train={
            "reward_clamp.pos_scaled_max": [1.0, 0.0, 2.0], "reward_clamp.pos_scaled_max_ema": [1.0, 1.0, 1.4],
            "reward_clamp.clip_rate_ema": [0.2, 0.2, 0.3],
        },
    ),
    "dry_run": Case(
        {"reward_clamp.dry_steps": (2, 1)},
        train={
            "reward_clamp.dry_steps": [1, 2, 0], "trading.win_rate": [0.0, 0.0, 0.5],
            "trading.total_trades": [0, 1, 2],
        },
    ),
    # outcome_ema may move on row 2, where an episode starts; accuracy_ema only on row 1, where a trade closed
    "dry_closes": Case(
        {"outcome.accuracy_ema": (2, 0.6)},
        train={
            "trading.closes_step": [0, 2, 0], **_WALK, "outcome.accuracy_ema": [0.0, 0.5, 0.5],
            "outcome.outcome_ema_mean": [0.0, 0.2, 0.1],
        },
    ),
    "replay_book": Case({"per.len": (2, 12)}, train={"per.len": [4, 8, 8], "per.inserts_cum": [4, 8, 12]}),
    "replay_ess": Case({"per.priority_ess_frac": (1, 0.1)}, train={"per.priority_ess_frac": [0.0, 0.25, 1.0],
    "per.len": [0, 4, 8]}),
    "replay_shares": Case(
        {"per.sample_age_max": (1, 2)},
        train={
            "per.sample_unique_frac": [0.0, 0.25, 1.0], "per.is_weight_ess_frac": [0.0, 0.5, 1.0],
            "per.is_weight_min": [0.0, 0.3, 1.0], "per.is_weight_mean": [0.0, 0.6, 1.0],
            "per.sample_age_mean": [0.0, 2.5, 1.0], "per.sample_age_max": [0, 4, 1],
        },
    ),
    "window_clock": Case({"rollout.windows_cum": (1, 0)}, train={"rollout.t": [0, 1, 0],
    "rollout.windows_cum": [0, 1, 1]}),
    # mean 3, std 4: the root mean square is 5
    "advantage_moments": Case(
        {"rollout.adv_abs_mean": (0, 5.1)},
        train={"rollout.adv_mean": [-3.0] * 3, "rollout.adv_std": [4.0] * 3, "rollout.adv_abs_mean": [5.0, 3.0, 4.0]},
    ),
    # .25 x .4 + .15 x .2 + .2 x .5 + .1 x (1 + 0 + .5 + .2) = .40
    "health_composite": Case(
        {"health.score": (2, 0.41)},
        train={
            f"health.{k}": [v] * 3
            for k, v in {
                "score": 0.4, "q_gap_norm": 0.4, "q_var_norm": 0.2, "action_entropy_norm": 0.5,
                "grad_consistency": 1.0,
                "ensemble_agreement": 0.0, "atom_use_norm": 0.5, "spectral_gap_norm": 0.2,
            }.items()
        },
    ),
    "budgets_sum": Case(
        {"health.grad_budget_ens": (1, 0.2)},
        train={f"health.grad_budget_{k}": [v] * 3 for k, v in {"iqn": 0.25, "cql": 0.15, "ens": 0.1,
            "c51": 0.5}.items()},
    ),
    # counts 1, 1, 2 over 1, 2, 3 steps
    "fire_counts": Case({"ctrl_fire.clip": (2, 0.5)}, train={"ctrl_fire.clip": [1.0, 0.5, 2 / 3]}),
    "dones_count": Case(
        {"risk_stack.kelly.cumulative_dones": (0, 1)},
        train={"risk_stack.kelly.cumulative_dones": [0, 2, 3], "trading.closes_step": [0, 2, 1]},
        eval={"risk_stack.kelly.cumulative_dones": [4, 4], "trading.closes_step": [1, 0], "step": [3, 4]},
        where="eval",
    ),
    "window_sum": Case(
        {"windowed_act_hist.a2_hold": (0, 0.50001)},
        train=hist("windowed_act_hist", *[{"a0": 0.5, "a2": 0.5}] * 3),
    ),
    # 4 of 4; then 2 of 8 and 6 of 8; then 6 of 12 each
    "window_is_history": Case(
        {"windowed_act_hist.a2_hold": (2, 1.0)},
        train={
            **hist("act_hist", {"a2": 4}, {"a0": 2, "a2": 2}, {"a0": 4}),
            **hist("windowed_act_hist", {"a2": 1.0}, {"a0": 0.25, "a2": 0.75}, {"a0": 0.5, "a2": 0.5}),
        },
    ),
    "pregate_entropy_is_entropy": Case(
        {"actions.pregate_entropy": (0, 0.5)},
        train={
            "actions.pregate_entropy": [_H_HALF, _H_QUARTER, 0.0],
            **hist("pregate_act_hist", {"a0": 2, "a2": 2}, {"a2": 3, "a6": 1}, {"a2": 4}),
        },
    ),
    "window_entropy_is_entropy": Case(
        {"health.action_entropy": (1, _H_QUARTER)},
        train={
            "health.action_entropy": [_H_HALF / _LN11, _H_QUARTER / _LN11, 0.0],
            **hist("windowed_act_hist", {"a0": 0.5, "a2": 0.5}, {"a2": 0.75, "a6": 0.25}, {"a2": 1.0}),
        },
    ),
}  # fmt: skip

_WARM = "risk_stack.eval_warmup"
_CMDP = "risk_stack.cmdp"
_UNITS = {
    f"pyramid.unit{u}.{leaf}": [value] * 3
    for u, active, lots in ((1, 0.5, 2.0), (2, 0.25, 1.0), (3, 0.0, 0.0), (4, 0.0, 0.0))
    for leaf, value in (("active_frac", active), ("lots_mean", lots))
}
_PATH = {
    "trading.equity_usd": [-5.0, 20.0, 7.5], "trading.drawdown_usd": [5.0, 0.0, 12.5],
    "trading.max_drawdown_usd": [5.0, 5.0, 12.5],
}  # fmt: skip

MONEY: dict[str, Case] = {
    "act_sum": Case({"act_hist.a2_hold": (1, 4)}, train=hist("act_hist", {"a2": 4}, {"a2": 3, "a6": 1}, {"a0": 4})),
    "pregate_sum": Case({"pregate_act_hist.a0_short_large": (0, 1)},
    train=hist("pregate_act_hist", *[{"a2": 4}] * 3)),
    "override_explained": Case(
        {"actions.overridden_frac": (1, 0.75)},
        train={
            "actions.overridden_frac": [0.0, 0.5, 0.25], "gates.multi_block_step": [0, 1, 0],
            "gates.conf_gate_step": [0, 1, 1], "gates.frd_gate_step": [0, 1, 0],
            **same(0, *(f"gates.{g}_step" for g in (
                "heat_cap", "min_hold_block", "dd_lock_block", "cooldown_block", "inventory_block"))),
        },
    ),
    "trail_alias": Case({"gates.trail_fired_step": (2, 0)}, train=same(1, "gates.trail_fired_step",
    "gates.conf_gate_step")),
    "pnl_cum_is_sum": Case(
        {"trading.realized_pnl_usd_cum": (1, 0.21)},
        train={"trading.realized_pnl_usd_delta": [0.1, 0.1, 0.1], "trading.realized_pnl_usd_cum": [0.1, 0.2, 0.3]},
    ),
    "pnl_is_trades": Case(
        {"pnl_cents": (0, 1001)},
            train={"trading.realized_pnl_usd_cum": [10.0, 12.0, 12.5]}, trades=_TRADES, where="trades"
    ),
    "pnl_is_summary": Case(
        {"total_pnl_usd": 12.51},
        eval={"trading.realized_pnl_usd_cum": [12.0, 12.5], "step": [3, 4]},
        summary={"total_pnl_usd": 12.5},
        where="summary",
    ),
    "equity_two_routes": Case(
        {"position.unrealized_pnl_usd_sum": (1, -6.26)},
        train={
            "trading.equity_usd": [0.0, 3.75, 10.0], "trading.realized_pnl_usd_cum": [0.0, 10.0, 10.0],
            "position.unrealized_pnl_usd_sum": [0.0, -6.25, 0.0],
        },
    ),
    # bought a lot for 250,000 USD and 2.25 fee, marked 12.50 higher
    "equity_from_cash": Case(
        {"trading.cash_flow_usd_cum": (1, -250_000.0)},
        train={
            "trading.equity_usd": [0.0, 10.25, 10.25], "trading.cash_flow_usd_cum": [0.0, -250_002.25, 10.25],
            "position.net_notional_usd": [0.0, 250_012.5, 0.0],
        },
    ),
    "flat_at_end": Case(
        {"position.abs_lots_mean": (2, 0.25)},
        train={
            "position.abs_lots_mean": [0.5, 0.5, 0.0], "trading.equity_usd": [5.0, 6.0, 7.0],
            "trading.realized_pnl_usd_cum": [0.0, 0.0, 7.0],
        },
    ),
    "drawdown_path": Case({"trading.max_drawdown_usd": (2, 12.51)}, train=_PATH),
    # 2 x 30 - 1 x 15 = 45
    "win_loss_partition": Case(
        {"trading.avg_loss_usd": (2, 15.1)},
        train={
            "trading.total_trades": [0, 1, 3], "trading.win_rate": [0.0, 1.0, 2 / 3],
            "trading.avg_win_usd": [0.0, 20.0, 30.0],
            "trading.avg_loss_usd": [0.0, 0.0, 15.0], "trading.realized_pnl_usd_cum": [0.0, 20.0, 45.0],
        },
    ),
    "trades_count": Case(
        {"trading.closes_step": (1, 1)}, train={"trading.total_trades": [1, 3, 4], "trading.closes_step": [1, 2, 1]}
    ),
    "trades_rows": Case({"exit_step": (3, 1)},
    train={"trading.total_trades": [1, 3, 4]}, trades=_TRADES, where="trades"),
    # long 1000 + 500, large entries (a6, a0) 1000 + 500, forced 500 + 50, trailed -300 cents
    "group_by_trades": Case(
        {"trading.forced_close_pnl_usd_cum": (2, 5.0)},
        train={
            "trading.long_pnl_usd_cum": [0.0, 0.0, 15.0], "trading.large_entry_pnl_usd_cum": [0.0, 0.0, 15.0],
            "trading.forced_close_pnl_usd_cum": [0.0, 0.0, 5.5], "trail.fired_pnl_usd_cum": [0.0, 0.0, -3.0],
        },
        trades=_TRADES,
    ),
    "best_worst": Case(
        {"trading.best_trade_usd": (2, 15.0)},
        train={
            "trading.best_trade_usd": [0.0, 20.0, 20.0], "trading.worst_trade_usd": [0.0, 20.0, -5.0],
            "trading.avg_win_usd": [0.0, 20.0, 15.0], "trading.avg_loss_usd": [0.0, 0.0, 5.0],
            "trading.total_trades": [0, 1, 3], "trading.win_rate": [0.0, 1.0, 2 / 3],
        },
    ),
    "account_spread": Case(
        {"trading.account_pnl_usd_max": (1, 1.0)},
        train={
            "trading.account_pnl_usd_min": [-1.0] * 3, "trading.account_pnl_usd_max": [2.0] * 3,
            "trading.equity_usd": [-4.0, 5.0, 8.0],
        },
    ),
    "fees_sum": Case(
        {"trading.fees_usd_cum": (2, 6.74)},
        train={"trading.fees_usd_cum": [2.25, 2.25, 6.75], "lob.fees_usd_step": [2.25, 0.0, 4.5]},
    ),
    # half a tick on 2 lots is 12.50 USD; 1 tick on 1 lot 12.50
    "slippage_sum": Case(
        {"lob.slippage_ticks_mean": (0, 0.51)},
        train={
            "trading.slippage_usd_cum": [12.5, 12.5, 25.0], "lob.slippage_ticks_mean": [0.5, 0.0, 1.0],
            "lob.fill_lots_step": [2, 0, 1],
        },
    ),
    "lots_flow": Case(
        {"lob.buy_lots_step": (1, 2)},
        train={"position.net_lots_sum": [3, 2, 0], "lob.buy_lots_step": [4, 1, 0], "lob.fill_lots_step": [5, 3, 2]},
    ),
    "lots_parity": Case(
        {"position.net_lots_sum": (0, 2)}, train={"position.abs_lots_mean": [1.25, 0.5, 0.0],
            "position.net_lots_sum": [-3, 2, 0]}
    ),
    "units_hold_the_lots": Case(
        {"pyramid.unit2.lots_mean": (1, 2.0)}, train={**_UNITS, "position.abs_lots_mean": [1.25] * 3}
    ),
    "cap_flag": Case(
        {"pyramid.max_units_reached": (1, False)},
        train={
            "pyramid.max_units_reached": [False, True, False], "pyramid.full_stack_frac": [0.0, 0.25, 0.0],
            "pyramid.units_max": [0, 2, 1],
        },
    ),
    "notional_bounds": Case(
        {"risk_stack.inventory.limit_use_frac": (1, 0.25)},
        train={
            "position.net_notional_usd": [0.0, -250_000.0, 250_000.0],
            "position.gross_notional_usd": [0.0, 250_000.0, 750_000.0],
            "risk_stack.inventory.limit_use_frac": [0.0, 0.5, 0.5],
            f"{_CMDP}.net_inventory_limit_usd": [500_000.0] * 3,
        },
    ),
    "order_flow": Case(
        {"lob.fees_usd_step": (1, 0.0)},
        train={
            "lob.orders_step": [0, 2, 1], "lob.fills_step": [0, 1, 0], "lob.fill_lots_step": [0, 3, 0],
            "lob.policy_orders_step": [0, 2, 1], "lob.levels_consumed_max": [0, 2, 0],
            "lob.fees_usd_step": [0.0, 6.75, 0.0],
        },
    ),
    "depth_monotone": Case(
        {"lob.ask_depth_l3": (2, 40.0)},
        train={
            f"lob.{side}_depth_{level}": [lots] * 3 for side in ("bid", "ask")
            for level, lots in (("l1", 5.0), ("l2", 11.0), ("l3", 20.5), ("l5", 30.0), ("l10", 30.0))
        },
    ),
    "trail_order": Case(
        {"trail.fired_step": (1, 3)},
        train={
            "trail.distance_min": [0.0, 4.0, 4.0], "trail.distance_mean": [0.0, 5.5, 4.0],
            "trail.distance_max": [0.0, 8.0, 4.0], "trail.fired_step": [0, 1, 0], "trading.closes_step": [0, 2, 1],
        },
    ),
    "trail_share": Case(
        {"trail.fired_step": (1, 0)}, train={"reward_contrib.trail": [0.0, 0.5, 0.0], "trail.fired_step": [0, 1, 1]}
    ),
    "size_classes": Case(
        {"position.action_dist_eval_full": (1, 0.51)},
        eval={
            "position.action_dist_eval_quarter": [0.25] * 2, "position.action_dist_eval_half": [0.25] * 2,
            "position.action_dist_eval_full": [0.5] * 2, "step": [3, 4],
        },
        where="eval",
    ),
    "cents": Case(
        {"frd.h1.agree_pnl_usd_cum": (2, 10.26)},
        train={"frd.h1.agree_pnl_usd_cum": [0.0, 10.25, 10.25], "trading.closes_step": [0, 1, 0]},
    ),
    "locks_nested": Case(
        {f"{_CMDP}.session_dd_triggered": (1, 3)},
        train={
            f"{_CMDP}.session_dd_triggered": [0, 1, 2], f"{_CMDP}.cooldown_active": [0, 2, 2],
            f"{_CMDP}.cooldown_remaining_mean": [0.0, 3.5, 2.5], f"{_CMDP}.cooldown_remaining_max": [0, 5, 4],
        },
    ),
    "cooldown_counts_down": Case(
        {"data.truncated_step": (1, 0)},
        train={
            f"{_CMDP}.cooldown_remaining_max": [5, 4, 0], "data.terminated_step": [0, 0, 0],
                "data.truncated_step": [0, 1, 0],
        },
    ),
    "worst_below_mean": Case(
        {f"{_CMDP}.session_pnl_worst_usd": (0, 2.0)},
        train={
            f"{_CMDP}.session_pnl_worst_usd": [-5.0, 0.0, 3.0], f"{_CMDP}.session_pnl_usd": [1.0, 0.0, 0.0],
            f"{_CMDP}.cooldown_active": [1, 0, 4],
        },
    ),
    # row 1: one lock cleared by recovery; row 2: one by the episode that ended there
    "lock_clears": Case(
        {f"{_CMDP}.dd_recoveries_cum": (1, 0)},
        train={
            f"{_CMDP}.dd_recoveries_cum": [0, 1, 1], f"{_CMDP}.session_dd_triggered": [2, 1, 0],
            "data.terminated_step": [0, 0, 1], "data.truncated_step": [0, 0, 0],
        },
    ),
    "warmup_clock": Case(
        {f"{_WARM}.remaining": (2, 1)},
        train={f"{_WARM}.remaining": [-1] * 3, f"{_WARM}.active": [0] * 3, f"{_WARM}.blend": [0.0] * 3},
        eval={f"{_WARM}.remaining": [1, 0, 0], f"{_WARM}.active": [1, 0, 0], f"{_WARM}.blend": [0.5, 0.0, 0.0],
            "step": [3, 4, 5]},
        where="eval",
    ),
    "warmup_binds": Case(
        {"gates.conf_threshold": (0, 0.3)},
        eval={
            f"{_WARM}.active": [1, 0], f"{_WARM}.floor_iqn_tau": [0.1] * 2,
                f"{_WARM}.floor_kelly_fraction": [0.05] * 2,
            f"{_WARM}.floor_conf_threshold": [0.4] * 2, "risk_stack.iqn_tau.action_tau": [0.1, 0.5],
            "risk_stack.kelly.fraction": [0.05, 0.25], "gates.conf_threshold": [0.4, 0.15], "step": [3, 4],
        },
        where="eval",
    ),
    "warmup_off_in_train": Case({f"{_WARM}.floor_iqn_tau": (2, 0.2)}, train={f"{_WARM}.floor_iqn_tau": [0.1] * 3}),
    # .5 x .3 = .15 once 100 closes are there
    "kelly_release": Case(
        {"risk_stack.kelly.fraction": (2, 0.151)},
        train={
            "risk_stack.kelly.fraction": [0.25, 0.25, 0.15], "risk_stack.kelly.raw_fraction": [0.3] * 3,
            "risk_stack.kelly.safety_frac": [0.5] * 3, "risk_stack.kelly.cumulative_dones": [0, 99, 100],
            "risk_stack.kelly.min_trades_for_release": [100] * 3,
        },
    ),
    "edge_alarms": Case(
        {"risk_stack.edge_decay.ph_stat_max": (1, 5000.0)},
        train={
            "risk_stack.edge_decay.trips_cum": [0, 1, 1], "risk_stack.edge_decay.tripped": [0, 1, 0],
            "risk_stack.edge_decay.ph_stat_mean": [10.0, 100.0, 0.0],
            "risk_stack.edge_decay.ph_stat_max": [40.0, 5001.0, 0.0],
            "risk_stack.edge_decay.threshold": [5000.0] * 3,
        },
    ),
}  # fmt: skip

CASES: dict[str, Case] = {**WALK, **LEARNING, **MONEY}
