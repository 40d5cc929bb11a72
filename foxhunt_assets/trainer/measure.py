"""Leaves of the acting batch: what one step saw, encoded, predicted and chose.

A group measures numbers on the device, without waiting for it, and makes leaves of them on the host, exactly as
diag_leaves.tsv defines them. State that leaves need from row to row (running histograms, EMA moments) lives in registry
buffers of group "diag"; each phase is a process of its own, so that it starts anew.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from operator import itemgetter

import torch

from foxhunt_assets.contracts.buffers import BufferSpec
from foxhunt_assets.market import features, norm
from foxhunt_assets.simulator.actions import ACTIONS, HOLD, LONG_ENTRIES, N_ACTIONS, SHORT_ENTRIES
from foxhunt_assets.trainer import slots
from foxhunt_assets.trainer.collect import Collector
from foxhunt_assets.trainer.numbers import Group, Numbers, Read, Row
from foxhunt_assets.trainer.world import World
from kernels.acting import op as acting_kernel
from kernels.geometry import op as geometry
from kernels.moves import op as moves
from kernels.statistics import op as statistics

CORRELATION_RATE = 0.01  # EMA rate of the look-ahead correlations
ACCOUNT_RATE = 1 / 64  # EMA rate of an account's executed-action shares
HISTORY = 256  # rows of the windowed action histogram
NEAR_TIE = 0.01
REWARD_TAIL = 5.0  # whitened reward
# What the statistics are taken of; the first by the rows of the tape the accounts stand on.
_MATRICES = (
    "raw", "x", "vsn_mask", "vsn_out", "l1", "l1_decay", "l1_state", "ln_a", "ln_a_rstd", "l2", "l2_decay", "l2_state",
    "ln_b", "ln_b_rstd", "attn", "context", "h", "gate",
)  # fmt: skip


def specs(world: World) -> list[BufferSpec]:
    """State of the acting batch's leaves; group "diag"."""
    b, f = world.config.model.accounts, world.tape.features.shape[1]
    return [
        BufferSpec("diag_moments", (f, moves.MOMENTS), "float64", "diag", ("feature", "moment")),
        BufferSpec("diag_account_shares", (b, N_ACTIONS), "float64", "diag", ("account", "action")),
        BufferSpec("diag_history", (HISTORY, N_ACTIONS), "int64", "diag", ("row", "action")),
        BufferSpec("diag_last_action", (b,), "int64", "diag", ("account",), fill=HOLD),
        BufferSpec("diag_rows", (1,), "int64", "diag"),
        BufferSpec("diag_shaped_close_cum", (1,), "float64", "diag"),
    ]


def groups(w: World, c: Collector, b: Mapping[str, torch.Tensor]) -> list[Group]:
    """What a row measures of its batch; running state moves on by a row with it."""
    return [
        Group("perception", lambda: perception(w, c, b), PerceptionLeaves(w), ("anchor", "x", "encoded")),
        Group("health", lambda: health(c, b), lambda read: health_leaves(w, read), ("encoded", "carry", "outcome")),
        Group(
            "motion", lambda: motion(w, c, b), lambda read: motion_leaves(w, read), ("anchor", "x", "outcome"),
            ("diag_moments",),
        ),
        Group("acting", lambda: acting(w, c, b), ActingLeaves(w), _ACTED, _HISTORIES),
    ]  # fmt: skip


# What `acting` reads and what moves on with it.
_ACTED = (
    "anchor", "outcome", "td_abs", "isv_full", "q_logits", "q_values", "v_t", "pi_logits", "pi", "legal", "frd_logits",
    "action", "action_draw", "reward_raw", "reward_scaled", "reward",
)  # fmt: skip
_HISTORIES = ("diag_account_shares", "diag_last_action", "diag_history", "diag_rows", "diag_shaped_close_cum")


# --- what was seen and encoded --------------------------------------------------------------------


