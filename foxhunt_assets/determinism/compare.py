"""Compare two finished runs on bits, tolerance zero, artefact by artefact as contracts.sameness says.

A PASS says what it covered. What is missing, unknown, torn or empty is INCOMPLETE and named; two runs of other
code, configuration, inputs or seed are NOT_COMPARABLE; a folder compared with itself, and every failure of the
comparison, is ERROR.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from foxhunt_assets import storage
from foxhunt_assets.contracts import diag
from foxhunt_assets.contracts.sameness import EVAL_RUN, TRAIN_RUN, Sameness
from foxhunt_assets.determinism.judges import judge
from foxhunt_assets.determinism.verdict import Comparison, Culprit, FileResult, Finding
from foxhunt_assets.errors import FoxhuntError

# Where a step first parts: inputs, then forward, then reward, then gradients. Among the leaves that differ in the
# first differing row, the earliest of these is the origin and the others received it.
CAUSAL_ORDER = (
    "checksums.batch_inputs", "encoder.h_t_digest32", "pi.logits_digest32", "iqn.tau_digest32",
    "rewards.raw_digest32", "grad_trunk.combined_digest32", "checksums.grads",
)  # fmt: skip

DERIVED = ("report-", "verdict-")  # folders beside the evaluation they are made from


def compare_runs(a: Path, b: Path) -> Comparison:
    """Two runs: folders that hold `train` and `eval-*`, or two of those themselves. Never raises."""
    try:
        return _compare(a, b)
    except Exception as error:  # a traceback would exit 1, which means "diverged"
        return Comparison(str(a), str(b), findings=(Finding("ERROR", f"{type(error).__name__}: {error}"),))


def _compare(a: Path, b: Path) -> Comparison:
    lacking = [Finding("INCOMPLETE", f"{p}: no such folder") for p in (a, b) if not p.is_dir()]
    if lacking:
        return Comparison(str(a), str(b), findings=tuple(lacking))
    if os.path.samefile(a, b):
        return Comparison(str(a), str(b), findings=(Finding("ERROR", f"{a} and {b} are one folder"),))
    entries = sorted(set(os.listdir(a)) | set(os.listdir(b)))
    phases = [name for name in entries if name == "train" or name.startswith("eval-")]
    phases.sort(key=lambda name: (name != "train", name))  # an evaluation inherits what its training differs in
    if not phases:
        files, findings = compare_folder(a, b, "")
        return Comparison(str(a), str(b), tuple(files), tuple(findings), culprit_of(files))
    others = [name for name in entries if name not in phases]
    derived = [name for name in others if name.startswith(DERIVED)]
    files = [FileResult(n, "ignored", remarks=("derived from its evaluation, not compared",)) for n in derived]
    findings = [Finding("INCOMPLETE", f"{n}: not part of a run, not compared") for n in others if n not in derived]
    for phase in phases:
        if absent := [str(side) for side in (a, b) if not (side / phase).is_dir()]:
            findings.append(Finding("INCOMPLETE", f"{phase}: missing in {' and '.join(absent)}"))
            continue
        more_files, more_findings = compare_folder(a / phase, b / phase, f"{phase}/")
        files += more_files
        findings += more_findings
    return Comparison(str(a), str(b), tuple(files), tuple(findings), culprit_of(files))


def compare_folder(a: Path, b: Path, prefix: str) -> tuple[list[FileResult], list[Finding]]:
    """Every artefact of two train or two eval folders; `prefix` goes before each file's name."""
    names = [{p.relative_to(side).as_posix() for p in side.rglob("*") if not p.is_dir()} for side in (a, b)]
    kinds = [_kind(side) for side in names]
    if None not in kinds and kinds[0] is not kinds[1]:
        return [], [Finding("NOT_COMPARABLE", f"{prefix or a}: a training on one side, an evaluation on the other")]
    contract = kinds[0] or kinds[1]
    if contract is None:
        return [], [Finding("INCOMPLETE", f"{prefix or a}: holds no artefact of a run; nothing was compared")]
    known = {rule.file for rule in contract}
    findings = [
        Finding("INCOMPLETE", f"{prefix}{name}: unknown file, not compared")
        for name in sorted(names[0] | names[1])
        if name not in known
    ]
    findings += _uncommitted(a, prefix, "A") + _uncommitted(b, prefix, "B")
    return [_file(a, b, rule, prefix) for rule in contract], findings


def culprit_of(files: Sequence[FileResult]) -> Culprit | None:
    """Where the runs first part: a diagnostics row of the first phase that differs, else the first differing file."""
    diverged = [f for f in files if any(finding.verdict == "DIVERGED" for finding in f.findings)]
    rows = [f for f in diverged if f.judge == "json_lines" and f.detail["first_leaves"]]
    if rows:
        step, leaves = rows[0].detail["first_step"], rows[0].detail["first_leaves"]
        leaf = next((leaf for leaf in CAUSAL_ORDER if leaf in leaves), leaves[0])
        stage = next((known.producer for known in diag.leaves() if known.path == leaf), "")
        others = f" and {len(leaves) - 1} more leaves" if len(leaves) > 1 else ""
        by = f", stage {stage}" if stage else ""
        start = rows[0].detail["steps"][0]
        text = f"{rows[0].file} step {step} (compared from step {start}), {leaf}{by}{others}"
        return Culprit(rows[0].file, text, step, leaf, stage)
    if diverged:
        first = next(finding.text for finding in diverged[0].findings if finding.verdict == "DIVERGED")
        return Culprit(diverged[0].file, f"{diverged[0].file}: {first}")
    return None


def _kind(names: set[str]) -> tuple[Sameness, ...] | None:
    """The contract whose own files (those the other has not) are there; train wins a folder that holds both."""
    train, evaluation = ({rule.file for rule in contract} for contract in (TRAIN_RUN, EVAL_RUN))
    if names & (train - evaluation):
        return TRAIN_RUN
    return EVAL_RUN if names & (evaluation - train) else None


def _file(a: Path, b: Path, rule: Sameness, prefix: str) -> FileResult:
    name, path_a, path_b = prefix + rule.file, a / rule.file, b / rule.file
    absent = [side for side, path in (("A", path_a), ("B", path_b)) if not path.is_file()]
    if absent:
        return FileResult(name, rule.judge, findings=(Finding("INCOMPLETE", f"missing in {' and '.join(absent)}"),))
    if os.path.samefile(path_a, path_b):
        return FileResult(name, rule.judge, findings=(Finding("ERROR", "one and the same file on both sides"),))
    try:
        return judge(name, rule, path_a, path_b)
    except Exception as error:  # one unreadable file must not hide what the others say
        return FileResult(name, rule.judge, findings=(Finding("ERROR", f"{type(error).__name__}: {error}"),))


def _uncommitted(folder: Path, prefix: str, side: str) -> list[Finding]:
    """A folder that no longer is what its own manifest says it committed."""
    if not (folder / storage.MANIFEST).is_file():
        return []  # reported as a missing file
    try:
        storage.verify(folder)
    except FoxhuntError as error:
        return [Finding("INCOMPLETE", f"{prefix or side}: {error}")]
    return []
