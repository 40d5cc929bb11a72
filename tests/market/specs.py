"""Fold specifications made by hand."""

from foxhunt_assets.market.folds import FoldSpec, TapeSegment, TapeSource


def spec_of(n_rows, train, horizons=(5, 40), validation=(), test=()) -> FoldSpec:
    """One segment over a whole tape of one source."""
    segment = TapeSegment(0, "ESM4", 7, "2024-04-01", 0, n_rows, "session", 250_000_000, 5_000)
    return FoldSpec(
        fold="fold_0", root="ES", mode="blocks", synthetic=False, grid_ms=250, window=4, latency_steps=1,
        horizons=horizons, purge_rows=max(horizons) + 1, embargo_rows=0, n_rows=n_rows,
        sources=(TapeSource("k", 0, n_rows, "0"),), segments=(segment,),
        train=tuple(train), validation=tuple(validation), test=tuple(test),
    )  # fmt: skip
