"""Rules on losses, gradients, the Q, policy, value, FRD and outcome heads, rewards, replay and controllers."""

from __future__ import annotations

import numpy as np

from foxhunt_assets.contracts.rules.base import (
    ACTIONS,
    Phase,
    RuleTable,
    Run,
    above,
    by_action,
    change,
    differ,
    entropy,
    later,
    off_integer,
    same_bits,
    stack,
)

RULES = RuleTable()

_HEADS = ("bce", "q", "pi", "v", "aux", "frd")
_BRANCHES = (
    "vsn", "mamba2_l1", "mamba2_l2", "ln", "attn", "cfc", "bce", "aux", "q", "pi", "v", "iqn", "dueling", "frd",
    "outcome",
)  # fmt: skip
_HORIZONS = ("h1", "h2", "h3")
_V_MIN, _V_MAX, _WIN = "c51.c51_v_min", "c51.c51_v_max", "risk_stack.atom_calibration.win_bound"
_ATOM = "risk_stack.atom_calibration"
_EQUITY, _DELTA = "trading.equity_usd", "trading.realized_pnl_usd_delta"


@RULES.phase("loss.total", "loss.outside_balance", *(f"loss.{h}" for h in _HEADS), *(f"lambdas.{h}" for h in _HEADS))
def loss_total(x: Phase) -> np.ndarray:
    """loss.total = sum of lambda x loss over the six heads / 6 + loss.outside_balance."""
    balanced = np.sum([x[f"lambdas.{h}"] * x[f"loss.{h}"] for h in _HEADS], axis=0) / len(_HEADS)
    return differ(x["loss.total"], balanced + x["loss.outside_balance"])


@RULES.phase("loss.frd", *(f"frd.{h}.{leaf}" for h in _HORIZONS for leaf in ("loss", "label_valid_frac")), only="train")
def frd_loss(x: Phase) -> np.ndarray:
    """loss.frd is the mean of the horizons' losses, each weighted by its share of labelled rows."""
    valid = np.stack([x[f"frd.{h}.label_valid_frac"] for h in _HORIZONS])
    loss = np.stack([x[f"frd.{h}.loss"] for h in _HORIZONS])
    total = valid.sum(axis=0)
    return differ(x["loss.frd"], (loss * valid).sum(axis=0) / np.where(total > 0, total, 1))


@RULES.phase("grad_trunk.c51_bs", "grad_trunk.c51", "lambdas.q", "health.grad_budget_c51", only="train")
def c51_budget(x: Phase) -> np.ndarray:
    """grad_trunk.c51_bs = c51 x lambdas.q x the budget of the row before."""
    granted = (x["grad_trunk.c51"] * x["lambdas.q"])[1:] * x["health.grad_budget_c51"][:-1]
    return later(differ(x["grad_trunk.c51_bs"][1:], granted))


@RULES.phase("grad_trunk.cql_sx", "grad_trunk.cql", "health.cql_alpha", "health.grad_budget_cql", only="train")
def cql_budget(x: Phase) -> np.ndarray:
    """grad_trunk.cql_sx = cql x alpha x budget, both of the row before."""
    weight = (x["health.cql_alpha"] * x["health.grad_budget_cql"])[:-1]
    return later(differ(x["grad_trunk.cql_sx"][1:], x["grad_trunk.cql"][1:] * weight))


@RULES.phase(
    "grad_trunk.pred", *(f"grad_trunk.{h}" for h in ("bce", "aux", "frd", "outcome")),
    *(f"lambdas.{h}" for h in ("bce", "aux", "frd")), "isv_config.outcome_lambda",
)  # fmt: skip
def pred_triangle(x: Phase) -> np.ndarray:
    """The norm of the prediction heads' sum is at most the sum of their weighted norms."""
    parts = [x[f"lambdas.{h}"] * x[f"grad_trunk.{h}"] for h in ("bce", "aux", "frd")]
    parts.append(x["isv_config.outcome_lambda"] * x["grad_trunk.outcome"])
    return above(x["grad_trunk.pred"], np.sum(parts, axis=0))


