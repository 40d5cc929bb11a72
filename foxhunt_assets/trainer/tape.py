"""The market of one fold on the device: features, labels and the simulator's view, copied once, never viewed.

A row takes 680 bytes there: 184 of books, extremes and times, 2 x 224 of features, 24 of labels, 24 of segment, its
first row, fee and time step: 30.6 GB for 45 million rows, and little more while they load, since columns that only
features read go before the normalised features come. Raw features are kept beside the normalised ones because
diagnostics report them and nothing gives them back: a clipped value is gone, and a quotient in float32 does not undo
to the bit.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import torch

from foxhunt_assets import storage
from foxhunt_assets.contracts.instruments import contract
from foxhunt_assets.contracts.tables import arrow_schema, label_columns
from foxhunt_assets.errors import BadInput, ContractBroken
from foxhunt_assets.market import features, norm
from foxhunt_assets.market import tape as market_tape
from foxhunt_assets.market.columns import ColumnFile, fill_rows
from foxhunt_assets.market.folds import FoldSpec
from foxhunt_assets.market.labels import ATOMS, LABELS_FILE, RANGE_SIGMA
from foxhunt_assets.simulator.market_view import MarketView, segment_bounds
from foxhunt_assets.trainer.config import TrainerConfig

DT_MAX = 4.0  # the CfC gate's time step saturates here, in grid steps, so that a gap does not drown the policy
_MARKET = ("bid_px", "ask_px", "bid_sz", "ask_sz", "low_bid_px", "high_ask_px", "ts", "ts_event")


@dataclass
class Tape:
    """Rows of a fold's tape. features [N, F] normalised; raw [N, F]; labels int64 [N, 3]; dt [N] in grid steps.

    segment int32 [N], -1 outside; segment_start int64 [N]: first row of the row's segment.
    trade_dates: one a segment.
    """

    spec: FoldSpec
    market: MarketView
    features: torch.Tensor
    raw: torch.Tensor
    labels: torch.Tensor
    sigma_step: float
    dt: torch.Tensor
    segment: torch.Tensor
    segment_start: torch.Tensor
    trade_dates: tuple[str, ...]


def load_tape(fold_dir: Path, snapshots: Mapping[str, str], config: TrainerConfig, device: str) -> Tape:
    """Read a fold. BadInput names the file where configuration and fold disagree."""
    spec = FoldSpec.from_json(storage.read_json(fold_dir / "spec" / "fold_spec.json"))
    _check(fold_dir, spec, config)
    labels, sigma_step = read_labels(fold_dir / "labels" / LABELS_FILE, config.labels.horizons, device)
    n = sum(source.row_end - source.row_start for source in spec.sources)
    if len(labels) != n:
        raise BadInput(f"{fold_dir}: {len(labels)} rows of labels for a tape of {n}; materialise frd_labels")
    mean, std = norm.read_norm(fold_dir / "norm")
    names = [*dict.fromkeys((*_MARKET, *features.COLUMNS))]
    columns = market_tape.read_columns(spec.sources, lambda key: Path(snapshots[key]), names, device)
    segment = market_tape.segment_of_rows(spec, device)
    segment_start, _ = segment_bounds(segment)
    raw = features.compute(columns, segment)
    market = _market_view(spec, columns, segment, config)
    del columns  # those that only features read make room for the normalised features
    return Tape(
        spec=spec,
        market=market,
        features=norm.normalise(raw, mean, std),
        raw=raw,
        labels=labels,
        sigma_step=sigma_step,
        dt=_time_steps(market.ts, spec.grid_ms),
        segment=segment,
        segment_start=segment_start,
        trade_dates=tuple(s.trade_date for s in spec.segments),
    )


def _check(fold_dir: Path, spec: FoldSpec, config: TrainerConfig) -> None:
    where = fold_dir / "spec" / "fold_spec.json"
    for name, has, wants in (
        ("horizons", spec.horizons, config.labels.horizons),
        ("window", spec.window, config.model.window),
    ):
        if has != wants:
            raise BadInput(f"{where}: made for {name} {has}, the run wants {wants}; materialise the fold again")
    cut_for = {
        "labels.range_sigma": (RANGE_SIGMA, config.labels.range_sigma),
        "model.frd_atoms": (ATOMS, config.model.frd_atoms),
    }
    for key, (cut, asked) in cut_for.items():
        if cut != asked:
            raise BadInput(f"configuration: {key} is {asked}; the labels are cut for {cut}, so leave it out")
    if spec.purge_rows < config.purge_rows:
        raise BadInput(f"{where}: purged by {spec.purge_rows} rows, this run needs {config.purge_rows}")


def _market_view(
    spec: FoldSpec, columns: Mapping[str, torch.Tensor], segment: torch.Tensor, config: TrainerConfig
) -> MarketView:
    fees = [fee_cents(spec.root, s.trade_date, config) for s in spec.segments]
    fee = torch.full(segment.shape, fees[0] if fees else 0, dtype=torch.int64, device=segment.device)
    for s, cents in zip(spec.segments, fees, strict=True):
        fee[s.row_start : s.row_end] = cents
    return MarketView(
        **{name: columns[name] for name in _MARKET},
        segment=segment,
        fee_cents=fee,
        tick_cents=contract(spec.root).tick_cents,
    )


def _time_steps(ts: torch.Tensor, grid_ms: int) -> torch.Tensor:
    """float32 [n]: grid steps since the row before, from 0 to DT_MAX; 1 for the first row. ts: int64 [n], ns."""
    steps = torch.ones(ts.numel(), dtype=torch.float32, device=ts.device)
    steps[1:] = (ts[1:] - ts[:-1]).to(torch.float64).div_(grid_ms * 1e6)
    return steps.clamp_(0.0, DT_MAX)


def fee_cents(root: str, trade_date: str, config: TrainerConfig) -> int:
    """Fee a side and lot in cents on a trade date: the configuration's table, or the contract facts."""
    table = config.env.fee_cents
    if not table:
        return contract(root).fee_on(datetime.date.fromisoformat(trade_date))
    cents = [c for first, c in table if first <= trade_date]
    if not cents:
        raise BadInput(f"configuration: env.fee_cents starts after {trade_date}; add an earlier row")
    return cents[-1]


def read_labels(path: Path, horizons: Sequence[int], device: str) -> tuple[torch.Tensor, float]:
    """(labels int64 [N, horizons] on `device`, sigma_step in ticks) of a frd_labels file."""
    schema = arrow_schema(label_columns(horizons))
    try:
        file = ColumnFile(path, schema)
        sigma_step = float(json.loads((file.schema.metadata or {})[b"sigma_step"]))
    except (OSError, pa.ArrowException, KeyError, ContractBroken) as error:
        raise BadInput(f"{path}: no labels of horizons {tuple(horizons)} ({error}); materialise frd_labels") from None
    out = torch.empty((file.n_rows, len(schema)), dtype=torch.int64, device=device)
    fill_rows(dict(zip(schema.names, out.unbind(1))), schema, [(file, 0, file.n_rows)])
    return out, sigma_step
