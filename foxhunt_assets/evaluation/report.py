"""What a person looks at: equity and drawdown in market time, the labels a fold was trained on, a table of figures.

matplotlib is imported where a picture is drawn, so that a summary can be computed without it.
"""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from foxhunt_assets.contracts.summaries import MIN_TRADE_DATES
from foxhunt_assets.evaluation.oracle import OracleResult
from foxhunt_assets.evaluation.summary import TRADE_DATES_PER_YEAR, TrackRecord

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SYNTHETIC = "SYNTHETIC data"
_MAX_POINTS = 1_200  # columns of the picture: more would be drawn on top of each other


def equity_picture(record: TrackRecord, title: str, synthetic: bool, dpi: int = 80) -> bytes:
    """PNG: equity in USD over its drawdown, rows in market time, a line where a trade date begins.

    Every column shows the lowest and the highest of its rows, so that the deepest drawdown is in the picture.
    """
    figure = _figure(title, synthetic, (9.0, 5.0), dpi)
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=(2, 1))
    for axes, values, colour in ((upper, record.equity_cents, "C0"), (lower, -record.drawdown_cents, "C3")):
        rows, least, most = envelope(values / 100)
        axes.fill_between(rows, least, most, color=colour, linewidth=1.0, edgecolor=colour)
        axes.grid(alpha=0.3)
    upper.axhline(0.0, color="black", linewidth=0.6)
    starts = session_starts(record)
    for axes in (upper, lower):
        for row, _ in starts:
            axes.axvline(row, color="grey", linewidth=0.6, linestyle=":")
    for row, date in starts[:: max(1, len(starts) // 8)]:
        upper.annotate(date, (row, 0.02), xycoords=("data", "axes fraction"), fontsize=7, rotation=90, va="bottom")
    upper.set_ylabel("equity, USD")
    lower.set_ylabel("drawdown, USD")
    lower.set_xlabel("rows in market time, accounts laid end to end")
    return _png(figure)


def labels_picture(labels: pa.Table, title: str, synthetic: bool, dpi: int = 80) -> bytes:
    """PNG: one histogram of atoms a column of frd_labels (h<n>); rows without a label are counted in its heading."""
    figure = _figure(title, synthetic, (9.0, 1.0 + 1.6 * labels.num_columns), dpi)
    panels = figure.subplots(labels.num_columns, 1, sharex=True, squeeze=False)[:, 0]
    for axes, name in zip(panels, labels.column_names):
        counts, without = label_counts(labels[name].to_numpy())
        axes.bar(np.arange(len(counts)), counts, width=0.9)
        share = without / max(1, labels.num_rows)
        axes.set_title(f"{name}: {labels.num_rows - without:,} labels, {share:.1%} of rows have none", fontsize=8)
        axes.set_ylabel("rows")
    panels[-1].set_xlabel("atom of the forward return")
    return _png(figure)


def markdown(summary: Mapping[str, Any], oracle: OracleResult | None = None) -> str:
    """The figures of eval_summary.json as a table, with what must be known to read them. oracle: of the same walk,
    where the market was generated with a drift that can be known."""
    spread = summary["per_account"]
    figures = {
        "net pnl": _usd(summary["total_pnl_usd"]),
        "maximum drawdown (market time)": _usd(summary["max_drawdown_usd"]),
        "trades": f"{summary['n_trades']:,}",
        "win rate": f"{summary['win_rate']:.1%}" if summary["n_trades"] else "no trade",
        "mean win / mean loss": f"{_usd(summary['avg_win_usd'])} / {_usd(summary['avg_loss_usd'])}",
        "daily Sharpe, annualised": _sharpe(summary),
        "fees, inside net pnl": _usd(summary["fees_usd"]),
        "slippage, inside net pnl": _usd(summary["slippage_usd"]),
        "break-even fee a lot and side": _optional(summary["break_even_fee_usd_per_side"], _usd),
        "break-even move a lot": _optional(summary["break_even_ticks_per_lot"], lambda x: f"{x:.2f} ticks"),
        "pnl an account: least, mean, most": " / ".join(_usd(spread[k]) for k in ("min_usd", "mean_usd", "max_usd")),
        "net pnl inside the warm-up": f"{_usd(summary['warmup']['pnl_usd'])} in {summary['warmup']['steps']} steps",
        "walked": f"{summary['n_steps']:,} steps x {summary['accounts']} accounts, "
        f"{summary['coverage_share']:.1%} of the {summary['phase']} range, {summary['exploration']}",
    }
    if oracle is not None:
        share = oracle.share(summary["total_pnl_cents"])
        figures["oracle, which knows the drift (same latency, hold, fees)"] = _usd(oracle.cents / 100)
        figures["net pnl as a share of the oracle's"] = "the oracle earns nothing" if share is None else f"{share:.1%}"
    head = f"**{summary['fold']}, seed {summary['seed']}**" + (f" ({SYNTHETIC})" if summary["synthetic"] else "")
    return "\n".join([head, "", "| | |", "| --- | ---: |", *(f"| {k} | {v} |" for k, v in figures.items())]) + "\n"


def envelope(values: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(first row, least, most) of at most _MAX_POINTS equal stretches of `values`; the rows themselves when few."""
    width = max(1, math.ceil(len(values) / _MAX_POINTS))
    first = np.arange(0, len(values), width)
    return first, np.minimum.reduceat(values, first), np.maximum.reduceat(values, first)


def session_starts(record: TrackRecord) -> list[tuple[int, str]]:
    """(row, trade date) where the trade date changes, the first row included."""
    rows = np.flatnonzero(np.diff(record.date_index, prepend=-1))
    return [(int(row), record.dates[record.date_index[row]]) for row in rows]


def label_counts(atoms: np.ndarray) -> tuple[np.ndarray, int]:
    """(rows of each atom from 0, rows without a label)."""
    labelled = atoms[atoms >= 0]
    return np.bincount(labelled.astype(np.int64), minlength=1), len(atoms) - len(labelled)


def _figure(title: str, synthetic: bool, size: tuple[float, float], dpi: int) -> Figure:
    from matplotlib.figure import Figure  # not pyplot: no global state, no display

    figure = Figure(figsize=size, dpi=dpi, layout="constrained")
    figure.suptitle(f"{title} ({SYNTHETIC})" if synthetic else title, fontsize=10)
    return figure


def _png(figure: Figure) -> bytes:
    out = io.BytesIO()
    figure.savefig(out, format="png", metadata={"Software": None})  # no version in it: same data, same bytes
    return out.getvalue()


def _sharpe(summary: Mapping[str, Any]) -> str:
    n, daily = summary["n_trade_dates"], summary["sharpe_daily"]
    if daily is not None:
        return f"{daily * math.sqrt(TRADE_DATES_PER_YEAR):.2f} over {n} trade dates"
    if n < MIN_TRADE_DATES:
        return f"none: {n} trade dates, {MIN_TRADE_DATES} are needed"
    return f"none: pnl is the same on each of {n} trade dates"


def _usd(value: float) -> str:
    return f"{value:,.2f} USD"


def _optional(value: float | None, show: Callable[[float], str]) -> str:
    return "no trade" if value is None else show(value)
