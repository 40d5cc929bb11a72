"""The words a comparison may end with, what each file of it gave, and how that reads as JSON and as text."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

Verdict = Literal["PASS", "DIVERGED", "INCOMPLETE", "NOT_COMPARABLE", "ERROR"]
# PASS: everything the contract names was there and bit-equal. DIVERGED: some bit differs. INCOMPLETE: something
# was missing, unknown, torn or empty. NOT_COMPARABLE: the two are not runs of one identity. ERROR: no answer.
EXIT_CODES: dict[Verdict, int] = {"PASS": 0, "DIVERGED": 1, "INCOMPLETE": 2, "NOT_COMPARABLE": 3, "ERROR": 4}


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """The one with the highest exit code; PASS of none."""
    return max(verdicts, key=EXIT_CODES.__getitem__, default="PASS")


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong, and the verdict it alone would give."""

    verdict: Verdict
    text: str


@dataclass(frozen=True)
class FileResult:
    """One artefact. compared: how many units of it were compared. remarks: seen and harmless.

    detail: numbers behind the findings (JSON values only).
    """

    file: str
    judge: str
    compared: int = 0
    unit: str = ""
    findings: tuple[Finding, ...] = ()
    remarks: tuple[str, ...] = ()
    detail: dict[str, Any] = field(default_factory=dict)

    @property
    def verdict(self) -> Verdict:
        return worst(f.verdict for f in self.findings)


@dataclass(frozen=True)
class Culprit:
    """Where two runs first part, among what was compared. step and leaf: of a diagnostics row; stage: its producer."""

    file: str
    text: str
    step: int | None = None
    leaf: str = ""
    stage: str = ""


@dataclass(frozen=True)
class Comparison:
    """Two runs, whole. findings: about the folders; the files carry their own."""

    a: str
    b: str
    files: tuple[FileResult, ...] = ()
    findings: tuple[Finding, ...] = ()
    culprit: Culprit | None = None

    @property
    def compared(self) -> tuple[FileResult, ...]:
        """Files whose content was compared; identity and ignored files prove nothing alone."""
        return tuple(f for f in self.files if f.compared and f.judge not in ("identity", "ignored"))

    @property
    def verdict(self) -> Verdict:
        verdicts = [f.verdict for f in self.files] + [f.verdict for f in self.findings]
        return worst(verdicts if self.compared else [*verdicts, "INCOMPLETE"])

    @property
    def exit_code(self) -> int:
        return EXIT_CODES[self.verdict]

    def to_json(self) -> dict[str, Any]:
        return {
            "verdict": self.verdict,
            "exit_code": self.exit_code,
            "a": self.a,
            "b": self.b,
            "culprit": dataclasses.asdict(self.culprit) if self.culprit else None,
            "findings": [dataclasses.asdict(f) for f in self.findings],
            "coverage": {f.file: f"{f.compared:,} {f.unit}" for f in self.compared},
            "files": [{**dataclasses.asdict(f), "verdict": f.verdict} for f in self.files],
        }

    def text(self) -> str:
        """For a person: the verdict, the culprit, what is wrong, and what was covered."""
        lines = [f"{self.verdict}: {self.a} against {self.b}"]
        if self.culprit:
            lines.append(f"  first among compared: {self.culprit.text}")
        lines += [f"  {f.verdict} {f.text}" for f in self.findings]
        for result in self.files:
            lines += [f"  {f.verdict} {result.file}: {f.text}" for f in result.findings]
            lines += [f"  note {result.file}: {text}" for text in result.remarks]
        lines.append(
            "  compared: " + (", ".join(f"{f.file} ({f.compared:,} {f.unit})" for f in self.compared) or "nothing")
        )
        return "\n".join(lines)
