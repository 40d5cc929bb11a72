"""The market of one fold on the device: features, labels and the simulator's view, copied once, never viewed."""

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
from foxhunt_assets.errors import BadInput
from foxhunt_assets.market import features, norm
from foxhunt_assets.market import tape as market_tape
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

    def windows(self, anchors: torch.Tensor, window: int) -> torch.Tensor:
        """int64 [R, K] rows of the windows ending at `anchors`; before a segment its first row stands in."""
        back = torch.arange(1 - window, 1, device=anchors.device)
        return torch.maximum(anchors[:, None] + back, self.segment_start[anchors][:, None])


def load_tape(fold_dir: Path, snapshots: Mapping[str, str], config: TrainerConfig, device: str) -> Tape:
    """Read a fold. BadInput names the file where configuration and fold disagree."""
    spec = FoldSpec.from_json(storage.read_json(fold_dir / "spec" / "fold_spec.json"))
    _check(fold_dir, spec, config)
    names = [*dict.fromkeys((*_MARKET, *features.COLUMNS))]
    columns = market_tape.read_columns(spec.sources, lambda key: Path(snapshots[key]), names, device)
    mean, std = norm.read_norm(fold_dir / "norm")
    segment = market_tape.segment_of_rows(spec, device)
    raw = features.compute(columns, segment)
    labels, sigma_step = read_labels(fold_dir / "labels" / LABELS_FILE, config.labels.horizons)
    starts, _ = segment_bounds(segment)
    ts = columns["ts"]
    if len(labels) != len(ts):
        raise BadInput(f"{fold_dir}: {len(labels)} rows of labels for a tape of {len(ts)}; materialise frd_labels")
    dt = torch.ones(ts.numel(), dtype=torch.float32, device=device)
    dt[1:] = ((ts[1:] - ts[:-1]).to(torch.float64) / (spec.grid_ms * 1e6)).to(torch.float32)
    return Tape(
        spec=spec,
        market=_market_view(spec, columns, segment, config),
        features=norm.normalise(raw, mean.to(device), std.to(device)),
        raw=raw,
        labels=labels.to(device=device, dtype=torch.int64),
        sigma_step=sigma_step,
        dt=dt.clamp(0.0, DT_MAX),
        segment=segment,
        segment_start=starts,
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
    fees = torch.tensor([fee_cents(spec.root, s.trade_date, config) for s in spec.segments] or [0])
    fees = fees.to(segment.device)
    return MarketView(
        **{name: columns[name] for name in _MARKET},
        segment=segment,
        fee_cents=fees[segment.clamp_min(0).long()],
        tick_cents=contract(spec.root).tick_cents,
    )


def fee_cents(root: str, trade_date: str, config: TrainerConfig) -> int:
    """Fee a side and lot in cents on a trade date: the configuration's table, or the contract facts."""
    table = config.env.fee_cents
    if not table:
        return contract(root).fee_on(datetime.date.fromisoformat(trade_date))
    cents = [c for first, c in table if first <= trade_date]
    if not cents:
        raise BadInput(f"configuration: env.fee_cents starts after {trade_date}; add an earlier row")
    return cents[-1]


def read_labels(path: Path, horizons: Sequence[int]) -> tuple[torch.Tensor, float]:
    """(labels int8 [N, horizons], sigma_step in ticks) of a frd_labels file."""
    try:
        with pa.memory_map(str(path)) as source:
            table = pa.ipc.open_file(source).read_all()
            columns = [torch.tensor(table.column(f"h{h}").to_numpy()) for h in horizons]
    except (FileNotFoundError, pa.ArrowInvalid, KeyError) as error:
        raise BadInput(f"{path}: no labels of horizons {tuple(horizons)} ({error}); materialise frd_labels") from None
    return torch.stack(columns, dim=1), float(json.loads(table.schema.metadata[b"sigma_step"]))
