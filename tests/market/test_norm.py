"""Scaling: numpy as the oracle, training rows alone, constants reported, a foreign table refused."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from foxhunt_assets.contracts.tables import FEATURE_NORM, arrow_schema
from foxhunt_assets.errors import BadInput, ContractBroken
from foxhunt_assets.market import features, norm
from tests.market.made_snapshots import random_columns
from tests.market.specs import spec_of


@pytest.fixture
def columns():
    made = random_columns(900, 9)
    return {name: torch.from_numpy(made[name]) for name in features.COLUMNS}


SPEC = spec_of(900, train=[(10, 300), (320, 500)], validation=[(560, 600)], test=[(700, 900)])


def computed(columns):
    return features.compute(columns, torch.zeros(len(columns["ts"]), dtype=torch.int32))


def test_mean_and_std_of_the_training_rows(columns, tmp_path, monkeypatch):
    monkeypatch.setattr(features, "BLOCK_ROWS", 64)
    report = norm.write_norm(SPEC, columns, tmp_path)
    mean, std = norm.read_norm(tmp_path)
    x = computed(columns).to(torch.float64).numpy()
    trained = np.concatenate((x[10:300], x[320:500]))
    spread = trained.std(0)
    assert np.allclose(mean.numpy(), trained.mean(0), rtol=1e-12, atol=1e-12)
    assert np.allclose(std.numpy(), np.where(spread > 1e-9, spread, 1), rtol=1e-9, atol=1e-12)
    assert report["n_rows"] == 470
    table = pq.read_table(tmp_path / "feature_norm.parquet")
    assert table.schema.equals(arrow_schema(FEATURE_NORM))
    assert table["feature"].to_pylist() == [f.name for f in features.FEATURES]


def test_a_constant_feature_is_reported_and_left_alone(columns, tmp_path):
    columns["buy_lots"], columns["sell_lots"] = columns["buy_lots"] * 0 + 5, columns["sell_lots"] * 0
    report = norm.write_norm(SPEC, columns, tmp_path)
    mean, std = norm.read_norm(tmp_path)
    assert report["constant"] == ["trade_flow"]
    at = features.index("trade_flow")
    assert mean[at] == 5 and std[at] == 1
    assert (norm.normalise(computed(columns), mean, std)[:, at] == 0).all()


def test_evaluation_rows_are_not_fitted_on(columns, tmp_path):
    norm.write_norm(SPEC, columns, tmp_path / "clean")
    poisoned = {k: v.clone() for k, v in columns.items()}
    for v in poisoned.values():
        v[500:] = 2**30
    norm.write_norm(SPEC, poisoned, tmp_path / "poisoned")
    clean, same = ((tmp_path / x / "feature_norm.parquet").read_bytes() for x in ("clean", "poisoned"))
    assert clean == same
    poisoned["ofi"][299] = 2**30
    norm.write_norm(SPEC, poisoned, tmp_path / "trained")
    assert (tmp_path / "trained" / "feature_norm.parquet").read_bytes() != clean


@pytest.mark.parametrize("rows", [1, 2, 3, 4])
def test_welford(monkeypatch, rows):
    """Mean 4.25 and population variance 3.1875 of 2, 4, 4, 7, whatever the blocks that are merged."""
    monkeypatch.setattr(features, "BLOCK_ROWS", rows)
    columns = {name: torch.from_numpy(v) for name, v in random_columns(4, 2).items() if name in features.COLUMNS}
    columns["buy_lots"], columns["sell_lots"] = torch.tensor([2, 4, 4, 7]), torch.zeros(4, dtype=torch.int64)
    mean, std, n = norm.fit(spec_of(4, train=[(0, 4)]), columns)
    at = features.index("trade_flow")
    assert n == 4 and mean[at].item() == 4.25 and std[at].item() ** 2 == pytest.approx(3.1875, rel=1e-15)


def test_threads_move_no_bit():
    n = 40_000
    columns = {name: torch.from_numpy(v) for name, v in random_columns(n, 4).items() if name in features.COLUMNS}
    spec, before = spec_of(n, train=[(0, n - 100)]), torch.get_num_threads()
    fitted = []
    try:
        for threads in (1, 2, 5):
            torch.set_num_threads(threads)
            fitted.append(torch.stack(norm.fit(spec, columns)[:2]))
    finally:
        torch.set_num_threads(before)
    assert torch.equal(fitted[0], fitted[1]) and torch.equal(fitted[0], fitted[2])


def test_normalise_scales_and_clips():
    mean, std = torch.tensor([1.0, 2.0], dtype=torch.float64), torch.tensor([2.0, 0.5], dtype=torch.float64)
    x = torch.tensor([[3.0, 2.25], [1e9, -1e9]])
    z = norm.normalise(x, mean, std)
    assert z.dtype == torch.float32 and z.tolist() == [[1.0, 0.5], [norm.NORM_CLIP, -norm.NORM_CLIP]]
    assert norm.normalise(x.expand(4, 2, 2), mean, std).shape == (4, 2, 2)


def test_refusals(columns, tmp_path):
    with pytest.raises(BadInput, match=r"feature_norm\.parquet: no such file"):
        norm.read_norm(tmp_path)
    norm.write_norm(SPEC, columns, tmp_path)
    table = pq.read_table(tmp_path / norm.NORM_FILE)
    for bad in (table.slice(1), table.take([1, 0, *range(2, table.num_rows)])):
        pq.write_table(bad, tmp_path / norm.NORM_FILE)
        with pytest.raises(ContractBroken, match="not the features of this code"):
            norm.read_norm(tmp_path)
    zeros = table.set_column(2, "std", pa.array([0.0] * table.num_rows))
    pq.write_table(zeros, tmp_path / norm.NORM_FILE)
    with pytest.raises(ContractBroken, match="not above 0"):
        norm.read_norm(tmp_path)