def perception(w: World, c: Collector, b: Mapping[str, torch.Tensor]) -> Numbers:
    """Statistics of the raw features, the encoder's inputs and its activations."""
    found = {"raw": w.tape.raw, "x": b["x"]} | {name: getattr(c.encoded, name) for name in _MATRICES[2:]}
    matrices = {name: found[name].flatten(0, -2) for name in _MATRICES}
    seen = statistics.summary(matrices, norm.NORM_CLIP, ("vsn_mask", "attn"), c.anchor)
    return {
        "whole": seen.whole.flatten(),
        "raw_mean": seen.columns("raw", "mean"),
        "raw_std": seen.columns("raw", "std"),
        "raw_abs_max": seen.columns("raw", "abs_max"),
        "mask_mean": seen.columns("vsn_mask", "mean"),
        "attn_mean": seen.columns("attn", "mean"),
    }


# Leaf: (matrix, statistic of all its elements).
_OF_A_MATRIX = {
    "features.shift_abs_mean": ("x", "column_mean_abs"), "features.shift_abs_max": ("x", "column_mean_abs_max"),
    "features.std_min": ("x", "column_std_min"), "features.input_mean": ("x", "mean"),
    "features.input_std": ("x", "std"), "features.input_abs_max": ("x", "abs_max"),
    "features.clipped_frac": ("x", "clipped"),
    "encoder.vsn_out_abs_mean": ("vsn_out", "abs_mean"), "encoder.vsn_out_abs_max": ("vsn_out", "abs_max"),
    "encoder.mamba2_l1_abs_mean": ("l1", "abs_mean"), "encoder.mamba2_l1_abs_max": ("l1", "abs_max"),
    "encoder.ln_a_abs_max": ("ln_a", "abs_max"), "encoder.ln_a_rstd_max": ("ln_a_rstd", "abs_max"),
    "encoder.mamba2_l2_abs_mean": ("l2", "abs_mean"), "encoder.mamba2_l2_abs_max": ("l2", "abs_max"),
    "encoder.ln_b_abs_max": ("ln_b", "abs_max"), "encoder.ln_b_rstd_max": ("ln_b_rstd", "abs_max"),
    "encoder.attn_context_abs_mean": ("context", "abs_mean"), "encoder.attn_context_abs_max": ("context", "abs_max"),
    "encoder.h_t_abs_mean": ("h", "abs_mean"), "encoder.h_t_abs_max": ("h", "abs_max"),
    "encoder.h_t_unit_std_min": ("h", "column_std_min"), "encoder.attn_entropy": ("attn", "entropy"),
    "encoder.mamba2_l1_decay_mean": ("l1_decay", "mean"), "encoder.mamba2_l2_decay_mean": ("l2_decay", "mean"),
    "encoder.cfc_gate_mean": ("gate", "mean"), "vsn.mask_entropy": ("vsn_mask", "entropy"),
    "vsn.mask_row_std": ("vsn_mask", "column_std"),
}  # fmt: skip


def _place(matrix: str, what: str) -> int:
    return _MATRICES.index(matrix) * len(statistics.WHOLE) + statistics.WHOLE.index(what)


class PerceptionLeaves:
    """Leaves of `perception`. Places are looked up once: a row is finished within a captured step."""

    def __init__(self, w: World) -> None:
        self.whole = {leaf: _place(*of) for leaf, of in _OF_A_MATRIX.items()}
        self.states = [_place(name, "abs_max") for name in ("l1_state", "l2_state")]
        # Two of the microstructure features are kept in ticks and told in points.
        told = {"realized_variance": _tick_points(w) ** 2, "intra_bar_momentum": _tick_points(w)}
        micro = [f.name for f in features.FEATURES if f.group == "micro"]
        self.micro = [(f"features.micro.{name}_mean", features.index(name), told.get(name, 1)) for name in micro]
        self.touch, self.depth, self.flow = map(features.index, ("ofi_touch", "ofi_depth", "trade_flow"))

    def __call__(self, read: Read) -> Row:
        whole, raw = read["whole"], read["raw_mean"]
        return {
            **{leaf: whole[i] for leaf, i in self.whole.items()},
            **{leaf: raw[i] * scale for leaf, i, scale in self.micro},
            "features.ofi.touch_mean": raw[self.touch],
            "features.ofi.touch_std": read["raw_std"][self.touch],
            "features.ofi.depth_mean": raw[self.depth],
            "features.ofi.depth_abs_max": read["raw_abs_max"][self.depth],
            "features.trade_flow_mean": raw[self.flow],
            **_group_mass(read["mask_mean"]),
            "vsn.mask_max": max(read["mask_mean"]),
            "encoder.attn_newest_weight": read["attn_mean"][-1],
            "numerics.scan_state_abs_max": max(whole[i] for i in self.states),
        }


