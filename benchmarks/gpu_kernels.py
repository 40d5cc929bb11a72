"""The kernels on a GPU: their tests, compute-sanitizer over every one, and their speed against the torch twins.

    python -m benchmarks.gpu_kernels --out report            everything; report.json and the table report.md
    python -m benchmarks.gpu_kernels --only speed --quick    no torch.compile, for a look at a change

A row gives microseconds a call, replayed from a captured graph of 20 calls, or 2 where one takes milliseconds (median
of 20 replays): the kernel, its twin's torch operations, and the twin through torch.compile (default mode), each
captured by hand, so that none pays for Python; beside them one eager call of kernel and twin, host included. The floor
is the bytes a call must move over the bandwidth of a large copy on the same card; small inputs come from the L2 cache
and can be faster than it. A row counts only where kernel and twin agree on its inputs.
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch

from benchmarks._kernel_sanitizer import TOOLS, run_cases, run_planted, sanitize
from benchmarks._kernel_speed import copy_bandwidth, measure
from benchmarks.kernel_rows import rows
from kernels import build


def suite() -> dict[str, Any]:
    """The GPU tests of the kernels."""
    command = [sys.executable, "-m", "pytest", "-q", "-m", "gpu", "tests/kernels/test_devices.py"]
    done = subprocess.run(command, capture_output=True, text=True)
    print(done.stdout[-3000:])
    return {"command": " ".join(command[1:]), "exit": done.returncode, "summary": done.stdout.strip().splitlines()[-1]}


def identity(bandwidth: float) -> dict[str, Any]:
    smi = subprocess.run(
        ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"], capture_output=True, text=True
    )
    return {
        "gpu": smi.stdout.strip(), "torch": torch.__version__, "cuda": torch.version.cuda,
        "python": platform.python_version(), "copy_bytes_per_s": bandwidth, "kernels": build.kernel_hashes(),
    }  # fmt: skip


def speed(bandwidth: float, with_compile: bool) -> tuple[list[dict[str, Any]], list[str]]:
    """The rows that count, and what is wrong with those that do not."""
    found, wrong = [], []
    for row in rows("cuda"):
        try:
            found.append(measure(row, bandwidth, with_compile))
        except (AssertionError, RuntimeError) as error:  # the rest is still worth seeing
            wrong.append(f"{row.name}: {str(error).strip().splitlines()[0]}")
            print(f"no row: {wrong[-1]}", flush=True)
        else:
            print({key: round(x, 2) if isinstance(x, float) else x for key, x in found[-1].items()}, flush=True)
    return found, wrong


def table(measured: list[dict[str, Any]]) -> str:
    """Markdown; ratios are twin over kernel, so above 1 the kernel is faster."""
    lines = [
        "| kernel | floor us | kernel us | twin captured | torch.compile captured | eager: kernel us | eager: twin |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for row in measured:
        us = row["kernel_us"]
        compiled = f"{row['compiled_us'] / us:.1f} x" if "compiled_us" in row else "-"
        lines.append(
            f"| {row['name']} | {row['floor_us']:.2f} | {us:.2f} | {row['twin_us'] / us:.1f} x | {compiled} "
            f"| {row['kernel_eager_us']:.0f} | {row['twin_eager_us'] / row['kernel_eager_us']:.1f} x |"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("report"))
    parser.add_argument("--only", choices=("suite", "sanitizer", "speed"), action="append")
    parser.add_argument("--quick", action="store_true", help="no torch.compile")
    parser.add_argument("--cases", action="store_true", help="run every case once and end")
    parser.add_argument("--planted", help="run one planted fault and end")
    args = parser.parse_args()
    if not torch.cuda.is_available():
        print("no NVIDIA GPU here: nothing was measured; the sources run on the CPU in tests/kernels", file=sys.stderr)
        sys.exit(2)
    if args.cases or args.planted:
        run_cases() if args.cases else run_planted(args.planted)
        return
    parts = args.only or ["suite", "sanitizer", "speed"]
    args.out.mkdir(parents=True, exist_ok=True)
    report: dict[str, Any] = {"command": " ".join(sys.argv), **identity(copy_bandwidth())}
    if "suite" in parts:
        report["suite"] = suite()
    if "sanitizer" in parts:
        with ThreadPoolExecutor(len(TOOLS)) as pool:  # separate processes; each is mostly waiting for its tool
            logs = [args.out / f"{tool}.log" for tool in TOOLS]
            report["sanitizer"] = dict(zip(TOOLS, pool.map(sanitize, TOOLS, logs)))
        print(json.dumps(report["sanitizer"], indent=1))
    if "speed" in parts:
        report["speed"], report["apart"] = speed(report["copy_bytes_per_s"], not args.quick)
        text = table(report["speed"])
        (args.out / "report.md").write_text(text, encoding="utf-8")
        print(text)
    (args.out / "report.json").write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    failed = report.get("suite", {}).get("exit", 0) != 0 or bool(report.get("apart"))
    for tool in report.get("sanitizer", {}).values():
        failed |= tool["cases"]["exit"] != 0 or tool["cases"]["ours"] != 0 or tool["planted"]["ours"] == 0
    sys.exit(int(failed))


if __name__ == "__main__":
    main()
