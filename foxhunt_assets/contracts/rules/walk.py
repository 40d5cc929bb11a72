"""Rules on the axis, the phases, the walk of the accounts over the tape, the features and the encoder."""

from __future__ import annotations

import numpy as np

from foxhunt_assets.contracts.diag import leaves
from foxhunt_assets.contracts.rules.base import (
    Phase,
    RuleTable,
    Run,
    above,
    change,
    differ,
    later,
    off_integer,
    same_bits,
)

RULES = RuleTable()

_STARTS, _TERMINATED, _TRUNCATED = (
    "data.episode_starts_step",
    "data.terminated_step",
    "data.truncated_step",
)
_GROUPS = ("price", "size", "micro", "ofi", "time", "flow")
_BUFFERS = ("vsn_out", "mamba2_l1", "mamba2_l2", "attn_context", "h_t")


def _of(rule: str) -> tuple[str, ...]:
    return tuple(leaf.path for leaf in leaves() if leaf.phase_rule == rule)


@RULES.run("step")
def axis(run: Run) -> str:
    """step starts at 0 and increases by exactly 1, through both files."""
    step = np.concatenate([phase["step"] for phase in run.phases])
    if run.train is not None and step[0] != 0:
        return f"train row 0: step {step[0]}, not 0"
    bad = np.flatnonzero(np.diff(step) != 1)
    return f"step {step[bad[0]]} is followed by {step[bad[0] + 1]}" if bad.size else ""


@RULES.phase("run.eval_step", "step")
def eval_axis(x: Phase) -> np.ndarray:
    """Eval row i has eval_step i and step n_train + i; eval_step is 0 on train rows."""
    if not x.is_eval:
        return x["run.eval_step"] != 0
    row = np.arange(x.n)
    return (x["run.eval_step"] != row) | (x["step"] != x.config.n_train + row)


@RULES.phase("run.phase_code")
def phase(x: Phase) -> np.ndarray:
    """phase_code is 0 on every train row, 1 on every eval row."""
    return x["run.phase_code"] != int(x.is_eval)


@RULES.phase("run.drain_row")
def drained(x: Phase) -> np.ndarray:
    """drain_row is 1 on the last eval row and 0 everywhere else."""
    last = np.arange(x.n) == x.n - 1
    return x["run.drain_row"] != (last & x.is_eval)


@RULES.phase(any_of=_of("train_only") + _of("eval_only"))
def idle_is_zero(x: Phase) -> str:
    """Every train_only leaf is exactly 0 on eval rows, every eval_only leaf on train rows."""
    for leaf in x.having(_of("train_only") if x.is_eval else _of("eval_only")):
        bad = np.flatnonzero(x[leaf] != 0)
        if bad.size:
            return f"{x.name} row {bad[0]}, step {x['step'][bad[0]]}: {leaf}={x[leaf][bad[0]]}"
    return ""


@RULES.run(any_of=_of("held"), needs=("train", "eval"))
def held_is_held(run: Run) -> str:
    """Every held leaf is bit-equal on all eval rows to its last train row."""
    assert run.train is not None and run.eval is not None
    for leaf in run.eval.having(_of("held")):
        last = run.train[leaf][-1:]
        bad = np.flatnonzero(~same_bits(run.eval[leaf], np.repeat(last, run.eval.n)))
        if bad.size:
            return f"eval row {bad[0]}: {leaf}={run.eval[leaf][bad[0]]}, last train row {last[0]}"
    return ""


@RULES.run(any_of=_of("config"))
def config_is_config(run: Run) -> str:
    """Every config leaf has one value in a run, the one of config.json where that fixes it."""
    for leaf in run.phases[0].having(_of("config")):
        values = np.concatenate([phase[leaf] for phase in run.phases])
        expected = run.config.leaf_values.get(leaf, values[0])
        bad = np.flatnonzero(values != expected)
        if bad.size:
            return f"row {bad[0]}: {leaf}={values[bad[0]]}, not {expected}"
    return ""


@RULES.phase("data.anchor_min", "data.anchor_mean", "data.anchor_max")
def anchor_order(x: Phase) -> np.ndarray:
    """anchor min <= mean <= max."""
    low, mean, high = x["data.anchor_min"], x["data.anchor_mean"], x["data.anchor_max"]
    return above(low, mean, rel=1e-12) | above(mean, high, rel=1e-12)


@RULES.phase("data.anchor_mean", _STARTS)
def contiguous_walk(x: Phase) -> np.ndarray:
    """Where no episode starts, the mean anchor rises by exactly 1."""
    return _moved_other_than(x, x.count("data.anchor_mean"), x.config.accounts)