@RULES.phase(
    "optim.grad_norm_pre_clip", *(f"optim.{b}.grad_norm" for b in _BRANCHES), "rollout.windows_cum", only="train"
)
def branch_norms(x: Phase) -> np.ndarray:
    """Where no policy update ran, the squares of the 15 branch norms sum to that of grad_norm_pre_clip."""
    squares = np.sum([x[f"optim.{b}.grad_norm"] ** 2 for b in _BRANCHES], axis=0)
    no_update = (change(x["rollout.windows_cum"]) == 0) & x.config.rollout
    return no_update & differ(x["optim.grad_norm_pre_clip"] ** 2, squares)


@RULES.phase("optim.grad_abs_max", "optim.grad_norm_pre_clip")
def grad_bound(x: Phase) -> np.ndarray:
    """No gradient element is larger than the norm of all."""
    return above(x["optim.grad_abs_max"], x["optim.grad_norm_pre_clip"])


@RULES.phase("q.q_gap", "q.q_spread", "q.q_max_mean", *by_action("q.mean_by_action"))
def q_order(x: Phase) -> np.ndarray:
    """0 <= gap <= spread; each action's mean lies from q_max_mean - spread to q_max_mean."""
    means = stack(x, "q.mean_by_action")
    gap, spread, top = x["q.q_gap"], x["q.q_spread"], x["q.q_max_mean"]
    outside = above(means.max(axis=0), top) | above(top - spread, means.min(axis=0))
    return (gap < 0) | above(gap, spread) | outside


@RULES.phase(*by_action("q.mean_by_action"), _V_MIN, _V_MAX)
def q_in_span(x: Phase) -> np.ndarray:
    """Each action's mean E[Q] lies inside the span of the row before."""
    means = stack(x, "q.mean_by_action")[:, 1:]
    low, high = x[_V_MIN][:-1], x[_V_MAX][:-1]
    return later(above(means.max(axis=0), high, rel=1e-4) | above(low, means.min(axis=0), rel=1e-4))


@RULES.phase(_V_MAX, "isv_config.c51_span_alpha", _WIN, only="train")
def span_speed(x: Phase) -> np.ndarray:
    """v_max moves by alpha x (max(1, WIN) - v_max): an average, not a ratchet."""
    before = x[_V_MAX][:-1]
    step = x["isv_config.c51_span_alpha"][1:] * (np.maximum(1, x[_WIN][1:]) - before)
    return later(differ(x[_V_MAX][1:], before + step))


@RULES.phase(_V_MAX, f"{_ATOM}.atom_max")
def atom_alias(x: Phase) -> np.ndarray:
    """c51_v_max and atom_max are one value under two names, bit for bit."""
    return ~same_bits(x[_V_MAX], x[f"{_ATOM}.atom_max"])


@RULES.phase(*(f"{_ATOM}.{leaf}" for leaf in (
    "win_bound", "gamma", "atom_max", "dynamic_bound", "atom_max_headroom", "popart_sigma", "v_target_max_3sigma",
    "atom_max_over_3sigma",
)))  # fmt: skip
def atom_algebra(x: Phase) -> np.ndarray:
    """dynamic_bound = win + gamma x max; headroom = max - bound; 3 sigma; max / 3 sigma."""
    top, bound = x[f"{_ATOM}.atom_max"], x[f"{_ATOM}.dynamic_bound"]
    sigma3 = 3 * x[f"{_ATOM}.popart_sigma"]
    ratio = np.where(sigma3 > 0, top / np.where(sigma3 > 0, sigma3, 1), 0)
    pairs = (
        (bound, x[_WIN] + x[f"{_ATOM}.gamma"] * top),
        (x[f"{_ATOM}.atom_max_headroom"], top - bound),
        (x[f"{_ATOM}.v_target_max_3sigma"], sigma3),
        (x[f"{_ATOM}.atom_max_over_3sigma"], ratio),
    )
    return np.logical_or.reduce([differ(a, b, rel=1e-9, abs_tol=1e-9) for a, b in pairs])


@RULES.phase("c51.target_overshoot", "c51.target_sat_hi_frac", "c51.target_sat_lo_frac")
def saturation(x: Phase) -> np.ndarray:
    """The overshoot is 0 if and only if no target atom left the span."""
    outside = (x["c51.target_sat_hi_frac"] > 0) | (x["c51.target_sat_lo_frac"] > 0)
    return (x["c51.target_overshoot"] > 0) != outside


