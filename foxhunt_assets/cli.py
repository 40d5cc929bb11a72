"""The `foxhunt` command. Exit codes: 0 fine, 1 the thing checked failed, 2 incomplete or bad input, 3 not comparable,
4 our own error. What went wrong is one line on stderr that says what to do."""

from __future__ import annotations

import argparse
import errno
import json
import os
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn

from foxhunt_assets.errors import BadInput, FoxhuntError

# Commands import what they need themselves: Dagster, torch and numba take seconds, and --help should not.

# What a place to write to answers when it is none: a fault of where FOXHUNT_HOME or an argument points.
UNUSABLE_PLACE = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EEXIST, errno.ENOSPC, errno.EDQUOT)
DAY_S = 86_400
REMEDY = "free or open that place to this user, or set FOXHUNT_HOME to another"


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; never a traceback."""
    args = parser().parse_args(argv)
    try:
        return args.command(args)
    except FoxhuntError as error:
        print(f"foxhunt: {error}", file=sys.stderr)
        return error.exit_code
    except BrokenPipeError:  # the reader of our output left, e.g. head
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        print("foxhunt: interrupted", file=sys.stderr)
        return 130
    except OSError as error:
        if error.errno in UNUSABLE_PLACE and error.filename:
            print(f"foxhunt: {error.filename}: {error.strerror}; {REMEDY}", file=sys.stderr)
            return 2
        return _own_error(error)
    except Exception as error:
        return _own_error(error)


def _own_error(error: Exception) -> int:
    print(f"foxhunt: our own error, {type(error).__name__}: {error}; {_keep_traceback()}", file=sys.stderr)
    return 4


def _keep_traceback() -> str:
    from foxhunt_assets.settings import home_dir
    from foxhunt_assets.storage import Layout, write_text

    path = Layout(home_dir()).work / "errors" / f"{time.strftime('%Y%m%dT%H%M%S')}-{os.getpid()}.txt"
    try:
        write_text(path, traceback.format_exc())
    except OSError as error:
        return f"its traceback could not be written: {error}"
    return f"please report {path}"


class _Parser(argparse.ArgumentParser):
    """Says what is wrong in one line, as every command does, and leaves the rest to --help."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}; see {self.prog} --help\n")


def parser() -> argparse.ArgumentParser:
    """Every command with its flags."""
    top = _Parser(
        prog="foxhunt",
        description="From order-book files to a trained policy and an evaluation that can be believed.",
        epilog="Everything lies under FOXHUNT_HOME (default ./.foxhunt). "
        "Exit codes: 0 fine, 1 a check failed, 2 bad or missing input, 3 not comparable, 4 our own error.",
    )
    verbs = top.add_subparsers(required=True, metavar="COMMAND")

    def verb(name: str, command: Callable[[argparse.Namespace], int], text: str) -> argparse.ArgumentParser:
        made = verbs.add_parser(name, help=text, description=text)
        made.set_defaults(command=command)
        return made

    demo = verb("demo", _demo, "The whole lineage in minutes: on generated ES data, or on one real file.")
    demo.add_argument("--data", type=Path, metavar="FILE", help="a Databento file (MBO or MBP-10) instead")
    demo.add_argument("--profile", metavar="NAME", help="demo, quick, mid or full, for a new home (default demo)")
    demo.add_argument("--folds", type=int, metavar="N", help="folds of a new home (default 2)")
    synth = verb("synth", _synth, "Write synthetic ES files (DBN v3 MBP-10); the same bytes for the same arguments.")
    synth.add_argument("out", type=Path, help="folder to write into")
    synth.add_argument("--setting", default="planted", help="planted (a known edge) or martingale (none)")
    synth.add_argument("--seed", type=int, default=0, metavar="N", help="another market for each (default 0)")
    synth.add_argument("--sessions", type=int, default=4, metavar="N", help="files, one a trading day (default 4)")
    synth.add_argument(
        "--minutes", type=float, default=10.0, metavar="M", help="of open market in a session, up to 1380 (default 10)"
    )
    synth.add_argument("--parent", action="store_true", help="the next month and the calendar spread in each file too")
    synth.add_argument("--thin", action="store_true", help="spells in which a side of the book is thin or empty")
    look = verb("inspect", _inspect, "What is in a market file, and whether one can train on it.")
    look.add_argument("file", type=Path, help="DBN, Databento CSV, LOBSTER, or the folder of a batch download")
    look.add_argument("--json", action="store_true", help="everything, for a program; docs/market.md names the keys")
    look.add_argument(
        "--gap", type=_whole(1, DAY_S), default=60, metavar="S", help="list silences over S seconds (default 60)"
    )
    contract = verb("contract", _contract, "Print a contract, one path a line.")
    contract.add_argument("name", choices=["diag"], help="diag: leaves of diag.jsonl")
    contract.add_argument("--all", action="store_true", help="planned leaves too, not only those in every row")
    validate = verb("validate", _validate, "Hold a run folder to its contracts again.")
    validate.add_argument("run", help="run id (a prefix is enough), or a train or eval-* folder")
    compare = verb("compare", _compare, "Compare two runs bit by bit.")
    compare.add_argument("a", type=Path)
    compare.add_argument("b", type=Path)
    verb("determinism", _determinism, "Train and evaluate twice in fresh processes and compare every bit.")
    verb("gate", _gate, "Run every check over what is materialised; the exit code is the truth.")
    verb("runs", _runs, "List finished runs.")
    verb("report", _report, "Print where a run's report lies.").add_argument("run", help="run id, or a prefix of it")
    ui = verb("ui", _ui, "Dagster's webserver and daemon on this machine, until interrupted.")
    ui.add_argument("--port", type=_whole(1, 65_535), default=3000, metavar="N", help="to listen on (default 3000)")
    verb("bench", _bench, "Run the benchmarks; they print ratios.")
    return top


