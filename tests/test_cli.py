"""The `foxhunt` command: exit codes, one line on stderr, no traceback, and what each verb says."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import dagster as dg
import pytest
from dagster._core.errors import DagsterExecutionInterruptedError

from foxhunt_assets import cli, demo, gate, lineage, resources, run_folders, storage, ui
from foxhunt_assets.contracts import diag
from foxhunt_assets.errors import BadInput, ContractBroken, NotComparable
from foxhunt_assets.market import synthetic
from foxhunt_assets.settings import Settings, load
from tests.trainer.fold_by_hand import TINY

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("FOXHUNT_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("FOXHUNT_DATA_DIR", raising=False)
    return tmp_path / "home"


def run(capsys, *argv):
    code = cli.main(argv)
    out, err = capsys.readouterr()
    return code, out, err


@pytest.mark.parametrize(("error", "code"), [(BadInput("x"), 2), (ContractBroken("x"), 1), (NotComparable("x"), 3)])
def test_a_user_s_error_is_one_line_and_its_exit_code(capsys, home, monkeypatch, error, code):
    def raises(args):
        raise error

    monkeypatch.setattr(cli, "_runs", raises)
    found, out, err = run(capsys, "runs")
    assert (found, out, err) == (code, "", "foxhunt: x\n")


def test_our_own_error_is_exit_4_with_the_traceback_in_a_file(capsys, home, monkeypatch):
    def raises(args):
        raise RuntimeError("a bug")

    monkeypatch.setattr(cli, "_runs", raises)
    code, _, err = run(capsys, "runs")
    assert code == 4 and err.count("\n") == 1 and "Traceback" not in err
    (report,) = (home / "work" / "errors").iterdir()
    assert str(report) in err and "RuntimeError: a bug" in report.read_text()


@pytest.mark.parametrize("argv", [("demo",), ("gate",)])
def test_a_home_that_is_no_folder_is_bad_input(capsys, home, argv):
    home.write_text("a file")
    code, _, err = run(capsys, *argv)
    assert (code, err.count("\n")) == (2, 1) and str(home) in err and "set FOXHUNT_HOME to another" in err


@pytest.mark.parametrize(
    ("flag", "value"), [("--profile", "huge"), ("--folds", "101"), ("--folds", "0"), ("--folds", "-1")]
)
def test_a_slip_on_the_command_line_leaves_no_settings_behind(capsys, home, flag, value):
    code, _, err = run(capsys, "demo", flag, value)
    assert code == 2 and value in err and not home.exists()


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        ([], "required: COMMAND"),
        (["nonsense"], "'nonsense'"),
        (["contract", "other"], "'other'"),
        (["demo", "--folds", "two"], "--folds"),
        (["inspect", "x", "--gap", "0"], "--gap: '0' is no whole number of 1 to 86400"),
        (["inspect", "x", "--gap", "-1"], "--gap: '-1'"),
        (["inspect", "x", "--gap", "nan"], "--gap: 'nan'"),
        (["inspect", "x", "--gap", "1e3"], "--gap: '1e3'"),
        (["inspect", "x", "--gap", "9" * 5_000], "--gap: '99999999999999999999' is no whole number"),
        (["ui", "--port", "0"], "--port: '0' is no whole number of 1 to 65535"),
        (["ui", "--port", "65536"], "--port: '65536'"),
        (["synth", "x", "--minutes", "ten"], "--minutes"),
        (["synth", "x", "--sessions", "1.5"], "--sessions"),
    ],
)
def test_arguments_that_make_no_sense_are_one_line_and_exit_2(capsys, home, argv, says):
    with pytest.raises(SystemExit) as stop:
        cli.main(argv)
    err = capsys.readouterr().err
    assert stop.value.code == 2 and says in err and err.count("\n") == 1 and "--help" in err


@pytest.mark.parametrize(
    ("flag", "value"),
    [
        ("--sessions", "0"), ("--sessions", "-3"), ("--sessions", "2501"), ("--sessions", "100000"),
        ("--minutes", "0"), ("--minutes", "-1"), ("--minutes", "nan"), ("--minutes", "inf"), ("--minutes", "1e-9"),
        ("--minutes", "1381"), ("--seed", "-1"), ("--seed", str(2**63)),
    ],
)  # fmt: skip
def test_numbers_that_synth_cannot_use_are_named_in_one_line_and_write_nothing(capsys, home, tmp_path, flag, value):
    code, out, err = run(capsys, "synth", str(tmp_path / "s"), "--sessions", "1", "--minutes", "0.02", flag, value)
    assert (code, out) == (2, "") and err.startswith(f"foxhunt: {flag[2:]} ") and err.count("\n") == 1
    assert not (tmp_path / "s").exists()


def test_the_least_and_the_greatest_numbers_that_synth_takes_make_files(capsys, home, tmp_path):
    least = ("--sessions", "1", "--minutes", "0.0167", "--seed", str(2**63 - 1))
    code, out, _ = run(capsys, "synth", str(tmp_path), *least)
    assert code == 0 and Path(out.strip()).is_file()
    assert len(synthetic._trading_days(synthetic.FIRST_DAY, synthetic.MAX_SESSIONS + 1)) == 2_501


def test_every_verb_has_a_help_text(capsys):
    verbs = ("demo", "synth", "inspect", "contract", "validate", "compare", "determinism", "gate", "runs", "report")
    for verb in (*verbs, "ui", "bench"):
        with pytest.raises(SystemExit) as stop:
            cli.main([verb, "--help"])
        assert stop.value.code == 0
        assert len(capsys.readouterr().out) > 100


def test_contract_prints_live_leaves_and_all_712(capsys, home):
    code, out, _ = run(capsys, "contract", "diag")
    assert code == 0 and out.split() == [leaf.path for leaf in diag.live_leaves()]
    code, out, _ = run(capsys, "contract", "diag", "--all")
    assert code == 0 and len(set(out.split())) == 712


def test_an_output_that_nobody_reads_is_no_error():
    shell = f"{sys.executable} -m foxhunt_assets.cli contract diag --all | head -1; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", shell], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.split()[-1] == "0" and done.stderr == ""


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["runs"], "no finished run"),
        (["report", "abc"], "no run of id 'abc'"),
        (["validate", "abc"], "no run of id 'abc'"),
        (["inspect", "/nowhere.dbn"], "/nowhere.dbn"),
        (["demo", "--data", "/nowhere.dbn.zst"], "no such file"),
        (["demo", "--data", __file__], "not a Databento file by its name"),
        (["gate"], "no check ran"),
        (["demo", "--profile", "enormous"], "unknown profile"),
    ],
)
def test_what_is_missing_or_wrong_is_named(capsys, home, argv, says):
    code, _, err = run(capsys, *argv)
    assert code == 2 and says in err and err.count("\n") == 1


def test_flags_never_contradict_the_file(capsys, home):
    assert demo.prepare(home, "quick", 3).training.profile == "quick"
    settings = demo.prepare(home, None, None)
    assert (settings.training.profile, settings.folds.n_folds) == ("quick", 3)
    with pytest.raises(BadInput, match="says 3, --folds says 2"):
        demo.prepare(home, None, 2)
    assert load().hash == settings.hash


def test_a_real_file_is_linked_under_its_own_name_and_never_mixed(home, tmp_path):
    file = tmp_path / "es.mbo.dbn.zst"
    file.write_bytes(b"x")
    folder = home / "data"
    for _ in range(2):  # again is fine
        demo.link_file(file, folder, list(folder.glob("*")))
    assert (folder / file.name).resolve() == file.resolve() and len(list(folder.iterdir())) == 1
    other = tmp_path / "other.dbn"
    other.write_bytes(b"y")
    with pytest.raises(BadInput, match="another FOXHUNT_HOME"):
        demo.link_file(other, folder, list(folder.glob("*")))


@pytest.mark.parametrize("make", [lambda p: p.symlink_to(p.parent / "gone"), os.mkfifo])
def test_a_source_without_bytes_is_refused_by_name_and_not_waited_for(home, make):
    (home / "data").mkdir(parents=True)
    make(home / "data" / "x.dbn")
    (home / "data" / "folder.dbn").mkdir()  # a folder is no source, whatever it is called
    world = resources.World(load())
    (path,) = world.source_files().values()
    with pytest.raises(BadInput, match=r"x\.dbn: a broken link, a pipe or a device"):
        world.source_sha256(path)


def test_a_hidden_file_is_no_source(home, monkeypatch):
    (home / "data").mkdir(parents=True)
    (home / "data" / ".x.dbn").write_bytes(b"half a download")
    monkeypatch.setenv("FOXHUNT_DATA_DIR", str(home / "data"))
    with pytest.raises(BadInput, match="no Databento file"):
        demo.prepare_data(load(), None, print)


def test_a_file_that_the_manifest_does_not_name_is_a_stranger(tmp_path):
    folder = tmp_path / "x"
    storage.build_folder(folder, lambda out: storage.write_json(out / "a.json", 1), lambda out: None, tmp_path, {})
    assert storage.strangers(folder) == []
    (folder / "notes.txt").write_text("hi")
    assert storage.strangers(folder) == ["notes.txt"]


def test_an_empty_data_folder_that_was_named_is_refused_and_not_filled(home, tmp_path, monkeypatch):
    monkeypatch.setenv("FOXHUNT_DATA_DIR", str(tmp_path / "mine"))
    with pytest.raises(BadInput, match="no Databento file"):
        demo.prepare_data(load(), None, lambda text: None)
    assert not (tmp_path / "mine").exists()


def line(outcome, asset="diag"):
    return gate.Line(outcome, asset, "fold_0|0", "c")


@pytest.mark.parametrize(
    ("outcomes", "code"),
    [([], 2), (["pass"], 0), (["pass", "MISSING"], 2), (["MISSING"], 2), (["pass", "FAIL", "MISSING"], 1),
     (["pass", "FAIL", "CRASH"], 4)],
)  # fmt: skip
def test_the_gate_is_never_green_without_a_pass_of_everything(outcomes, code):
    assert gate.exit_code([line(o) for o in outcomes]) == code


def finished(home, run_id):
    folder = home / "runs" / "fold_0" / "0" / run_id / "train"
    summary = {
        "run_id": run_id, "fold": "fold_0", "seed": 0, "n_steps": 7, "total_trades": 2, "realized_pnl_usd_cum": -1.5,
        "synthetic": True,
    }  # fmt: skip
    storage.write_json(folder / "train_summary.json", summary)
    return folder.parent


def test_runs_are_listed_and_found_by_the_start_of_their_id(capsys, home):
    first = finished(home, "aa" * 8)
    finished(home, "ab" * 8)
    code, out, _ = run(capsys, "runs")
    assert code == 0 and len(out.splitlines()) == 2 and "-1.50 USD  synthetic" in out
    assert run_folders.one_run(home, "aa") == first
    for name, says in (("a", "2 runs"), ("zz", "no run"), ("", "no run")):
        with pytest.raises(BadInput, match=says):
            run_folders.one_run(home, name)


def test_a_folder_that_is_no_run_is_refused(home, tmp_path):
    with pytest.raises(BadInput, match="holds neither"):
        run_folders.faults(tmp_path, "ES")


def test_bench_reports_a_benchmark_that_fails(capsys, home, monkeypatch, tmp_path):
    package = tmp_path / "foxhunt_assets"
    (tmp_path / "benchmarks").mkdir()
    monkeypatch.setattr(cli, "__file__", str(package / "cli.py"))
    assert run(capsys, "bench")[0] == 2
    (tmp_path / "benchmarks" / "a.py").write_text("print(1)")
    assert run(capsys, "bench")[0] == 0
    (tmp_path / "benchmarks" / "c.py").write_text("raise SystemExit(2)")
    code, _, err = run(capsys, "bench")
    assert code == 0 and "c.py could measure nothing here" in err
    (tmp_path / "benchmarks" / "b.py").write_text("raise SystemExit(3)")
    code, _, err = run(capsys, "bench")
    assert code == 4 and "b.py did not finish" in err


def test_a_second_ui_of_one_home_is_refused_with_the_pid_of_the_first(home):
    with storage.lock(home / "work" / "ui.pid", "x"), pytest.raises(BadInput, match=str(os.getpid())):
        ui.serve(Settings(home=home), 3999)


def tiny_home(home: Path, n_folds: int = 2, **run_overrides: int) -> dict[str, str]:
    """A home whose foxhunt.toml makes every run tiny; the environment that uses it."""
    lines = ["[folds]", f"n_folds = {n_folds}", "[training]", 'device = "cpu"']
    for name, values in (TINY | {"run": TINY["run"] | run_overrides}).items():
        lines.append(f"[training.overrides.{name}]")
        lines += [f"{key} = {json.dumps(value)}" for key, value in values.items()]
    storage.write_text(home / "foxhunt.toml", "\n".join(lines) + "\n")
    return {**os.environ, "FOXHUNT_HOME": str(home), "PYTHONPATH": str(ROOT)}


@pytest.mark.slow
def test_the_demo_end_to_end_then_validate_report_and_the_gate(capfd, home, tmp_path, monkeypatch):
    """Small, but everything real: files, decoding, training, evaluation, verdicts, twin, gate."""

    def foxhunt(*argv, code=0):
        found, out, err = run(capfd, *argv)
        assert found == code, f"{argv}: exit {found}\n{out[-3000:]}\n{err[-3000:]}"
        return out + err

    tiny_home(home)
    data = tmp_path / "generated"
    foxhunt("synth", str(data), "--sessions", "4", "--minutes", "1")
    (data / "broken.dbn").write_bytes(b"not DBN at all")  # refused, listed, and in nobody's way
    monkeypatch.setenv("FOXHUNT_DATA_DIR", str(data))
    out = foxhunt("demo")
    assert "refused: snapshots broken-dbn" in out and "come from synthetic data" in out
    assert "determinism: PASS on cpu" in out and out.count("  synthetic  ") == 2
    spec = storage.read_json(home / "folds" / "fold_1" / "spec" / "fold_spec.json")
    assert [key for key, _ in spec["quarantined"]] == [storage.source_key("broken.dbn")]
    listed = foxhunt("runs")
    assert listed.count("train  70 steps") == 2 and listed.count("  eval-") == 2
    runs = sorted((home / "runs").glob("*/*/*"))
    assert foxhunt("validate", runs[0].name).count("pass") == 2
    (runs[0] / "train" / "notes.txt").write_text("hi")
    assert "notes.txt: not in the manifest" in foxhunt("validate", runs[0].name, code=1)
    (runs[0] / "train" / "notes.txt").unlink()
    assert "report.md" in foxhunt("report", runs[0].name)
    foxhunt("compare", str(runs[0] / "train"), str(runs[1] / "train"), code=3)
    gated = foxhunt("gate")
    assert "FAIL" not in gated and "MISSING" not in gated and "0 failed; exit 0" in gated
    # one digit changed in one summary: validate and gate both say so
    path = next(runs[0].glob("eval-*/eval_summary.json"))
    path.write_text(path.read_text().replace('"total_pnl_cents": ', '"total_pnl_cents": 1'))
    foxhunt("validate", runs[0].name, code=2)
    assert "FAIL" in foxhunt("gate", code=1)


@pytest.mark.slow
def test_the_real_hour_goes_from_file_to_verdict(capfd, home, real_data):
    """An hour of ES orders: the book rebuilt, folds of blocks, a training, a summary, and nothing called synthetic."""
    tiny_home(home, n_folds=1, n_eval_steps=24)
    file = real_data / "nautilus_trader" / "esh4-glbx-mdp3-20231225.mbo.dbn.zst"
    code, out, err = run(capfd, "demo", "--data", str(file))
    assert code == 0, out[-3000:] + err[-3000:]
    assert "determinism: PASS on cpu" in out and out.count("  market  ") == 1 and "synthetic" not in out
    (decoded,) = home.glob("snapshots/*/decode.json")
    report = storage.read_json(decoded)
    assert (report["event_ends"], report["book_changes"]) == (47_022, 37_064)
    summaries = [storage.read_json(p) for p in home.glob("runs/*/*/*/eval-*/eval_summary.json")]
    assert len(summaries) == 1 and summaries[0]["synthetic"] is False and summaries[0]["n_steps"] == 24


@pytest.mark.slow
def test_the_ui_serves_and_ends_as_a_group(tmp_path):
    env = tiny_home(tmp_path / "home")
    port = 3_900 + os.getpid() % 90
    process = subprocess.Popen(
        [sys.executable, "-m", "foxhunt_assets.cli", "ui", "--port", str(port)], env=env, cwd=ROOT,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        answer = ""
        for _ in range(180):
            try:
                answer = urllib.request.urlopen(f"http://127.0.0.1:{port}/server_info", timeout=5).read().decode()
                break
            except OSError:
                time.sleep(1)
        assert "dagster_webserver_version" in answer
        query = json.dumps({"query": "{ assetNodes { assetKey { path } } }"}).encode()
        request = urllib.request.Request(
            f"http://127.0.0.1:{port}/graphql", query, {"Content-Type": "application/json"}
        )
        nodes = json.loads(urllib.request.urlopen(request, timeout=60).read())["data"]["assetNodes"]
        assert "determinism_verdict" in {node["assetKey"]["path"][0] for node in nodes}
        children = descendants(process.pid)
        assert len(children) >= 3
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline and any(alive(pid) for pid in children):
        time.sleep(0.5)
    assert not [pid for pid in children if alive(pid)]


def descendants(pid: int) -> list[int]:
    out = subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True, check=False).stdout.split()
    return [p for child in out for p in (int(child), *descendants(int(child)))]


def alive(pid: int) -> bool:
    try:
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_an_interrupted_step_is_told_apart_from_a_crash(home):
    def interrupted():
        raise DagsterExecutionInterruptedError()

    @dg.op
    def work():
        interrupted()

    @dg.job
    def only():
        work()

    problem = lineage.problems_of(only.execute_in_process(raise_on_error=False))[0]
    assert problem.exit_code == 130 and problem.text.startswith("interrupted")