@RULES.phase("c51.target_mass_err_max")
def projection_mass(x: Phase) -> np.ndarray:
    """Projected target mass sums to 1 within 1e-5."""
    return x["c51.target_mass_err_max"] > 1e-5


@RULES.phase("q.td_abs_mean", "q.td_abs_max", "q.td_signed_mean")
def td_order(x: Phase) -> np.ndarray:
    """|signed mean| <= mean magnitude <= largest magnitude of the TD error."""
    mean = x["q.td_abs_mean"]
    return above(np.abs(x["q.td_signed_mean"]), mean) | above(mean, x["q.td_abs_max"])


@RULES.phase("q.double_q_gap")
def double_q(x: Phase) -> np.ndarray:
    """The greatest target Q is at least the target Q at the online argmax."""
    return x["q.double_q_gap"] < 0


@RULES.phase("v.bias_mean", "v.error_abs_mean")
def v_order(x: Phase) -> np.ndarray:
    """|bias| of V is at most its mean absolute error."""
    return above(np.abs(x["v.bias_mean"]), x["v.error_abs_mean"])


@RULES.phase("pi.entropy_min", "pi.entropy_mean")
def entropy_order(x: Phase) -> np.ndarray:
    """The least policy entropy is at most the mean."""
    return above(x["pi.entropy_min"], x["pi.entropy_mean"])


@RULES.phase("sac.account_entropy_min", "sac.account_entropy_mean")
def account_entropy_order(x: Phase) -> np.ndarray:
    """The least per-account action entropy is at most the mean."""
    return above(x["sac.account_entropy_min"], x["sac.account_entropy_mean"])


@RULES.phase("sac.action_entropy_step", *by_action("act_hist"))
def executed_entropy(x: Phase) -> np.ndarray:
    """action_entropy_step is the entropy of the eleven executed counts."""
    return differ(x["sac.action_entropy_step"], entropy(stack(x, "act_hist")))


@RULES.phase("sac.action_entropy_ema", "sac.action_entropy_step")
def entropy_ema(x: Phase) -> np.ndarray:
    """action_entropy_ema follows action_entropy_step at its configured rate."""
    before, now = x["sac.action_entropy_ema"][:-1], x["sac.action_entropy_step"][1:]
    return later(differ(x["sac.action_entropy_ema"][1:], before + x.config.entropy_alpha * (now - before)))


@RULES.phase("iqn.q_tau10", "iqn.q_tau50", "iqn.q_tau90", "iqn.crossing_frac")
def quantile_order(x: Phase) -> np.ndarray:
    """Where no quantiles cross, tau 0.10 <= 0.50 <= 0.90."""
    low, middle, high = (x[f"iqn.q_tau{tau}"] for tau in (10, 50, 90))
    return (x["iqn.crossing_frac"] == 0) & (above(low, middle) | above(middle, high))


@RULES.phase("iqn.tau_digest32", "iqn.tau_row_std_min")
def taus_move(x: Phase) -> np.ndarray:
    """Every row draws new tau, and no account's 32 lanes share one draw."""
    return later(np.diff(x["iqn.tau_digest32"]) == 0) | (x["iqn.tau_row_std_min"] <= 0.05)


@RULES.phase(*(f"frd.{h}.{leaf}" for h in _HORIZONS for leaf in (
    "upper_tail_mass", "lower_tail_mass", "expected_sigma",
)))  # fmt: skip
def frd_tails(x: Phase) -> np.ndarray:
    """The two tails of a horizon hold at most the whole mass; its expectation lies inside 3 sigma."""
    bad = [
        above(x[f"frd.{h}.upper_tail_mass"] + x[f"frd.{h}.lower_tail_mass"], 1)
        | above(np.abs(x[f"frd.{h}.expected_sigma"]), 3)
        for h in _HORIZONS
    ]
    return np.logical_or.reduce(bad)


@RULES.phase("outcome.outcome_ema_min", "outcome.outcome_ema_mean", "outcome.outcome_ema_max")
def outcome_order(x: Phase) -> np.ndarray:
    """outcome_ema min <= mean <= max."""
    low, mean, high = (x[f"outcome.outcome_ema_{m}"] for m in ("min", "mean", "max"))
    return above(low, mean) | above(mean, high)


