"""Rules on actions and gates, positions, fills, fees, trades, equity and the risk stack."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from foxhunt_assets.contracts.rules.base import (
    Columns,
    Phase,
    RuleTable,
    Run,
    above,
    by_action,
    change,
    differ,
    later,
)

RULES = RuleTable()

_DELTA, _CUM, _EQUITY = (
    "trading.realized_pnl_usd_delta",
    "trading.realized_pnl_usd_cum",
    "trading.equity_usd",
)
_CLOSES, _TRADES = "trading.closes_step", "trading.total_trades"
_TERMINATED, _TRUNCATED = "data.terminated_step", "data.truncated_step"
_CMDP, _WARM, _KELLY, _DECAY = (
    "risk_stack.cmdp",
    "risk_stack.eval_warmup",
    "risk_stack.kelly",
    "risk_stack.edge_decay",
)
_COOLING, _LOCKED = f"{_CMDP}.cooldown_active", f"{_CMDP}.session_dd_triggered"


@RULES.phase(*by_action("act_hist"))
def act_sum(x: Phase) -> np.ndarray:
    """The eleven executed counts sum to B."""
    return x.total(by_action("act_hist")) != x.config.accounts


@RULES.phase(*by_action("pregate_act_hist"))
def pregate_sum(x: Phase) -> np.ndarray:
    """The eleven sampled counts sum to B."""
    return x.total(by_action("pregate_act_hist")) != x.config.accounts


_GATES = tuple(
    f"gates.{name}_step"
    for name in (
        "conf_gate", "frd_gate", "heat_cap", "min_hold_block", "dd_lock_block", "cooldown_block", "inventory_block",
    )
)  # fmt: skip


@RULES.phase("actions.overridden_frac", "gates.multi_block_step", *_GATES)
def override_explained(x: Phase) -> np.ndarray:
    """Overridden accounts are at least those two gates block and at most the sum over the seven gates."""
    overridden = x.count("actions.overridden_frac")
    return (x["gates.multi_block_step"] > overridden) | (overridden > x.total(_GATES))


@RULES.phase("gates.trail_fired_step", "gates.conf_gate_step")
def trail_alias(x: Phase) -> np.ndarray:
    """gates.trail_fired_step is the deliberate alias of gates.conf_gate_step."""
    return x["gates.trail_fired_step"] != x["gates.conf_gate_step"]


@RULES.phase(_DELTA, _CUM)
def pnl_cum_is_sum(x: Phase) -> np.ndarray:
    """realized_pnl_usd_cum is the running sum of its delta in cents, from 0 at each phase."""
    return x.cents(_CUM) != np.cumsum(x.cents(_DELTA))


@RULES.phase(_CUM, needs=("trades",))
def pnl_is_trades(x: Phase) -> str:
    """The last realized_pnl_usd_cum of a phase is the sum of pnl_cents of its trades."""
    assert x.trades is not None
    last, booked = int(x.cents(_CUM)[-1]), int(x.trades["pnl_cents"].sum())
    return "" if last == booked else f"{x.name}: last realized_pnl_usd_cum {last} cents, trades sum {booked}"


@RULES.run(_CUM, needs=("eval", "summary"))
def pnl_is_summary(run: Run) -> str:
    """The last eval realized_pnl_usd_cum is total_pnl_usd of eval_summary, to the cent."""
    assert run.eval is not None and run.summary is not None
    last, stated = int(run.eval.cents(_CUM)[-1]), round(run.summary["total_pnl_usd"] * 100)
    return "" if last == stated else f"last realized_pnl_usd_cum {last} cents, eval_summary {stated}"


@RULES.phase(_EQUITY, _CUM, "position.unrealized_pnl_usd_sum")
def equity_two_routes(x: Phase) -> np.ndarray:
    """Equity is realised plus open pnl, exact cents."""
    return x.cents(_EQUITY) != x.cents(_CUM) + x.cents("position.unrealized_pnl_usd_sum")


@RULES.phase(_EQUITY, "trading.cash_flow_usd_cum", "position.net_notional_usd")
def equity_from_cash(x: Phase) -> np.ndarray:
    """Equity is fill cash plus the market value of the lots held, exact cents."""
    return x.cents(_EQUITY) != x.cents("trading.cash_flow_usd_cum") + x.cents("position.net_notional_usd")


@RULES.phase("position.abs_lots_mean", _EQUITY, _CUM)
def flat_at_end(x: Phase) -> np.ndarray:
    """On the last row of a phase every account is flat and equity is realised."""
    last = np.arange(x.n) == x.n - 1
    return last & ((x["position.abs_lots_mean"] != 0) | (x.cents(_EQUITY) != x.cents(_CUM)))


@RULES.phase(_EQUITY, "trading.drawdown_usd", "trading.max_drawdown_usd")
def drawdown_path(x: Phase) -> np.ndarray:
    """Drawdown is the running maximum of equity (at least 0) less equity; max_drawdown its running maximum."""
    equity = x.cents(_EQUITY)
    drawdown = np.maximum(np.maximum.accumulate(equity), 0) - equity
    largest = np.maximum.accumulate(drawdown)
    return (x.cents("trading.drawdown_usd") != drawdown) | (x.cents("trading.max_drawdown_usd") != largest)


@RULES.phase(_TRADES, "trading.win_rate", "trading.avg_win_usd", "trading.avg_loss_usd", _CUM)
def win_loss_partition(x: Phase) -> np.ndarray:
    """Wins x average win less losses x average loss is the realised pnl."""
    n, rate = x[_TRADES], x["trading.win_rate"]
    net = n * rate * x["trading.avg_win_usd"] - n * (1 - rate) * x["trading.avg_loss_usd"]
    return differ(net, x[_CUM], rel=1e-9, abs_tol=0.01)


@RULES.phase(_TRADES, _CLOSES)
def trades_count(x: Phase) -> np.ndarray:
    """total_trades is the running sum of closes_step."""
    return x[_TRADES] != np.cumsum(x[_CLOSES])


@RULES.phase(_TRADES, "step", needs=("trades",))
def trades_rows(x: Phase) -> np.ndarray:
    """total_trades is the number of trades rows of the phase closed so far."""
    assert x.trades is not None
    closed = np.searchsorted(np.sort(x.trades["exit_step"]), x["step"], side="right")
    return x[_TRADES] != closed


def _closed_by_policy_or_trail(trades: Columns) -> np.ndarray:
    return np.isin(trades["reason"], ("policy", "trail"))


_GROUPED = {
    "trading.long_pnl_usd_cum": lambda t: t["side"] > 0,
    "trading.large_entry_pnl_usd_cum": lambda t: np.isin([a.split(">")[0] for a in t["actions"]], ("a0", "a6")),
    "trading.forced_close_pnl_usd_cum": lambda t: ~_closed_by_policy_or_trail(t),
    "trail.fired_pnl_usd_cum": lambda t: t["reason"] == "trail",
}


@RULES.phase(any_of=tuple(_GROUPED), needs=("trades",))
def group_by_trades(x: Phase) -> str:
    """Pnl of long, of large, of forced and of trailed closes is the group-by of the trades, exact cents."""
    assert x.trades is not None
    for leaf in x.having(_GROUPED):
        chosen = np.asarray(_GROUPED[leaf](x.trades), bool)
        last, booked = int(x.cents(leaf)[-1]), int(x.trades["pnl_cents"][chosen].sum())
        if last != booked:
            return f"{x.name}: {leaf} ends at {last} cents, its trades sum to {booked}"
    return ""


@RULES.phase(
    "trading.best_trade_usd", "trading.worst_trade_usd", "trading.avg_win_usd", "trading.avg_loss_usd",
    _TRADES, "trading.win_rate",
)  # fmt: skip
def best_worst(x: Phase) -> np.ndarray:
    """The best trade is at least the average win, the worst at most the average loss; neither ever softens."""
    best, worst, n = x["trading.best_trade_usd"], x["trading.worst_trade_usd"], x[_TRADES]
    wins = np.rint(n * x["trading.win_rate"])
    average = ((wins > 0) & above(x["trading.avg_win_usd"], best)) | (
        (wins < n) & above(worst, -x["trading.avg_loss_usd"])
    )
    softer = (n[:-1] > 0) & ((np.diff(best) < 0) | (np.diff(worst) > 0))
    return average | later(softer)


@RULES.phase("trading.account_pnl_usd_min", "trading.account_pnl_usd_max", _EQUITY)
def account_spread(x: Phase) -> np.ndarray:
    """Fleet equity lies between B times the least and B times the largest account's."""
    low, high = (x.config.accounts * x.cents(f"trading.account_pnl_usd_{m}") for m in ("min", "max"))
    return (low > x.cents(_EQUITY)) | (x.cents(_EQUITY) > high)


