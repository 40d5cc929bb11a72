"""Means, spreads, sizes and entropies of named float32 matrices, in one go: what diagnostics want of activations."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from itertools import accumulate

import torch

from kernels import build
from kernels.arguments import FLOATS, check
from kernels.statistics import kernel, reference
from kernels.statistics.reference import COLUMN, WHOLE

__all__ = ["COLUMN", "WHOLE", "Summary", "summary"]


class Summary:
    """Statistics by the name of a matrix; every answer is a view.

    whole: float64 [matrices, len(WHOLE)]. by_column: float64 [len(COLUMN), sum of the columns].
    """

    def __init__(self, widths: Mapping[str, int], whole: torch.Tensor, by_column: torch.Tensor) -> None:
        self.whole, self.by_column = whole, by_column
        self._row = {name: i for i, name in enumerate(widths)}
        ends = [0, *accumulate(widths.values())]
        self._columns = {name: slice(ends[i], ends[i + 1]) for i, name in enumerate(widths)}

    def of(self, name: str, what: str) -> torch.Tensor:
        """0-dim: one of WHOLE.

        mean, std (biased), abs_mean, abs_max: over all elements. clipped: share of elements of size >= limit.
        entropy: mean over the rows of -sum x ln x, 0 ln 0 = 0; 0 for a matrix that is not among the shares.
        column_mean_abs, column_mean_abs_max: mean and largest |mean of a column|. column_std, column_std_min: mean and
        least biased standard deviation of a column.
        """
        return self.whole[self._row[name], WHOLE.index(what)]

    def columns(self, name: str, what: str) -> torch.Tensor:
        """[C], one of COLUMN: mean, std (biased) or abs_max of each column."""
        return self.by_column[COLUMN.index(what), self._columns[name]]


def summary(
    matrices: Mapping[str, torch.Tensor],
    limit: float,
    shares: Collection[str] = (),
    at: torch.Tensor | None = None,
) -> Summary:
    """Statistics of matrices float [R, C], at least one row and column, each its own shape; at most 20 of them.

    limit: size from which an element counts as clipped. shares: names of those whose rows are probabilities, whose
    entropy is wanted. at: int64 rows of the first matrix that count, repeats included; all where it is left out.
    """
    if not 0 < len(matrices) <= kernel.MOST:
        raise ValueError(f"matrices: {len(matrices)} of them, expected 1 to {kernel.MOST}")
    for name, x in matrices.items():
        check(name, x, (None, None), *FLOATS)
        if not x.numel():
            raise ValueError(f"{name}: no element")
    if unknown := set(shares) - matrices.keys():
        raise ValueError(f"shares: no matrix {min(unknown)}")
    if at is not None:
        check("at", at, (None,), torch.int64)
    sources = list(matrices.values())
    backend = kernel if build.on_gpu(sources[0]) else reference
    found = backend.summary(sources, at, [name in shares for name in matrices], limit)
    return Summary({name: x.shape[1] for name, x in matrices.items()}, *found)