@RULES.phase("rewards.min", "rewards.sum", "rewards.max")
def reward_order(x: Phase) -> np.ndarray:
    """The mean reward lies between the least and the greatest."""
    mean = x["rewards.sum"] / x.config.accounts
    return above(x["rewards.min"], mean) | above(mean, x["rewards.max"])


@RULES.phase("reward_terms.core_pnl", "reward_terms.tx_cost", _EQUITY, _DELTA)
def money_in_reward(x: Phase) -> np.ndarray:
    """Core and cost of the reward are the money of the row: change of equity, or pnl booked in `close` mode."""
    points = (x["reward_terms.core_pnl"] + x["reward_terms.tx_cost"]) * x.config.accounts
    money = change(x[_EQUITY]) if x.config.reward == "equity" else x[_DELTA]
    return differ(points * x.config.multiplier_cents / 100, money, rel=1e-6, abs_tol=0.01)


@RULES.phase("reward_terms.sum_residual_abs_max", "rewards.raw_abs_mean")
def terms_complete(x: Phase) -> np.ndarray:
    """The named reward terms make up the raw reward."""
    scale = np.maximum(1, x.config.accounts * x["rewards.raw_abs_mean"])
    return x["reward_terms.sum_residual_abs_max"] > 1e-4 * scale


@RULES.phase("rewards.raw_nonzero_frac", "rewards.raw_abs_mean", "trading.raw_reward_sum")
def raw_zero(x: Phase) -> np.ndarray:
    """No raw reward is non-zero if and only if their mean magnitude is 0, and it bounds their sum."""
    magnitude = x["rewards.raw_abs_mean"]
    one_sided = (x["rewards.raw_nonzero_frac"] > 0) != (magnitude > 0)
    return one_sided | above(np.abs(x["trading.raw_reward_sum"]), x.config.accounts * magnitude)


@RULES.phase("rewards.scale", "isv_config.reward_scale_step_clamp", "isv_config.reward_scale_min", only="train")
def scale_step(x: Phase) -> np.ndarray:
    """The reward scale moves at most its clamp a row and never falls under its floor."""
    scale, clamp = x["rewards.scale"], x["isv_config.reward_scale_step_clamp"]
    before = np.where(scale[:-1] > 0, scale[:-1], 1)
    fast = np.abs(scale[1:] / before - 1) > clamp[1:] + 1e-6
    return later(fast) | (scale < x["isv_config.reward_scale_min"] * (1 - 1e-6))


@RULES.phase("reward_clamp.pos_scaled_max", "reward_clamp.would_clip_win_frac", _WIN)
def clamp_win(x: Phase) -> np.ndarray:
    """A reward counts as beyond WIN if and only if the greatest is above the WIN of the row before."""
    return _clips_wrongly(x, "win", "pos", x[_WIN][:-1])


@RULES.phase("reward_clamp.neg_scaled_max", "reward_clamp.would_clip_loss_frac", "reward_clamp.ratio", _WIN)
def clamp_loss(x: Phase) -> np.ndarray:
    """A reward counts as beyond LOSS if and only if the greatest loss is above ratio x WIN of the row before."""
    return _clips_wrongly(x, "loss", "neg", (x["reward_clamp.ratio"] * x[_WIN])[:-1])


def _clips_wrongly(x: Phase, side: str, sign: str, bound: np.ndarray) -> np.ndarray:
    clipped = x[f"reward_clamp.would_clip_{side}_frac"][1:] > 0
    largest = x[f"reward_clamp.{sign}_scaled_max"][1:]
    decided = differ(largest, bound)  # inside the tolerance float32 may fall either way
    return later(decided & (clipped != (largest > bound)))


@RULES.phase("reward_clamp.pos_scaled_max", "reward_clamp.pos_scaled_max_ema", "reward_clamp.clip_rate_ema")
def sparse_ema(x: Phase) -> np.ndarray:
    """Where no reward is above 0, both averages of it keep their bits."""
    kept = [
        same_bits(x[leaf][1:], x[leaf][:-1])
        for leaf in ("reward_clamp.pos_scaled_max_ema", "reward_clamp.clip_rate_ema")
    ]
    return later((x["reward_clamp.pos_scaled_max"][1:] == 0) & ~np.logical_and.reduce(kept))