@RULES.phase("trading.fees_usd_cum", "lob.fees_usd_step")
def fees_sum(x: Phase) -> np.ndarray:
    """fees_usd_cum is the running sum of the fees of each step, exact cents."""
    return x.cents("trading.fees_usd_cum") != np.cumsum(x.cents("lob.fees_usd_step"))


@RULES.phase("trading.slippage_usd_cum", "lob.slippage_ticks_mean", "lob.fill_lots_step")
def slippage_sum(x: Phase) -> np.ndarray:
    """Each row adds mean slippage x lots x tick value to slippage_usd_cum."""
    step = x["lob.slippage_ticks_mean"] * x["lob.fill_lots_step"] * x.config.tick_cents / 100
    return differ(change(x["trading.slippage_usd_cum"]), step, rel=0, abs_tol=0.01)


@RULES.phase("position.net_lots_sum", "lob.buy_lots_step", "lob.fill_lots_step")
def lots_flow(x: Phase) -> np.ndarray:
    """Net lots change by lots bought less lots sold."""
    bought_less_sold = 2 * x["lob.buy_lots_step"] - x["lob.fill_lots_step"]
    return change(x["position.net_lots_sum"]) != bought_less_sold


@RULES.phase("position.abs_lots_mean", "position.net_lots_sum")
def lots_parity(x: Phase) -> np.ndarray:
    """B x abs_lots_mean is a count of lots, at least the net lots and of their parity."""
    exact, net = x["position.abs_lots_mean"] * x.config.accounts, x["position.net_lots_sum"]
    lots = x.count("position.abs_lots_mean")
    return (np.abs(exact - lots) > 1e-6) | (lots < np.abs(net)) | ((lots - net) % 2 != 0)


