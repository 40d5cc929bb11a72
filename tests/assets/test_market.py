"""Source files to snapshots on real jobs: observation, replacement, quarantine, a stopped decode, a full disk."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import multiprocessing
import os
import signal
import time

import dagster as dg
import pytest
from dagster._core.definitions.data_version import CachingStaleStatusResolver, StaleStatus
from dagster._core.loader import LoadingContextForTest

from foxhunt_assets import gates, lineage, sources, storage
from foxhunt_assets.assets import market
from foxhunt_assets.build import build
from foxhunt_assets.contracts.instruments import contract
from foxhunt_assets.market import snapshots
from foxhunt_assets.market.snapshot_folder import open_snapshots
from foxhunt_assets.partitions import register_files
from foxhunt_assets.resources import World
from foxhunt_assets.settings import DataSettings
from tests.assets import fakes
from tests.market import made_dbn as made
from tests.market.made_dbn import MS, mbp, ns

T0 = ns("2024-03-01T15:00:00")


def records(n: int = 60, day: int = 1) -> list:
    at = ns(f"2024-03-{day:02d}T15:00:00")
    return [mbp(at + i * 250 * MS, bid=20_000 + i % 3, ask=20_001 + i % 3) for i in range(n)]


@pytest.fixture
def home(tmp_path):
    """(definitions, instance, world) of a home with one good file and one that is cut."""
    (tmp_path / "data").mkdir()
    made.write_mbp(tmp_path / "data" / "a.synthetic.mbp-10.dbn.zst", records())
    whole = made.write_mbp(tmp_path / "data" / "b.synthetic.mbp-10.dbn", records())
    whole.write_bytes(whole.read_bytes()[:-7])
    with dg.DagsterInstance.local_temp() as instance:
        settings = fakes.tiny_settings(tmp_path)
        world = World(settings)
        register_files(instance, list(world.source_files()))
        yield build(settings), instance, world


def run(made_home, key, job="snapshots_job"):
    defs, instance, _ = made_home
    return defs.resolve_job_def(job).execute_in_process(
        instance=instance, partition_key=key, run_config=lineage.QUIET, raise_on_error=False
    )


def key_of(world, name):
    return next(key for key, path in world.source_files().items() if path.name.startswith(name))


def latest_observation(instance, key):
    wanted = dg.AssetRecordsFilter(asset_key=dg.AssetKey("dbn_files"), asset_partitions=[key])
    return instance.fetch_observations(wanted, limit=1).records[0].asset_observation


def test_an_observation_carries_content_hash_size_schema_and_span(home):
    defs, instance, world = home
    good, cut = (key_of(world, name) for name in "ab")
    result = defs.resolve_job_def("observe_job").execute_in_process(instance=instance, run_config=lineage.QUIET)
    assert result.success
    seen = latest_observation(instance, good)
    path = world.source_file(good)
    values = {name: value.value for name, value in seen.metadata.items()}
    assert seen.tags["dagster/data_version"] == values["sha256"] == storage.file_sha256(path)
    assert (values["schema"], values["version"], values["bytes"]) == ("mbp-10", 3, path.stat().st_size)
    assert (values["start"], values["end"]) == (ns("2024-03-01T00:00:00") / 1e9, ns("2024-03-02T00:00:00") / 1e9)
    assert values["symbols"] == "ESH4" and values["synthetic"] and values["file"] == path.name
    assert latest_observation(instance, cut).metadata["schema"].value == "mbp-10", "its header is whole"
    junk = world.settings.data_dir / "c.dbn"
    junk.write_bytes(b"not market data")
    assert "no DBN header" in sources.facts_of(world, junk)["problem"]


def test_snapshots_show_rows_sessions_and_a_picture_and_pass_their_checks(home):
    _, instance, world = home
    key = key_of(world, "a")
    result = run(home, key)
    assert result.success, lineage.problems_of(result)
    passed = {e.check_name: e.passed for e in result.get_asset_check_evaluations()}
    assert passed == dict.fromkeys(("snapshots_contract", "snapshots_sql", "source_traced", "ts_recv_rises"), True)
    shown = gates.require(instance, "es_snapshots", key).metadata
    assert shown["dagster/row_count"] == 60 and shown["book"].startswith("![mid and spread](data:image/png;base64,")
    assert "| 2024-03-01 | ESH4 | 60 | 1 | 0 | Fri 09:00:00 | Fri 09:00:14 |" in shown["sessions"]


def test_what_speaks_against_a_file_that_decodes_is_shown(home):
    """A degraded day, a manifest that lacks a file, and symbols the request could not have whole or at all."""
    _, instance, world = home
    names = [f"ES{letter}{n}" for letter in "HMUZ" for n in range(6)]
    path = made.write_mbp(
        world.settings.data_dir / "a.synthetic.mbp-10.dbn.zst", records(), partial=["ESZ9"], not_found=names
    )
    key = key_of(world, "a")
    listed = [
        {"filename": name, "size": path.stat().st_size, "hash": f"sha256:{storage.file_sha256(path)}"}
        for name in (path.name, "lost.dbn.zst")
    ]
    (path.parent / "manifest.json").write_text(json.dumps({"files": listed}))
    condition = [{"date": "2024-03-01", "condition": "degraded"}, {"date": "2024-03-02", "condition": "available"}]
    (path.parent / "condition.json").write_text(json.dumps(condition))
    result = run(home, key)
    assert result.success, lineage.problems_of(result)
    shown = gates.require(instance, "es_snapshots", key).metadata
    assert shown["bad_days"] == {"2024-03-01": "degraded"} and shown["n_bad_days"] == 1
    assert shown["symbols_partial"] == ["ESZ9"] and shown["n_symbols_partial"] == 1
    assert shown["symbols_not_found"] == names[:20] and shown["n_symbols_not_found"] == 24
    assert shown["n_warnings"] == 3 == len(shown["warnings"])
    told = "\n".join(shown["warnings"])
    assert all(text in told for text in ("2024-03-01 is degraded", "lost.dbn.zst", "ESH0, ESH1"))
    report = storage.read_json(world.layout.snapshots(key) / market.REPORT_FILE)
    single = {k: v for k, v in report.items() if not isinstance(v, (dict, list)) and k != "rows"}
    assert len(single) > 25 and {k: shown[k] for k in single} == single, "no single value of the report is left out"


def test_orders_that_the_book_did_not_know_are_shown(home):
    """Cancels of orders that nothing in the file added."""
    _, instance, world = home
    orders = [made.mbo(T0, "C", "B", 9, 20_000, 5), made.mbo(T0 + MS, "C", "B", 8, 20_000, 5)]
    orders += [made.mbo(T0 + 2 * MS, "A", "B", 1, 20_000, 5), made.mbo(T0 + 3 * MS, "A", "A", 2, 20_001, 5)]
    path = made.write_mbo(world.settings.data_dir / "m.synthetic.mbo.dbn", orders)
    register_files(instance, list(world.source_files()))
    key = key_of(world, path.name)
    assert run(home, key).success
    assert gates.require(instance, "es_snapshots", key).metadata["order_errors"] == {"unknown_cancel": 2}


def test_a_cut_file_is_quarantined_with_its_reason_and_stops_no_other(home):
    _, instance, world = home
    good, cut = (key_of(world, name) for name in "ab")
    failed = run(home, cut)
    (problem,) = lineage.problems_of(failed)
    assert problem.exit_code == 2 and "ends inside record 59" in problem.text
    assert not world.layout.snapshots(cut).exists() and not list(world.layout.snapshots("x").parent.glob(".*"))
    assert run(home, good).success
    used, left_out = market.usable_sources(instance, world)
    assert [s.key for s in used] == [good]
    ((key, reason),) = left_out
    assert key == cut and "ends inside record 59" in reason and "download it again" in reason
    held = storage.read_json(world.layout.quarantine / "sources" / f"{cut}.json")
    assert held["sha256"] == storage.file_sha256(world.source_file(cut))
    made.write_mbp(world.source_file(cut), records())  # mended: the same name, whole
    assert run(home, cut).success
    used, left_out = market.usable_sources(instance, world)
    assert {s.key for s in used} == {good, cut} and left_out == []


def test_a_file_replaced_by_an_unreadable_one_is_not_used_by_what_it_was(home):
    _, instance, world = home
    key = key_of(world, "a")
    assert run(home, key).success
    world.source_file(key).write_bytes(b"overwritten by mistake")
    assert not run(home, key).success
    used, left_out = market.usable_sources(instance, world)
    assert used == [] and "no DBN header" in dict(left_out)[key]


def tick(defs, instance, cursor):
    context = dg.build_sensor_context(instance=instance, cursor=cursor, definitions=defs)
    return defs.resolve_sensor_def("new_files")(context)  # evaluate_tick would need the instance of a daemon


def report(instance, events):
    for event in events:
        instance.report_runless_asset_event(event)


def status(defs, instance, key):
    resolver = CachingStaleStatusResolver(
        instance=instance, asset_graph=defs.resolve_asset_graph(), loading_context=LoadingContextForTest(instance)
    )
    return resolver.get_status(dg.AssetKey("es_snapshots"), key)


def test_a_replaced_file_makes_its_snapshots_stale_and_is_run_again(home):
    defs, instance, world = home
    key = key_of(world, "a")
    first = tick(defs, instance, None)
    second = tick(defs, instance, first.cursor)
    report(instance, second.asset_events)
    assert {e.partition for e in second.asset_events} == set(world.source_files())
    assert all("schema" in e.metadata and "sha256" in e.metadata for e in second.asset_events)
    assert run(home, key).success
    before = gates.current(instance, "es_snapshots", key).data_version
    assert status(defs, instance, key) == StaleStatus.FRESH
    made.write_mbp(world.source_file(key), records(80))
    third = tick(defs, instance, second.cursor)  # it may still grow
    assert key not in {r.partition_key for r in third.run_requests}
    fourth = tick(defs, instance, third.cursor)
    report(instance, fourth.asset_events)
    assert [e.partition for e in fourth.asset_events] == [key]
    assert status(defs, instance, key) == StaleStatus.STALE
    runs = {r.partition_key: r.run_key for r in fourth.run_requests}
    assert runs[key] not in {r.run_key for r in second.run_requests}
    assert run(home, key).success
    assert gates.current(instance, "es_snapshots", key).data_version != before
    assert status(defs, instance, key) == StaleStatus.FRESH


def test_an_unreadable_file_does_not_stop_the_sensor(home):
    defs, instance, world = home
    (world.settings.data_dir / "c.dbn").write_bytes(b"not market data")
    seen = tick(defs, instance, tick(defs, instance, None).cursor)
    assert len(seen.run_requests) == 3 and len(seen.dynamic_partitions_requests[0].partition_keys) == 1
    problems = [e.metadata["problem"].value for e in seen.asset_events if "problem" in e.metadata]
    assert len(problems) == 1 and "no DBN header" in problems[0]


def test_event_clock_snapshots_are_made_and_no_fold_takes_them(home):
    _, instance, world = home
    settings = dataclasses.replace(world.settings, data=DataSettings(clock="event"))
    defs, key = build(settings), key_of(world, "a")
    assert run((defs, instance, world), key).success
    assert open_snapshots(world.layout.snapshots(key)).schema.metadata[b"grid_ms"] == b"0"
    (problem,) = lineage.problems_of(run((defs, instance, world), "fold_0", "folds_job"))
    assert "data.clock is event" in problem.text and problem.exit_code == 2
    back = build(world.settings)  # the clock set back, the snapshots not made again
    (problem,) = lineage.problems_of(run((back, instance, world), "fold_0", "folds_job"))
    assert f"{key}: decoded on the event clock" in problem.text


def test_a_source_is_hashed_again_once_it_was_written_whatever_its_time_says(home, monkeypatch):
    _, _, world = home
    path = world.source_file(key_of(world, "a"))
    before, stat, raw = world.source_sha256(path), path.stat(), path.read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr(storage, "file_sha256", lambda _: pytest.fail("hashed again"))
        assert world.source_sha256(path) == before
    time.sleep(0.02)  # the clock of a file system may be that coarse
    path.write_bytes(raw[:-1] + bytes([raw[-1] ^ 1]))
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert world.source_sha256(path) == hashlib.sha256(path.read_bytes()).hexdigest() != before


def test_the_lead_by_volume_is_told_by_earlier_files_and_remade_when_they_change(home):
    _, instance, world = home
    settings = dataclasses.replace(world.settings, data=DataSettings(instrument_mode="volume"))
    here = World(settings)
    late = made.write_mbp(here.settings.data_dir / "d.synthetic.dbn", records(day=4))
    assert [v.first for v in market.earlier_volumes(here, late)] == [T0], "the cut file tells nothing"
    key = key_of(here, "d")
    defs = build(settings)
    register_files(instance, [key])
    assert run((defs, instance, here), key).success
    first = storage.read_json(here.layout.snapshots(key) / storage.MANIFEST)["inputs"]["volume"]
    made.write_mbp(here.settings.data_dir / "a.synthetic.mbp-10.dbn.zst", records(70))
    assert run((defs, instance, here), key).success
    assert storage.read_json(here.layout.snapshots(key) / storage.MANIFEST)["inputs"]["volume"] != first


def test_a_second_process_on_the_same_file_stops_and_says_who_holds_it(home):
    _, _, world = home
    key = key_of(world, "a")
    lock = world.layout.work / "locks" / f"snapshots-{key}.lock"
    with storage.lock(lock, "a decode"):
        (problem,) = lineage.problems_of(run(home, key))
    assert f"held by process {os.getpid()}" in problem.text and problem.exit_code == 2
    assert sources.held(world) == {}, "the file is not at fault"
    assert run(home, key).success


def test_a_full_disk_says_so_in_one_line_and_leaves_nothing(home, monkeypatch):
    """The rows go to /dev/full, where the kernel answers every write with ENOSPC."""
    _, _, world = home
    key, real = key_of(world, "a"), snapshots.decode

    def decode(path, out, *args, **kwargs):
        (out / "snapshots.arrow").symlink_to("/dev/full")
        return real(path, out, *args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(snapshots, "decode", decode)
        (problem,) = lineage.problems_of(run(home, key))
    assert "no space left on the disk" in problem.text and "FOXHUNT_HOME" in problem.text and problem.exit_code == 2
    assert list((world.settings.home / "snapshots").iterdir()) == [] and sources.held(world) == {}
    assert run(home, key).success


def _decode_slowly(folder, started):
    """Fill a folder and then hang, as a decode of a large file would."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job inherits that it is ignored

    def write(out):
        snapshots.decode(folder / "data" / "a.synthetic.mbp-10.dbn.zst", out, contract("ES"), 250)
        started.set()
        time.sleep(60)

    storage.build_folder(folder / "snapshots" / "k", write, lambda out: None, folder / "quarantine", {})


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_a_decode_that_is_stopped_leaves_nothing_behind(home, tmp_path, how):
    context = multiprocessing.get_context("spawn")
    started = context.Event()
    process = context.Process(target=_decode_slowly, args=(tmp_path, started))
    process.start()
    assert started.wait(60)
    os.kill(process.pid, how)
    process.join(30)
    assert process.exitcode not in (None, 0)
    left = [p.name for p in (tmp_path / "snapshots").iterdir()]
    assert "k" not in left, "a reader opens only committed folders"
    if how == signal.SIGKILL:  # nobody could tidy up: the next decode of the file does
        assert len(left) == 1
        storage.sweep(tmp_path / "snapshots" / "k")
    assert list((tmp_path / "snapshots").iterdir()) == []


def test_the_next_decode_sweeps_what_a_killed_one_left(home):
    _, _, world = home
    key = key_of(world, "a")
    left = world.settings.home / "snapshots" / f".{key}.4242.abcdef01"
    left.mkdir(parents=True)
    (left / "snapshots.arrow").write_bytes(b"half")
    other = world.settings.home / "snapshots" / ".another-key.4242.abcdef01"
    other.mkdir()
    assert run(home, key).success
    assert not left.exists() and other.exists()