@RULES.phase("data.episode_age_mean", _STARTS)
def episode_age(x: Phase) -> np.ndarray:
    """Where no episode starts, the mean age rises by exactly 1."""
    return _moved_other_than(x, x.count("data.episode_age_mean"), x.config.accounts)


@RULES.phase("data.segment_rows_left_min", _STARTS)
def segment_clock(x: Phase) -> np.ndarray:
    """segment_rows_left_min is never negative and falls by exactly 1 where no episode starts."""
    left = x["data.segment_rows_left_min"]
    return (left < 0) | _moved_other_than(x, left, -1)


def _moved_other_than(x: Phase, values: np.ndarray, by: int) -> np.ndarray:
    return later((x[_STARTS][1:] == 0) & (np.diff(values) != by))


@RULES.phase(_STARTS, _TERMINATED, _TRUNCATED)
def episode_book(x: Phase) -> np.ndarray:
    """Episodes that start on a row are those that ended on the row before; B on the first row of a phase."""
    ended = x[_TERMINATED] + x[_TRUNCATED]
    return later(x[_STARTS][1:] != ended[:-1], x[_STARTS][0] != x.config.accounts)


@RULES.phase("data.anchor_unique_frac")
def distinct_windows(x: Phase) -> np.ndarray:
    """anchor_unique_frac x B is an integer from 1 to B."""
    distinct = x["data.anchor_unique_frac"] * x.config.accounts
    return off_integer(distinct) | (np.rint(distinct) < 1) | (np.rint(distinct) > x.config.accounts)


@RULES.phase("data.purge_margin_min")
def no_leak_border(x: Phase) -> np.ndarray:
    """No account stands past the last row its phase may use."""
    return x["data.purge_margin_min"] < 0


@RULES.phase("lob.fill_lag_ms_mean")
def no_future(x: Phase) -> np.ndarray:
    """No order fills on a book older than the one it was decided on."""
    return x["lob.fill_lag_ms_mean"] < 0


@RULES.phase("features.input_abs_max", "features.shift_abs_max", "features.shift_abs_mean", "features.input_mean")
def shift_order(x: Phase) -> np.ndarray:
    """input_abs_max >= shift_abs_max >= shift_abs_mean >= |input_mean|."""
    largest, mean = x["features.shift_abs_max"], x["features.shift_abs_mean"]
    return (
        above(largest, x["features.input_abs_max"])
        | above(mean, largest)
        | above(np.abs(x["features.input_mean"]), mean)
    )


@RULES.phase(*(f"vsn.mask_{group}" for group in _GROUPS))
def vsn_mass(x: Phase) -> np.ndarray:
    """The six groups of the selection gate sum to 1 within 1e-4."""
    return differ(x.total(f"vsn.mask_{group}" for group in _GROUPS), 1, rel=0, abs_tol=1e-4)


@RULES.phase("vsn.mask_max")
def vsn_max(x: Phase) -> np.ndarray:
    """The largest selection weight is at least 1/F."""
    return x["vsn.mask_max"] < 1 / x.config.n_features - 1e-6


@RULES.phase(*(f"encoder.{b}_abs_{m}" for b in _BUFFERS for m in ("mean", "max")))
def abs_order(x: Phase) -> np.ndarray:
    """The mean magnitude of an encoder buffer is at most its largest."""
    bad = [above(x[f"encoder.{b}_abs_mean"], x[f"encoder.{b}_abs_max"]) for b in _BUFFERS]
    return np.logical_or.reduce(bad)


@RULES.phase(
    "checksums.encoder_w", "checksums.heads_w", "checksums.optimizer", "checksums.target_w",
    "checksums.vsn_w", "optim.update_norm",
)  # fmt: skip
def weights_move_then_freeze(x: Phase) -> np.ndarray:
    """A train row with an update changes the optimiser and some weights; no eval row changes any."""
    moved = {
        name: change(x[f"checksums.{name}"], x[f"checksums.{name}"][0]) != 0
        for name in ("encoder_w", "heads_w", "optimizer", "target_w", "vsn_w")
    }
    if x.is_eval:
        return np.logical_or.reduce(list(moved.values()))
    stuck = ~moved["optimizer"] | ~(moved["encoder_w"] | moved["heads_w"])
    return later((stuck & (x["optim.update_norm"] > 0))[1:])


@RULES.run("audit.events_reached", "trading.total_trades")
def events_grow(run: Run) -> str:
    """The coverage events reached never fall, and are at least 1 once a trade closed."""
    reached = np.concatenate([phase["audit.events_reached"] for phase in run.phases])
    traded = np.concatenate([phase["trading.total_trades"] > 0 for phase in run.phases])
    bad = np.flatnonzero(later(np.diff(reached) < 0) | (traded & (reached < 1)))
    return f"row {bad[0]} of the run: audit.events_reached={reached[bad[0]]}" if bad.size else ""