_GROUP_COLUMNS = {f"vsn.mask_{group}": features.columns_of(group) for group in features.GROUPS}


def _group_mass(mask: Sequence[float]) -> Row:
    """Selection mass of each feature group. mask: batch-mean weights, one a feature."""
    return {leaf: sum(mask[columns]) for leaf, columns in _GROUP_COLUMNS.items()}


def health(c: Collector, b: Mapping[str, torch.Tensor]) -> Numbers:
    """How the rows of h_t lie to one another and to the carry they read."""
    return {"health": geometry.geometry(c.encoded.h, b["carry"], c.outcome.episode_start)}


def health_leaves(w: World, read: Read) -> Row:
    """How alike the rows of h_t are, over how many directions they spread, how far they moved from the carry."""
    unit_sum_square, trace, square, moved, counted = read["health"]
    n = w.config.model.accounts
    return {
        "encoder.cfc_carry_delta_norm": moved / max(1, counted),
        "encoder.h_t_batch_cosine": (unit_sum_square - n) / max(1, n * (n - 1)),
        "encoder.h_t_participation_ratio": trace**2 / max(square, 1e-300) if trace > 0 else 0.0,
    }


def motion(w: World, c: Collector, b: Mapping[str, torch.Tensor]) -> Numbers:
    """Books at the decision, how the mid moved, and the correlations [F] of the newest inputs with that."""
    market, o = w.tape.market, c.outcome
    book = (market.bid_px, market.ask_px, market.bid_sz, market.ask_sz)
    correlation, books = moves.moves(b["x"], book, c.anchor, o.next_row, CORRELATION_RATE, b["diag_moments"])
    return {"correlation": correlation, "books": books.flatten()}


def motion_leaves(w: World, read: Read) -> Row:
    """Books at the decision, how far the mid moved, and what would show look-ahead."""
    numbers, correlation = read["books"], read["correlation"]
    sizes = list(map(abs, correlation))
    largest = max(sizes)
    unchanged, mid, two_sided, size, square, both = (sum(numbers[i :: len(moves.BOOKS)]) for i in range(6))
    half_tick, sigma = _tick_points(w) / 2, w.tape.sigma_step
    rms = math.sqrt(square / max(1, both)) / 2  # ticks
    return {
        "data.unchanged_book_frac": unchanged / w.config.model.accounts,
        "data.mid_price_mean": mid / max(1, two_sided) * half_tick,
        "data.mid_return_abs_mean": size / max(1, both) * half_tick,
        "data.mid_rms_over_sigma": rms / sigma if sigma > 0 else 0.0,
        "features.ofi.touch_next_corr": correlation[features.index("ofi_touch")],
        "features.leak_corr_max": largest,
        "features.leak_corr_index": sizes.index(largest),
    }


# --- what was predicted, chosen and paid ----------------------------------------------------------


def acting(w: World, c: Collector, b: Mapping[str, torch.Tensor]) -> Numbers:
    """Numbers of the acting batch, folded over the accounts; the histories move on by this row."""
    o, isv = c.outcome, b["isv_full"]
    said = acting_kernel.Heads(
        b["q_logits"], b["q_values"], isv[slots.V_MIN], isv[slots.V_MAX], b["v_t"], b["pi_logits"], b["pi"], b["legal"],
        b["frd_logits"], c.frd_sigmas,
    )  # fmt: skip
    done = acting_kernel.Acted(
        b["action"], b["action_draw"], o.executed, o.episode_start, c.anchor, w.tape.labels
    )  # fmt: skip
    paid = acting_kernel.Paid(
        b["reward_raw"], b["reward_scaled"], b["reward"], o.core_cents, o.fee_cents, o.trade_closed
    )  # fmt: skip
    history = acting_kernel.History(*(b[name] for name in _HISTORIES))
    floor = w.config.learning.pi_floor
    scale = acting_kernel.Scale(floor, w.pi_floor, NEAR_TIE, c.point_lot_cents, REWARD_TAIL, ACCOUNT_RATE)
    return {"batch": acting_kernel.acting(said, done, paid, history, scale), "td_abs": c.td_abs}


