"""The checks on snapshots and labels: an honest partition passes each, and each has an input that fails it."""

from __future__ import annotations

import json

import dagster as dg
import numpy as np
import pyarrow as pa
import pytest

from foxhunt_assets import audits, gates, lineage, storage
from foxhunt_assets.build import build
from foxhunt_assets.checks import market
from foxhunt_assets.contracts.tables import ABSENT_PX, arrow_schema, label_columns
from foxhunt_assets.market import labels
from foxhunt_assets.market.snapshot_folder import open_snapshots
from foxhunt_assets.partitions import register_files
from foxhunt_assets.resources import World
from tests.assets import fakes
from tests.market import made_dbn as made
from tests.market.made_dbn import MS, mbp, ns
from tests.market.specs import spec_of

T0 = ns("2024-03-01T15:00:00")


@pytest.fixture
def decoded(tmp_path):
    """(instance, world, current es_snapshots) of one file whose third record was received before its second."""
    (tmp_path / "data").mkdir()
    times = [0, 600, 599, 1_200]
    records = [mbp(T0 + t * MS, bid=20_000 + t, ask=20_001 + t) for t in times]
    made.write_mbp(tmp_path / "data" / "a.synthetic.dbn", records)
    settings = fakes.tiny_settings(tmp_path)
    world = World(settings)
    with dg.DagsterInstance.local_temp() as instance:
        (key,) = world.source_files()
        register_files(instance, [key])
        job = build(settings).resolve_job_def("snapshots_job")
        result = job.execute_in_process(instance=instance, partition_key=key, run_config=lineage.QUIET)
        assert result.success
        yield instance, world, gates.current(instance, "es_snapshots", key), result


def test_a_capture_time_that_steps_back_is_a_remark_and_stops_nothing(decoded):
    instance, world, now, result = decoded
    by_name = {e.check_name: e for e in result.get_asset_check_evaluations()}
    assert by_name["source_traced"].passed and by_name["snapshots_contract"].passed
    assert market.ts_recv_rises(instance, world, now).faults == [] and by_name["ts_recv_rises"].passed, (
        "on the grid the row after shows the later record"
    )
    table = open_snapshots(now.folder)
    recv = table["ts_recv"].to_numpy().copy()
    recv[2] = recv[1] - 1
    held = pa.table([pa.array(c.to_pylist(), c.type) for c in table.columns], schema=table.schema)
    held = held.set_column(held.column_names.index("ts_recv"), held.schema.field("ts_recv"), pa.array(recv))
    with pa.ipc.new_file(str(now.folder / "snapshots.arrow"), held.schema) as writer:
        writer.write_table(held)
    assert market.ts_recv_rises(instance, world, now).faults == ["row 2: ts_recv steps back (1 such rows)"]
    rule = next(r for r in market.RULES if r.name == "ts_recv_rises")
    assert not rule.blocking
    assert "is not what its row says" in market.source_traced(instance, world, now).faults[0]


def test_a_file_that_was_replaced_since_is_not_traced(decoded):
    instance, world, now, _ = decoded
    path = world.source_file(now.partition)
    made.write_mbp(path, [mbp(T0, bid=1, ask=2)])
    (fault,) = market.source_traced(instance, world, now).faults
    assert "another file than the one that was decoded" in fault


HORIZONS = (2, 3)


def label_folder(tmp_path, atoms, sigma=1.0):
    folder = tmp_path / f"labels-{len(list(tmp_path.iterdir()))}"
    folder.mkdir()
    schema = arrow_schema(label_columns(HORIZONS), {"sigma_step": json.dumps(sigma)})
    table = pa.table([pa.array(atoms[:, i], pa.int8()) for i in range(len(HORIZONS))], schema=schema)
    with pa.OSFile(str(folder / labels.LABELS_FILE), "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
        writer.write_table(table)
    return folder


def made_atoms(bid, ask, sigma=1.0):
    import torch

    segment = torch.zeros(len(bid), dtype=torch.int32)
    return labels.make_labels(torch.from_numpy(bid), torch.from_numpy(ask), segment, HORIZONS, sigma).numpy()


def test_labels_stand_exactly_where_two_sound_mids_of_a_segment_do(tmp_path):
    rng = np.random.default_rng(0)
    bid = 20_000 + rng.integers(-1, 2, 60).cumsum()
    ask = bid + 1
    bid[7], ask[20], ask[31], bid[40] = ABSENT_PX, ABSENT_PX, bid[31], ask[40] + 1  # absent, absent, locked, crossed
    spec, atoms = spec_of(60, [(0, 60)], HORIZONS), made_atoms(bid, ask)
    assert audits.label_mid_faults(label_folder(tmp_path, atoms), spec, bid, ask) == []
    for row, says in ((7, "without two sound mids"), (5, "without two sound mids"), (31, "without"), (40, "without"),
                      (59, "without"), (58, "without")):  # fmt: skip
        wrong = atoms.copy()
        wrong[row, 0] = 10
        (fault,) = audits.label_mid_faults(label_folder(tmp_path, wrong), spec, bid, ask)
        assert says in fault and f"h2: row {row} " in fault
    wrong = atoms.copy()
    wrong[11, 1] = -1
    (fault,) = audits.label_mid_faults(label_folder(tmp_path, wrong), spec, bid, ask)
    assert fault == "h3: row 11 has no label where one belongs (1 such rows)"


def test_under_a_sigma_of_zero_only_a_flat_price_has_a_label(tmp_path):
    bid = np.array([5, 5, 5, 6, 6, 6, 6, 6])
    spec, atoms = spec_of(8, [(0, 8)], HORIZONS), made_atoms(bid, bid + 1, 0.0)
    assert audits.label_mid_faults(label_folder(tmp_path, atoms, 0.0), spec, bid, bid + 1) == []
    assert "no label where" in audits.label_mid_faults(label_folder(tmp_path, atoms), spec, bid, bid + 1)[0]


@pytest.mark.parametrize(
    ("bid", "sigma", "says"),
    [
        (np.full(400, 20_000), 1.0, "100% of the labels are atom 10"),
        (20_000 + np.random.default_rng(1).integers(-1, 2, 400).cumsum(), 0.2, "of the labels are beyond 3 sigma"),
        (20_000 + np.random.default_rng(1).integers(-1, 2, 400).cumsum(), 0.8165, None),
    ],
)
def test_labels_that_crowd_are_a_remark(tmp_path, monkeypatch, bid, sigma, says):
    folder = label_folder(tmp_path, made_atoms(bid, bid + 1, sigma), sigma)
    spec_dir = tmp_path / "spec"
    spec_dir.mkdir()
    storage.write_json(spec_dir / audits.SPEC_FILE, spec_of(len(bid), [(0, len(bid))], HORIZONS).to_json())
    now = gates.Current("frd_labels", "fold_0", folder, "v", "m", {})
    monkeypatch.setattr(gates, "current", lambda *a: gates.Current("fold_spec", "fold_0", spec_dir, "v", "m", {}))
    found = market.atom_balance(None, None, now)
    assert (found.faults == []) if says is None else all(says in fault for fault in found.faults) and found.faults
    assert set(found.values) == {f"h{h}_{what}" for h in HORIZONS for what in ("outermost", "largest")}
    assert not next(r for r in market.RULES if r.name == "atom_balance").blocking