@RULES.phase("reward_clamp.dry_steps", "trading.win_rate", "trading.total_trades")
def dry_run(x: Phase) -> np.ndarray:
    """dry_steps is 0 where a winning trade closed, else one more than on the row before."""
    won = change(np.rint(x["trading.win_rate"] * x["trading.total_trades"])) > 0
    dry = x["reward_clamp.dry_steps"]
    return later(dry[1:] != np.where(won[1:], 0, dry[:-1] + 1), won[0] and dry[0] != 0)


_CLOSE_FED = (
    "q_bias.mean", "q_bias.abs_mean", "q_bias.overestimation_frac", "q_bias.small_class", "q_bias.large_class",
    "outcome.accuracy_ema", "outcome.brier_ema", "outcome.prob_win_gap_ema", "rewards.raw_per_net_slope_ema",
    "rewards.sign_agree_ema",
)  # fmt: skip
_START_FED = tuple(f"outcome.outcome_ema_{m}" for m in ("mean", "min", "max"))


@RULES.phase("trading.closes_step", "data.episode_starts_step", any_of=_CLOSE_FED + _START_FED)
def dry_closes(x: Phase) -> np.ndarray:
    """What is measured on closes keeps its value where there are none; outcome_ema may move at episode starts."""
    no_close = x["trading.closes_step"][1:] == 0
    bad = np.zeros(x.n - 1, bool)
    for leaf in x.having(_CLOSE_FED + _START_FED):
        free = x["data.episode_starts_step"][1:] > 0 if leaf in _START_FED else False
        bad |= no_close & ~np.asarray(free) & (np.diff(x[leaf]) != 0)
    return later(bad)


@RULES.phase("per.len", "per.inserts_cum")
def replay_book(x: Phase) -> np.ndarray:
    """The ring holds all inserts up to its capacity."""
    return x["per.len"] != np.minimum(x["per.inserts_cum"], x.config.replay_capacity)


@RULES.phase("per.priority_ess_frac", "per.len")
def replay_ess(x: Phase) -> np.ndarray:
    """The effective share of priorities is at least one row's."""
    held = x["per.len"]
    return (held > 0) & (x["per.priority_ess_frac"] < 1 / np.maximum(held, 1) - 1e-6)


@RULES.phase(*(f"per.{leaf}" for leaf in (
    "sample_unique_frac", "is_weight_ess_frac", "is_weight_min", "is_weight_mean", "sample_age_mean",
    "sample_age_max",
)), only="train")  # fmt: skip
def replay_shares(x: Phase) -> np.ndarray:
    """Once rows are sampled, shares are at least one row's; least weight <= mean; mean age <= greatest."""
    one = 1 / x.config.replay_rows - 1e-6
    sampling = x["per.is_weight_mean"] > 0
    shares = (x["per.sample_unique_frac"] < one) | (x["per.is_weight_ess_frac"] < one)
    weights = above(x["per.is_weight_min"], x["per.is_weight_mean"])
    return (sampling & shares) | weights | above(x["per.sample_age_mean"], x["per.sample_age_max"])


@RULES.phase("rollout.t", "rollout.windows_cum", only="train")
def window_clock(x: Phase) -> np.ndarray:
    """The window slot counts 0 to T-1; a window is finished exactly on rows at T-1 (both 0 in per_step)."""
    slot, windows = x["rollout.t"], x["rollout.windows_cum"]
    if not x.config.rollout:
        return (slot != 0) | (windows != 0)
    length = x.config.rollout_steps
    wrong_slot = later(slot[1:] != (slot[:-1] + 1) % length, slot[0] != 0)
    return wrong_slot | (change(windows) != (slot == length - 1))


@RULES.phase("rollout.adv_mean", "rollout.adv_abs_mean", "rollout.adv_std")
def advantage_moments(x: Phase) -> np.ndarray:
    """|mean| <= mean magnitude <= root mean square of the advantages."""
    mean, magnitude = x["rollout.adv_mean"], x["rollout.adv_abs_mean"]
    rms = np.hypot(mean, x["rollout.adv_std"])
    return above(np.abs(mean), magnitude, rel=1e-6) | above(magnitude, rms, rel=1e-6)