_UNITS = tuple(f"pyramid.unit{unit}" for unit in (1, 2, 3, 4))


@RULES.phase(*(f"{u}.{leaf}" for u in _UNITS for leaf in ("active_frac", "lots_mean")), "position.abs_lots_mean")
def units_hold_the_lots(x: Phase) -> np.ndarray:
    """The unit slots hold all lots of the fleet."""
    held = np.sum([x[f"{u}.active_frac"] * x[f"{u}.lots_mean"] for u in _UNITS], axis=0)
    return differ(held, x["position.abs_lots_mean"], rel=1e-9, abs_tol=1e-9)


@RULES.phase("pyramid.max_units_reached", "pyramid.full_stack_frac", "pyramid.units_max")
def cap_flag(x: Phase) -> np.ndarray:
    """max_units_reached says that some account stands at the unit cap."""
    flag = x["pyramid.max_units_reached"].astype(bool)
    at_cap = x["pyramid.units_max"] == x.config.max_units
    return (flag != at_cap) | (flag != (x["pyramid.full_stack_frac"] > 0))


@RULES.phase(
    "position.net_notional_usd", "position.gross_notional_usd", "risk_stack.inventory.limit_use_frac",
    f"{_CMDP}.net_inventory_limit_usd",
)  # fmt: skip
def notional_bounds(x: Phase) -> np.ndarray:
    """|net notional| is at most the gross one, and limit_use_frac its share of the limit."""
    net, limit = np.abs(x["position.net_notional_usd"]), x[f"{_CMDP}.net_inventory_limit_usd"]
    use = net / np.where(limit > 0, limit, 1)
    return above(net, x["position.gross_notional_usd"]) | differ(x["risk_stack.inventory.limit_use_frac"], use)


