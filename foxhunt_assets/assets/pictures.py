"""Small pictures for the UI: PNG inside markdown, small enough for the metadata budget."""

from __future__ import annotations

import base64
import io
from collections.abc import Callable, Mapping, Sequence

import dagster as dg
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

MAX_PNG_BYTES = 36 * 1024  # 48 kB as base64, inside the 64 kB an asset may carry
MAX_POINTS = 600  # more than the picture has pixels

Draw = Callable[[Sequence[Axes]], None]


def picture(draw: Draw, rows: int, title: str, alt: str) -> dg.MarkdownMetadataValue:
    """A figure of `rows` panels under each other as markdown; drawn coarser until it fits the budget."""
    for dpi in (90, 60, 40, 25):
        png = _png(draw, rows, title, dpi)
        if len(png) <= MAX_PNG_BYTES:
            break
    return dg.MetadataValue.md(f"![{alt}](data:image/png;base64,{base64.b64encode(png).decode()})")


def _png(draw: Draw, rows: int, title: str, dpi: int) -> bytes:
    figure = Figure(figsize=(7, 1.2 + 1.6 * rows), dpi=dpi, layout="constrained")
    axes = figure.subplots(rows, 1, squeeze=False)[:, 0]
    figure.suptitle(title, fontsize=10)
    draw(list(axes))
    out = io.BytesIO()
    figure.savefig(out, format="png", metadata={"Software": None})
    return out.getvalue()


def thin(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(index, value) of at most MAX_POINTS evenly spaced points, the last one included."""
    index = np.unique(np.linspace(0, len(values) - 1, min(len(values), MAX_POINTS)).astype(np.int64))
    return index, values[index]


def equity_and_drawdown(equity_usd: np.ndarray, drawdown_usd: np.ndarray, title: str) -> dg.MarkdownMetadataValue:
    """Both [rows], in market time."""

    def draw(axes: Sequence[Axes]) -> None:
        axes[0].plot(*thin(equity_usd), lw=1)
        axes[0].set_ylabel("equity, USD")
        axes[1].fill_between(*thin(-drawdown_usd), step="mid", color="tab:red", alpha=0.5)
        axes[1].set_ylabel("drawdown, USD")
        axes[1].set_xlabel("market time, rows")

    return picture(draw, 2, title, "equity and drawdown")


def label_histogram(counts: Mapping[str, np.ndarray], title: str) -> dg.MarkdownMetadataValue:
    """counts: horizon name -> rows of each atom."""

    def draw(axes: Sequence[Axes]) -> None:
        for ax, (name, count) in zip(axes, counts.items()):
            ax.bar(np.arange(len(count)), count, width=0.9)
            ax.set_ylabel(name)
        axes[-1].set_xlabel("atom of the forward return")

    return picture(draw, len(counts), title, "labels a horizon")


def book(mid: np.ndarray, spread: np.ndarray, title: str) -> dg.MarkdownMetadataValue:
    """mid: [rows] in ticks. spread: [rows] in ticks. Rows without a two-sided book are NaN and leave a gap."""

    def draw(axes: Sequence[Axes]) -> None:
        axes[0].plot(*thin(mid), lw=0.8)
        axes[0].set_ylabel("mid, ticks")
        axes[1].plot(*thin(spread), lw=0.8, color="tab:green")
        axes[1].set_ylabel("spread, ticks")
        axes[1].set_xlabel("snapshot")

    return picture(draw, 2, title, "mid and spread")