def _whole(least: int, most: int) -> Callable[[str], int]:
    """What an option takes: a whole number of least to most."""

    def number(text: str) -> int:
        try:
            found = int(text)
        except ValueError:  # no number, or one of thousands of digits
            found = least - 1
        if not least <= found <= most:
            raise argparse.ArgumentTypeError(f"{text[:20]!r} is no whole number of {least} to {most}")
        return found

    return number


def _demo(args: argparse.Namespace) -> int:
    from foxhunt_assets import demo
    from foxhunt_assets.settings import home_dir

    return demo.run(demo.prepare(home_dir(), args.profile, args.folds), args.data)


def _synth(args: argparse.Namespace) -> int:
    from foxhunt_assets.market import synthetic

    extras = {"parent": args.parent, "thin": args.thin}
    for path in synthetic.write_files(args.out, args.setting, args.seed, args.sessions, args.minutes, **extras):
        print(path)
    return 0


def _inspect(args: argparse.Namespace) -> int:
    from foxhunt_assets.market import inspect, inspect_text

    facts = inspect.inspect(args.file, args.gap)
    print(json.dumps(facts, indent=2) if args.json else inspect_text.text(facts))
    return 0


def _contract(args: argparse.Namespace) -> int:
    from foxhunt_assets.contracts import diag

    for leaf in diag.leaves() if args.all else diag.live_leaves():
        print(leaf.path)
    return 0


def _validate(args: argparse.Namespace) -> int:
    from foxhunt_assets import run_folders
    from foxhunt_assets.settings import load

    settings = load()
    code = 0
    for folder in run_folders.named(settings.home, args.run):
        faults = run_folders.faults(folder, settings.data.root)
        print(f"{'FAIL' if faults else 'pass'}  {folder}")
        for fault in faults:
            print(f"      {fault}")
            code = 1
    return code


def _compare(args: argparse.Namespace) -> int:
    from foxhunt_assets.determinism.compare import compare_runs

    result = compare_runs(args.a, args.b)
    print(result.text())
    return result.exit_code


def _determinism(args: argparse.Namespace) -> int:
    from foxhunt_assets import gates, lineage
    from foxhunt_assets.build import build
    from foxhunt_assets.determinism.verdict import EXIT_CODES
    from foxhunt_assets.resources import World
    from foxhunt_assets.settings import load

    settings = load()
    with lineage.commanding(settings) as dagster:
        try:
            lineage.run_job(build(settings), dagster, World(settings), "determinism_job", None)
        except lineage.RunFailed as error:
            if error.exit_code != 1:
                raise
        now = gates.current(dagster, "determinism_verdict", None)
    print((now.folder / "verdict.txt").read_text(encoding="utf-8"), end="")
    return EXIT_CODES[now.metadata["verdict"]]


def _gate(args: argparse.Namespace) -> int:
    from foxhunt_assets import gate
    from foxhunt_assets.settings import load

    settings = load()
    lines = gate.run(settings)
    for line in lines:
        print(line)
    ran = sum(line.outcome in ("pass", "FAIL") for line in lines)
    if not ran:
        raise BadInput(f"{settings.home}: nothing is materialised, so no check ran; run foxhunt demo first")
    code = gate.exit_code(lines)
    print(f"{ran} checks ran, {sum(line.outcome == 'FAIL' for line in lines)} failed; exit {code}")
    return code


def _runs(args: argparse.Namespace) -> int:
    from foxhunt_assets import run_folders
    from foxhunt_assets.settings import home_dir

    lines = run_folders.listing(home_dir())
    if not lines:
        raise BadInput(f"{home_dir()}: no finished run; run foxhunt demo first")
    print("\n".join(lines))
    return 0


def _report(args: argparse.Namespace) -> int:
    from foxhunt_assets import run_folders
    from foxhunt_assets.settings import home_dir

    for path in run_folders.reports(home_dir(), args.run):
        print(path)
    return 0


def _ui(args: argparse.Namespace) -> int:
    from foxhunt_assets import ui
    from foxhunt_assets.settings import load

    return ui.serve(load(), args.port)


def _bench(args: argparse.Namespace) -> int:
    folder = Path(__file__).resolve().parent.parent / "benchmarks"
    scripts = sorted(p for p in folder.glob("*.py") if not p.name.startswith("_"))
    if not scripts:
        raise BadInput(f"{folder}: no benchmarks here; run this from a checkout")
    failed, idle = [], []
    for script in scripts:
        print(f"== {script.name}", flush=True)
        module = [sys.executable, "-m", f"{folder.name}.{script.stem}"]
        code = subprocess.run(module, cwd=folder.parent, check=False).returncode
        if code == 2:  # it has said what is missing here
            idle.append(script.name)
        elif code:
            failed.append(script.name)
    if idle:
        print(f"foxhunt: {', '.join(idle)} could measure nothing here", file=sys.stderr)
    if failed:
        print(f"foxhunt: {', '.join(failed)} did not finish", file=sys.stderr)
    return 4 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