@RULES.phase(*(f"lob.{leaf}" for leaf in (
    "orders_step", "fills_step", "fill_lots_step", "policy_orders_step", "levels_consumed_max", "fees_usd_step",
)))  # fmt: skip
def order_flow(x: Phase) -> np.ndarray:
    """Fills and policy orders are orders; each fill has a lot; levels and fees come with fills and only so."""
    orders, fills = x["lob.orders_step"], x["lob.fills_step"]
    counts = (fills > orders) | (x["lob.policy_orders_step"] > orders) | (x["lob.fill_lots_step"] < fills)
    levels = (x["lob.levels_consumed_max"] > 0) != (fills > 0)
    paid, due = x["lob.fees_usd_step"] > 0, fills > 0
    unpaid = due & ~paid & all(cents > 0 for cents in x.config.fee_cents)
    return counts | levels | unpaid | (paid & ~(due & any(cents > 0 for cents in x.config.fee_cents)))


_DEPTHS = ("l1", "l2", "l3", "l5", "l10")


@RULES.phase(*(f"lob.{side}_depth_{level}" for side in ("bid", "ask") for level in _DEPTHS))
def depth_monotone(x: Phase) -> np.ndarray:
    """Depth summed through more levels is never less."""
    bad = [
        above(x[f"lob.{side}_depth_{near}"], x[f"lob.{side}_depth_{far}"], rel=1e-12)
        for side in ("bid", "ask")
        for near, far in pairwise(_DEPTHS)
    ]
    return np.logical_or.reduce(bad)


@RULES.phase("trail.distance_min", "trail.distance_mean", "trail.distance_max", "trail.fired_step", _CLOSES)
def trail_order(x: Phase) -> np.ndarray:
    """Trail distances are in order, and units closed by a trail are closes."""
    low, mean, high = (x[f"trail.distance_{m}"] for m in ("min", "mean", "max"))
    return above(low, mean) | above(mean, high) | (x["trail.fired_step"] > x[_CLOSES])


@RULES.phase("reward_contrib.trail", "trail.fired_step")
def trail_share(x: Phase) -> np.ndarray:
    """The trail's share of the reward is above 0 only where a trail fired."""
    return (x["reward_contrib.trail"] > 0) & (x["trail.fired_step"] == 0)


@RULES.phase(*(f"position.action_dist_eval_{size}" for size in ("quarter", "half", "full")))
def size_classes(x: Phase) -> np.ndarray:
    """The three size classes hold at most all account-steps of the evaluation, and none of training."""
    total = x.total(f"position.action_dist_eval_{size}" for size in ("quarter", "half", "full"))
    return total > 1 + 1e-9 if x.is_eval else total != 0


_AGREE = tuple(f"frd.{h}.agree_pnl_usd_cum" for h in ("h1", "h2", "h3"))


@RULES.phase(_CLOSES, any_of=_AGREE)
def cents(x: Phase) -> np.ndarray:
    """agree_pnl_usd_cum is whole cents and changes only where a trade closed."""
    bad = np.zeros(x.n, bool)
    for leaf in x.having(_AGREE):
        bad |= differ(x[leaf] * 100, x.cents(leaf), rel=1e-12, abs_tol=1e-4)
        bad |= (change(x.cents(leaf)) != 0) & (x[_CLOSES] == 0)
    return bad


@RULES.phase(_LOCKED, _COOLING, f"{_CMDP}.cooldown_remaining_mean", f"{_CMDP}.cooldown_remaining_max")
def locks_nested(x: Phase) -> np.ndarray:
    """Locked accounts are cooling, at most B cool; time is left if and only if one cools."""
    mean, largest = (x[f"{_CMDP}.cooldown_remaining_{m}"] for m in ("mean", "max"))
    active = x[_COOLING]
    counts = (x[_LOCKED] > active) | (active > x.config.accounts)
    return counts | above(mean, largest) | ((active == 0) != (mean == 0)) | ((active == 0) != (largest == 0))


@RULES.phase(f"{_CMDP}.cooldown_remaining_max", _TERMINATED, _TRUNCATED)
def cooldown_counts_down(x: Phase) -> np.ndarray:
    """The longest cooldown falls by at most 1 a row, unless an episode ended on the row before."""
    ended = (x[_TERMINATED] + x[_TRUNCATED])[:-1] > 0
    return later(~ended & (np.diff(x[f"{_CMDP}.cooldown_remaining_max"]) < -1))


@RULES.phase(f"{_CMDP}.session_pnl_worst_usd", f"{_CMDP}.session_pnl_usd", _COOLING)
def worst_below_mean(x: Phase) -> np.ndarray:
    """The worst session pnl is at most the mean of active accounts, while there is one."""
    someone = x[_COOLING] < x.config.accounts
    return someone & above(x[f"{_CMDP}.session_pnl_worst_usd"], x[f"{_CMDP}.session_pnl_usd"])