# Leaf: the sum over the accounts whose batch mean it is.
_MEANS = {
    "q.taken_mean": "q.taken", "q.q_max_mean": "q.top", "q.q_gap": "q.gap", "q.q_spread": "q.spread",
    "q.dist_entropy_mean": "q.entropy", "q.dist_std_mean": "q.std", "c51.edge_mass_lo": "q.edge_lo",
    "c51.edge_mass_hi": "q.edge_hi", "q_pi.agree_step": "q.agree", "v.pred_mean": "q.v",
    **{f"q.mean_by_action.{name}": f"q.{a}" for a, name in enumerate(ACTIONS)},
    "pi.entropy_mean": "pi.entropy", "pi.max_prob_mean": "pi.max", "pi.hold_prob_mean": f"pi.{HOLD}",
    "pi.log_pi_old_mean": "pi.log_kept", "gates.conf_mean": "pi.taken", "audit.action_draw_mean": "pi.draw",
    "audit.near_tie_frac": "pi.near_tie", "actions.switch_frac": "pi.switched",
    "sac.account_entropy_mean": "pi.account_entropy",
    "rewards.raw_nonzero_frac": "reward.nonzero", "rewards.raw_abs_mean": "reward.raw_abs",
    "reward_terms.core_pnl": "reward.core", "reward_terms.tx_cost": "reward.fees", "popart.tail_frac": "reward.tail",
}  # fmt: skip
_MEANS_OF_A_HORIZON = {
    "entropy_mean": "entropy", "argmax_mean": "argmax", "label_valid_frac": "valid", "expected_sigma": "expected",
    "upper_tail_mass": "hi", "lower_tail_mass": "lo",
}  # fmt: skip
_AS_THEY_ARE = {
    "pi.entropy_min": "pi.entropy.least", "pi.logit_abs_max": "pi.logit.largest",
    "sac.account_entropy_min": "pi.account_entropy.least", "rewards.sum": "reward.final",
    "rewards.min": "reward.final.least", "rewards.max": "reward.final.largest", "trading.raw_reward_sum": "reward.raw",
    "reward_terms.sum_residual_abs_max": "reward.residual.largest",
    "trading.shaped_reward_close_event_cum": "closed_raw",
}  # fmt: skip
_OF_AN_ACTION = ("q.{}", "q.{}.squares", "q.argmax.{}", "pi.{}", "pi.executed.{}", "pi.sampled.{}", "window.{}")
_REWARDS = ("reward.gap", "reward.scaled_abs", "reward.raw_abs", "reward.closed_abs", "reward.final.squares")


