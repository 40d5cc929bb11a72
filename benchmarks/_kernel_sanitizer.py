"""compute-sanitizer over every case of the kernels' tests, and over a planted fault that each tool must find."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import torch

from kernels import build

TOOLS = ("memcheck", "initcheck", "racecheck", "synccheck")
# Faults planted for the tools: a check that cannot fail shows nothing.
PLANTED = {
    "memcheck": "reads_past_the_end", "initcheck": "reads_unwritten", "racecheck": "missing_barrier",
    "synccheck": "diverging_barriers",
}  # fmt: skip
FAULTS = Path(__file__).resolve().parent.parent / "tests/kernels/shim/faults/others.cu"


def run_cases() -> None:
    """Every case of the tests once, for a tool to watch."""
    from tests.kernels.cases import CASES, made

    for name, case in CASES.items():
        case.call({key: x.cuda() for key, x in made(name).items()})
    torch.cuda.synchronize()


def run_planted(function: str) -> None:
    """One planted fault, for a tool to find."""
    build.source_path = lambda family: FAULTS
    x, out = torch.empty(64, device="cuda"), torch.empty(64, device="cuda")
    args: tuple[build.Argument, ...] = {"reads_past_the_end": (x, 64, out), "diverging_barriers": (out,)}.get(
        function, (x, out)
    )
    build.launch("planted", function, (1,), (64,), *args)
    torch.cuda.synchronize()


def sanitize(tool: str, log: Path) -> dict[str, Any]:
    """A tool over every case, then over its planted fault. Its findings count by the kernel they name: torch's own
    kernels run under it too. Every tensor gets an allocation of its own, or its neighbours would hide an overrun."""
    clean, found = _watched(tool, "--cases"), _watched(tool, "--planted", PLANTED[tool])
    log.write_text(clean.pop("log") + "\n---- planted\n" + found.pop("log"), encoding="utf-8")
    return {"cases": clean, "planted": {"fault": PLANTED[tool], **found}}


def _watched(tool: str, *what: str) -> dict[str, Any]:
    command = ["compute-sanitizer", "--tool", tool, "--print-limit", "50"]
    command += [sys.executable, "-m", "benchmarks.gpu_kernels", *what]
    begin = time.perf_counter()
    done = subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, "PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
    )
    log = done.stdout + done.stderr
    ours = {n for f in build.families() for n in build.signatures(build.source_path(f))} | set(PLANTED.values())
    named = Counter(re.findall(r"\bat (?:void )?(\w+)[^\n]*?\+0x", log))
    return {
        "exit": done.returncode, "ours": sum(n for name, n in named.items() if name in ours), "named": dict(named),
        "summary": " ".join(re.findall(r"\w* ?SUMMARY: (.*)", log)), "seconds": time.perf_counter() - begin, "log": log,
    }  # fmt: skip
