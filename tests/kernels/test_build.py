"""Compiling, caching and loading: what can be known without a GPU."""

import contextlib
import hashlib
import re
import stat
import sys
import types

import pytest
import torch

from kernels import build

NVCC = """#!/bin/sh
echo "$@" >> {log}
case "$*" in *--version*) echo "{version}"; exit 0;; esac
{body}
"""


@pytest.fixture
def nvcc(tmp_path):
    """A stand-in for nvcc that logs its calls and writes what it is told."""

    def make(version="release 13.0", body='while [ "$1" != -o ]; do shift; done; echo cubin > "$2"'):
        path = tmp_path / f"nvcc-{version.replace(' ', '')}"
        path.write_text(NVCC.format(log=tmp_path / "log", version=version, body=body))
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        return str(path)

    return make


def _compilations(tmp_path):
    return [line for line in (tmp_path / "log").read_text().splitlines() if "--version" not in line]


def test_a_source_is_compiled_once_a_compiler_and_target(tmp_path, nvcc):
    into = tmp_path / "cache"
    first = build.compile_ahead("scan", "sm_90", nvcc(), into)
    assert build.compile_ahead("scan", "sm_90", nvcc(), into) == first
    assert len(_compilations(tmp_path)) == 1
    others = {build.compile_ahead("scan", "sm_80", nvcc(), into), build.compile_ahead("gae", "sm_90", nvcc(), into)}
    others.add(build.compile_ahead("scan", "sm_90", nvcc("release 13.1"), into))
    assert len(others | {first}) == 4 and len(_compilations(tmp_path)) == 4
    assert all("-fmad=false" in line and "fast" not in line for line in _compilations(tmp_path))


def test_a_refused_source_leaves_nothing_and_is_named(tmp_path, nvcc):
    broken = nvcc(body='echo "scan.cu(3): error: expected a ;" >&2; exit 1')
    with pytest.raises(build.KernelError, match=r"^kernel scan: nvcc refused it for sm_90: .*expected a ;.*; run: "):
        build.compile_ahead("scan", "sm_90", broken, tmp_path / "cache")
    assert list((tmp_path / "cache").iterdir()) == []


def test_the_cache_is_apart_from_runs(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("FOXHUNT_HOME", "/elsewhere")
    assert build.cache_dir() == tmp_path / "foxhunt-kernels"


@pytest.mark.parametrize("capability, target", [
    ((8, 0), "sm_80"), ((8, 6), "sm_86"), ((8, 7), "sm_86"), ((8, 9), "sm_89"), ((9, 0), "sm_90"),
    ((10, 0), "compute_90"), ((12, 0), "compute_90"),
])  # fmt: skip
def test_the_target_of_a_chip(capability, target):
    assert build.target_of(capability) == target


def test_a_chip_too_old_is_refused():
    with pytest.raises(build.KernelError, match=r"7\.5: kernels need 8\.0; set device to cpu"):
        build.target_of((7, 5))


def test_hashes_cover_every_family_and_change_with_the_source(monkeypatch, tmp_path):
    hashes = build.kernel_hashes()
    assert set(hashes) == {p.name for p in build.ROOT.iterdir() if p.is_dir() and p.name != "__pycache__"}
    text = build.source_path("scan").read_text()
    assert hashes["scan"] == hashlib.sha256("\0".join((text, *build.FLAGS)).encode()).hexdigest()
    (tmp_path / "scan.cu").write_text(text + "\n")
    monkeypatch.setattr(build, "source_path", lambda family: tmp_path / f"{family}.cu")
    assert build._hash("scan") != hashes["scan"]


def test_without_cupy_the_remedy_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(build.KernelError, match=r"need CuPy .*pip install '.\[gpu\]'"):
        build.launch(
            "lob", "lob_take", (1,), (32,), torch.zeros(1).int(), torch.zeros(1).long(), 1, torch.zeros(1).int()
        )


def test_a_first_launch_inside_a_capture_is_refused(monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", types.ModuleType("cupy"))
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    with pytest.raises(build.KernelError, match="kernel lob_take: first launched inside a graph capture; run the step"):
        build._function("lob", "lob_take", 0)


def test_what_the_driver_refuses_is_named_in_one_line(monkeypatch):
    def refuse(*_, **__):
        raise ValueError("CUDA_ERROR_INVALID_IMAGE: device kernel image is invalid\nand more")

    monkeypatch.setattr(build, "_function", lambda *_: refuse)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda _: types.SimpleNamespace(cuda_stream=0))
    monkeypatch.setattr(torch.cuda, "device", lambda _: contextlib.nullcontext())
    expected = (
        r"^kernel lob_take: not started with grid \(1,\), block \(32,\) \(CUDA_ERROR_INVALID_IMAGE: .*invalid\); see"
    )
    with pytest.raises(build.KernelError, match=expected) as found:
        build.launch(
            "lob", "lob_take", (1,), (32,), torch.zeros(1).int(), torch.zeros(1).long(), 1, torch.zeros(1).int()
        )
    assert "\n" not in str(found.value)


def test_an_empty_launch_needs_no_device(monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", None)
    none = torch.zeros(0)
    taken = none.int()
    build.launch("lob", "lob_take", (0,), (32,), none.int(), none.long(), 0, taken)
    assert taken.numel() == 0 and sys.modules["cupy"] is None  # CuPy was never asked for: importing it would raise


def _atomics_not_on_integers(text: str) -> list[str]:
    """What is added to atomically and is no integer: only integers give one sum in any order."""
    found = re.findall(r"atomicAdd\(\s*(\(u64\*\))?\s*(\w+)", text)
    return [name for cast, name in found if not cast and not re.search(rf"\bint\*\s*(__restrict__\s+)?{name}\b", text)]


def test_an_atomic_sum_of_floats_is_found():
    text = (
        "void f(float* out, int* counts) { atomicAdd(out, 1.0f); atomicAdd(counts + 1, 1); atomicAdd((u64*)out, 1); }"
    )
    assert _atomics_not_on_integers(text) == ["out"]


def test_sources_hold_to_the_house_rules():
    for family in build.families():
        text = build.source_path(family).read_text()
        assert "__fdividef" not in text and "__expf" not in text  # approximate intrinsics
        assert _atomics_not_on_integers(text) == []
        assert "#include" not in text  # one file is the whole identity
