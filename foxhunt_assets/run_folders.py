"""Finished runs on disk, for the command line: which there are, what they say, and what is wrong with them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from foxhunt_assets import storage
from foxhunt_assets.checks import folders
from foxhunt_assets.errors import BadInput


def listing(home: Path) -> list[str]:
    """One line a training and one an evaluation, in fold, seed and id order."""
    lines = []
    for train in _trainings(home):
        s = storage.read_json(train / "train_summary.json")
        data = "synthetic" if s["synthetic"] else "market"
        lines.append(
            f"{s['run_id']}  {s['fold']} seed {s['seed']}  train  {s['n_steps']} steps, {s['total_trades']} trades, "
            f"{s['realized_pnl_usd_cum']:,.2f} USD  {data}"
        )
        for evaluation in evaluations(train.parent):
            e = storage.read_json(evaluation / "eval_summary.json")
            lines.append(
                f"  {evaluation.name}  {e['n_steps']} steps, {e['n_trades']} trades, {e['total_pnl_usd']:,.2f} USD, "
                f"drawdown {e['max_drawdown_usd']:,.2f} USD"
            )
    return lines


def _trainings(home: Path) -> Iterator[Path]:
    for summary in sorted((home / "runs").glob("*/*/*/train/train_summary.json")):
        yield summary.parent


def evaluations(run: Path) -> list[Path]:
    """eval-* folders of a run."""
    return sorted(p.parent for p in run.glob("eval-*/eval_summary.json"))


def one_run(home: Path, name: str) -> Path:
    """The run folder of an id or of the start of one. BadInput where none or several match."""
    found = [train.parent for train in _trainings(home) if train.parent.name.startswith(name)] if name else []
    if len(found) != 1:
        known = ", ".join(train.parent.name for train in _trainings(home)) or "none"
        what = "no run" if not found else f"{len(found)} runs"
        raise BadInput(f"{what} of id {name!r} under {home / 'runs'}; there are: {known}")
    return found[0]


def named(home: Path, name: str) -> list[Path]:
    """Folders that `foxhunt validate` was given: one folder, or the training and evaluations of a run id."""
    if name and Path(name).is_dir():
        return [Path(name).absolute()]
    run = one_run(home, name)
    return [run / "train", *evaluations(run)]


def faults(folder: Path, root: str) -> list[str]:
    """What is wrong with a train or eval-* folder."""
    if (folder / "train_summary.json").is_file():
        found = folders.train_faults(folder, root)
    elif (folder / "eval_summary.json").is_file():
        found = folders.eval_faults(folder, folder.parent / "train", root)
    else:
        raise BadInput(
            f"{folder}: holds neither train_summary.json nor eval_summary.json; give a run id or such a folder"
        )
    return [*found, *(f"{name}: not in the manifest; take it away" for name in storage.strangers(folder))]


def reports(home: Path, name: str) -> list[Path]:
    """Report files of a run."""
    found = sorted(p for p in one_run(home, name).glob("report-*/*") if p.name != storage.MANIFEST)
    if not found:
        raise BadInput(f"run {name} has no report yet; materialise eval_report")
    return found