@RULES.phase(f"{_CMDP}.dd_recoveries_cum", _LOCKED, _TERMINATED, _TRUNCATED)
def lock_clears(x: Phase) -> np.ndarray:
    """Drawdown locks end by recovery or with their episode, this row's or the one before's."""
    ended = x[_TERMINATED] + x[_TRUNCATED]
    cleared = change(x[f"{_CMDP}.dd_recoveries_cum"])[1:] + ended[1:] + ended[:-1]
    return later(-np.diff(x[_LOCKED]) > cleared)


@RULES.phase(f"{_WARM}.remaining", f"{_WARM}.active", f"{_WARM}.blend")
def warmup_clock(x: Phase) -> np.ndarray:
    """remaining is -1 in training; in evaluation it counts down to 0, with active and blend following it."""
    left, blend = x[f"{_WARM}.remaining"], x[f"{_WARM}.blend"]
    if not x.is_eval:
        return left != -1
    total = x.config.warmup_steps
    counted = later(left[1:] != np.maximum(left[:-1] - 1, 0), not 0 <= left[0] <= total)
    active = x[f"{_WARM}.active"] != (left > 0)
    return counted | active | differ(blend, left / max(total, 1))


@RULES.phase(
    f"{_WARM}.active", *(f"{_WARM}.floor_{n}" for n in ("iqn_tau", "kelly_fraction", "conf_threshold")),
    "risk_stack.iqn_tau.action_tau", f"{_KELLY}.fraction", "gates.conf_threshold",
)  # fmt: skip
def warmup_binds(x: Phase) -> np.ndarray:
    """While the defensive window is active, its tau, Kelly fraction and confidence threshold bind."""
    loose = (
        above(x["risk_stack.iqn_tau.action_tau"], x[f"{_WARM}.floor_iqn_tau"])
        | above(x[f"{_KELLY}.fraction"], x[f"{_WARM}.floor_kelly_fraction"])
        | above(x[f"{_WARM}.floor_conf_threshold"], x["gates.conf_threshold"])
    )
    return (x[f"{_WARM}.active"] == 1) & loose


_OVERRIDES = tuple(
    f"{_WARM}.{end}_{name}"
    for end in ("floor", "target")
    for name in ("iqn_tau", "kelly_fraction", "conf_threshold", "heat_limit_usd")
)


@RULES.phase(any_of=_OVERRIDES, only="train")
def warmup_off_in_train(x: Phase) -> np.ndarray:
    """The overrides of the defensive window do not move in training."""
    return np.logical_or.reduce([x[leaf] != x[leaf][0] for leaf in x.having(_OVERRIDES)])


@RULES.phase(*(f"{_KELLY}.{leaf}" for leaf in (
    "fraction", "raw_fraction", "safety_frac", "cumulative_dones", "min_trades_for_release",
)))  # fmt: skip
def kelly_release(x: Phase) -> np.ndarray:
    """Once released, the Kelly fraction is at most its safety share of the raw one."""
    released = x[f"{_KELLY}.cumulative_dones"] >= x[f"{_KELLY}.min_trades_for_release"]
    cap = np.maximum(0, x[f"{_KELLY}.safety_frac"] * x[f"{_KELLY}.raw_fraction"])
    return released & (x[f"{_KELLY}.fraction"] > cap + 1e-5)


@RULES.phase(*(f"{_DECAY}.{leaf}" for leaf in (
    "trips_cum", "tripped", "ph_stat_mean", "ph_stat_max", "threshold",
)))  # fmt: skip
def edge_alarms(x: Phase) -> np.ndarray:
    """Alarms add up; the mean statistic is at most the largest, which passed the threshold where one tripped."""
    tripped, largest = x[f"{_DECAY}.tripped"], x[f"{_DECAY}.ph_stat_max"]
    silent = (tripped > 0) & (largest <= x[f"{_DECAY}.threshold"])
    return (x[f"{_DECAY}.trips_cum"] != np.cumsum(tripped)) | above(x[f"{_DECAY}.ph_stat_mean"], largest) | silent
