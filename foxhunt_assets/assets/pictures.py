"""Pictures for the UI: PNG inside markdown, small enough for the metadata budget."""

from __future__ import annotations

import base64
import io
from collections.abc import Callable

import dagster as dg
import numpy as np
from matplotlib.figure import Figure

MAX_PNG_BYTES = 36 * 1024  # 48 kB as base64, inside the 64 kB an asset may carry
RESOLUTIONS = (80, 60, 45, 30, 20)  # dots an inch, tried from the finest
MAX_POINTS = 600  # more than the book picture has pixels

Draw = Callable[[int], bytes]


def embed(draw: Draw, alt: str) -> dg.MarkdownMetadataValue:
    """draw(dpi) is a PNG; the finest that fits the budget, as markdown."""
    for dpi in RESOLUTIONS:
        png = draw(dpi)
        if len(png) <= MAX_PNG_BYTES:
            break
    return dg.MetadataValue.md(f"![{alt}](data:image/png;base64,{base64.b64encode(png).decode()})")


def book(mid: np.ndarray, spread: np.ndarray, title: str) -> dg.MarkdownMetadataValue:
    """mid, spread: [rows] in ticks. Rows without a two-sided book are NaN and leave a gap."""

    def draw(dpi: int) -> bytes:
        figure = Figure(figsize=(7, 4), dpi=dpi, layout="constrained")
        upper, lower = figure.subplots(2, 1, sharex=True)
        figure.suptitle(title, fontsize=10)
        upper.plot(*_thin(mid), lw=0.8)
        upper.set_ylabel("mid, ticks")
        lower.plot(*_thin(spread), lw=0.8, color="tab:green")
        lower.set_ylabel("spread, ticks")
        lower.set_xlabel("snapshot")
        out = io.BytesIO()
        figure.savefig(out, format="png", metadata={"Software": None})
        return out.getvalue()

    return embed(draw, "mid and spread")


def _thin(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(index, value) of at most MAX_POINTS evenly spaced points, the last one included."""
    index = np.unique(np.linspace(0, len(values) - 1, min(len(values), MAX_POINTS)).astype(np.int64))
    return index, values[index]