_COMPOSITE = {
    "q_gap_norm": 0.25, "q_var_norm": 0.15, "action_entropy_norm": 0.20, "grad_consistency": 0.10,
    "ensemble_agreement": 0.10, "atom_use_norm": 0.10, "spectral_gap_norm": 0.10,
}  # fmt: skip


@RULES.phase("health.score", *(f"health.{name}" for name in _COMPOSITE))
def health_composite(x: Phase) -> np.ndarray:
    """health.score is the weighted sum of its seven components, clipped to 0..1."""
    score = np.sum([weight * x[f"health.{name}"] for name, weight in _COMPOSITE.items()], axis=0)
    return differ(x["health.score"], np.clip(score, 0, 1), rel=0)


@RULES.phase(*(f"health.grad_budget_{name}" for name in ("iqn", "cql", "ens", "c51")))
def budgets_sum(x: Phase) -> np.ndarray:
    """The four trunk-gradient budgets sum to 1."""
    return differ(x.total(f"health.grad_budget_{name}" for name in ("iqn", "cql", "ens", "c51")), 1, rel=0)


_FIRE = tuple(f"ctrl_fire.{name}" for name in ("anti_lr", "tau", "gamma", "clip", "cql", "cost"))


@RULES.phase("step", any_of=_FIRE, only="train")
def fire_counts(x: Phase) -> np.ndarray:
    """Each controller's share times the train steps so far is a count that never falls."""
    bad = np.zeros(x.n, bool)
    for leaf in x.having(_FIRE):
        fired = x[leaf] * (x["step"] + 1)
        bad |= off_integer(fired) | later(np.diff(np.rint(fired)) < 0)
    return bad


@RULES.run("risk_stack.kelly.cumulative_dones", "trading.closes_step")
def dones_count(run: Run) -> str:
    """cumulative_dones is the number of closes since the run began, both phases; from the first row given."""
    dones = np.concatenate([phase["risk_stack.kelly.cumulative_dones"] for phase in run.phases])
    closes = np.concatenate([phase["trading.closes_step"] for phase in run.phases])
    before = 0 if run.train is not None else dones[0] - closes[0]
    bad = np.flatnonzero(dones != before + np.cumsum(closes))
    return f"row {bad[0]} of the run: {dones[bad[0]]} dones" if bad.size else ""


@RULES.phase(*by_action("windowed_act_hist"))
def window_sum(x: Phase) -> np.ndarray:
    """The eleven windowed shares sum to 1 within 1e-9."""
    return differ(x.total(by_action("windowed_act_hist")), 1, rel=0, abs_tol=1e-9)


@RULES.phase(*by_action("windowed_act_hist"), *by_action("act_hist"))
def window_is_history(x: Phase) -> np.ndarray:
    """Windowed shares are those of the executed counts of the last 256 rows of the phase."""
    counts = np.cumsum(stack(x, "act_hist"), axis=1)
    past = np.zeros_like(counts)
    past[:, 256:] = counts[:, :-256]
    recent = counts - past
    shares = recent / np.maximum(recent.sum(axis=0), 1)
    off = differ(stack(x, "windowed_act_hist"), shares, rel=0, abs_tol=1e-9)
    return np.asarray(off.any(axis=0))


@RULES.phase("actions.pregate_entropy", *by_action("pregate_act_hist"))
def pregate_entropy_is_entropy(x: Phase) -> np.ndarray:
    """pregate_entropy is the entropy of the sampled actions."""
    return differ(x["actions.pregate_entropy"], entropy(stack(x, "pregate_act_hist")), rel=0)


@RULES.phase("health.action_entropy", *by_action("windowed_act_hist"))
def window_entropy_is_entropy(x: Phase) -> np.ndarray:
    """health.action_entropy is the entropy of the windowed shares over ln 11."""
    share = entropy(stack(x, "windowed_act_hist")) / np.log(len(ACTIONS))
    return differ(x["health.action_entropy"], np.clip(share, 0, 1), rel=0)