class ActingLeaves:
    """Leaves of `acting`. Places are looked up once: a row is finished within a captured step."""

    def __init__(self, w: World) -> None:
        self.accounts, self.evaluating = w.config.model.accounts, w.evaluating
        horizons = range(len(w.config.labels.horizons))
        self.at = at = {name: i for i, name in enumerate(acting_kernel.names(N_ACTIONS, len(horizons)))}
        of_horizons = [
            (f"frd.h{m + 1}.{leaf}", f"frd.{m}.{name}") for m in horizons for leaf, name in _MEANS_OF_A_HORIZON.items()
        ]
        self.means = [(leaf, at[name]) for leaf, name in (*_MEANS.items(), *of_horizons)]
        self.as_they_are = [(leaf, at[name]) for leaf, name in _AS_THEY_ARE.items()]
        losses = [(f"frd.h{m + 1}.loss", f"frd.h{m + 1}.accuracy") for m in horizons]
        sums = [(at[f"frd.{m}.valid"], at[f"frd.{m}.nll"], at[f"frd.{m}.hit"]) for m in horizons]
        self.horizons = list(zip(losses, sums))
        self.each = [itemgetter(*(at[name.format(a)] for a in range(N_ACTIONS))) for name in _OF_AN_ACTION]

    def __call__(self, read: Read) -> Row:
        x, n, at = read["batch"], self.accounts, self.at
        q, squares, best, p, executed, sampled, window = (pick(x) for pick in self.each)
        return {
            **{leaf: x[i] / n for leaf, i in self.means},
            **{leaf: x[i] for leaf, i in self.as_they_are},
            "v.td_abs_mean": read["td_abs"],
            "q.argmax_entropy": _entropy(best, n),
            "q.q_std": _spread(q, squares, n),
            "v.pred_std": math.sqrt(x[at["q.v.squares"]] / n),
            **_actions(executed, sampled, window, n, x[at["window_rows"]]),
            **_policy(p, executed, n),
            "pi.floor_active_frac": x[at["pi.floored"]] / (n * N_ACTIONS),
            **self._losses(x),
            **_rewards({name: x[at[name]] for name in _REWARDS}, n),
        }

    def _losses(self, x: Sequence[float]) -> Row:
        """The FRD head on the acting rows, out of sample in evaluation; its per-horizon losses and their mean."""
        out: Row = {}
        nll = labelled = 0.0
        for (loss, accuracy), (valid, lost, hit) in self.horizons:
            rows = max(1.0, x[valid])
            out[loss], out[accuracy] = x[lost] / rows, x[hit] / rows
            nll, labelled = nll + x[lost], labelled + x[valid]
        out["loss.frd"] = 0.0 if self.evaluating else nll / max(1.0, labelled)
        return out


def _entropy(counts: Sequence[float], total: float) -> float:
    """Nats of a histogram of `total` things."""
    return -sum(k / total * math.log(k / total) for k in counts if k)


def _spread(sums: Sequence[float], squares: Sequence[float], n: int) -> float:
    """Standard deviation over all columns, from sums and squares about the mean of n numbers a column."""
    means = [x / n for x in sums]
    mean = sum(means) / len(means)
    return math.sqrt((sum(squares) / n + sum((m - mean) ** 2 for m in means)) / len(means))


def _policy(sums: Sequence[float], executed: Sequence[float], n: int) -> Row:
    """Batch-mean softmax against the actions executed."""
    p = [x / n for x in sums]
    kl = sum(k / n * (math.log(k / n) - math.log(max(p[a], 1e-38))) for a, k in enumerate(executed) if k)
    return {
        "pi.long_minus_short_prob": sum(p[a] for a in LONG_ENTRIES) - sum(p[a] for a in SHORT_ENTRIES),
        "sac.exec_policy_kl": kl,
    }


_HISTOGRAMS = [[f"{name}.{action}" for action in ACTIONS] for name in ("act_hist", "pregate_act_hist")]
_WINDOWED = [f"windowed_act_hist.{action}" for action in ACTIONS]


def _actions(executed: Sequence[float], sampled: Sequence[float], window: Sequence[float], n: int, rows: float) -> Row:
    """Histograms of this step and of the last HISTORY rows of the phase."""
    total = n * rows
    return {
        **dict(zip(_HISTOGRAMS[0], map(int, executed))),
        **dict(zip(_HISTOGRAMS[1], map(int, sampled))),
        **{leaf: k / total for leaf, k in zip(_WINDOWED, window)},
        "actions.pregate_entropy": _entropy(sampled, n),
        "sac.action_entropy_step": _entropy(executed, n),
        "health.action_entropy": min(1.0, max(0.0, _entropy(window, total) / math.log(N_ACTIONS))),
    }


def _rewards(x: Mapping[str, float], n: int) -> Row:
    """What is no plain mean of the rewards."""
    gap, scaled, size = x["reward.gap"] / n, x["reward.scaled_abs"] / n, x["reward.raw_abs"]
    return {
        "rewards.std": math.sqrt(x["reward.final.squares"] / n),
        "rewards.close_abs_share": x["reward.closed_abs"] / size if size > 0 else 0.0,
        "reward_contrib.popart": gap / max(gap + scaled, 1e-300),
    }


def _tick_points(w: World) -> float:
    return w.tape.spec.segments[0].tick / 1e9
