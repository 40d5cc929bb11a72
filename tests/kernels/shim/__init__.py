"""Runs CUDA sources on the CPU under many schedules; stands in for kernels.build.launch in tests.

A launch runs once a schedule on the same inputs. Bits that move with the schedule are a race; so is a conflict (two
accesses of a word that no barrier orders) that happened to move none. Memory a kernel reads but nobody wrote is found
by running a case under two poison patterns.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import pytest
import torch

from kernels import build

HERE = Path(__file__).resolve().parent
SCHEDULES = 16
POISONS = (0x7F, 0xC5)  # as float32 3.4e38 and -6.3e3, as integers large: neither passes for a value
# A fortified longjmp refuses to change stacks, which is how fibers take turns.
_FLAGS = (
    "-std=c++17", "-O1", "-fPIC", "-ffp-contract=off", "-Wall", "-Wno-unknown-pragmas", "-U_FORTIFY_SOURCE",
)  # fmt: skip
_C_TYPES = {"float": ctypes.c_float, "long long": ctypes.c_longlong}


class Found(AssertionError):
    """A race, an access out of bounds, or a launch that does not end."""


def compiler() -> str:
    """g++; without it a test fails where CI=true and is skipped and counted elsewhere."""
    found = shutil.which("g++")
    if found is None:
        if os.environ.get("CI") == "true":
            pytest.fail("g++ is not installed: the kernels' sources must run in CI")
        pytest.skip("g++ is not installed")
    return found


def _folder() -> Path:
    folder = Path(tempfile.gettempdir()) / f"foxhunt-shim-{os.getuid()}"
    folder.mkdir(exist_ok=True)
    return folder


def _made(done: Path, make: Callable[[Path], object]) -> Path:
    """A file made once: beside, then renamed, since several test processes may want it."""
    if not done.exists():
        with tempfile.TemporaryDirectory(dir=_folder()) as beside:
            make(Path(beside) / done.name)
            os.replace(Path(beside) / done.name, done)
    return done


def _built(name: str, inputs: Sequence[Path], command: list[str]) -> Path:
    """Output of a compiler for given inputs."""
    key = hashlib.sha256("\0".join(command).encode())
    for path in inputs:
        key.update(path.read_bytes())
    done = _folder() / f"{name}-{key.hexdigest()[:20]}{'.o' if '-c' in command else '.so'}"
    return _made(done, lambda target: subprocess.run([*command, "-o", str(target)], check=True))


@cache
def library(source: Path) -> ctypes.CDLL:
    """A CUDA source compiled for the CPU, with every load and store instrumented."""
    gxx = compiler()
    runtime, header = HERE / "runtime.cpp", HERE / "shim.h"
    compiled = _built("runtime", [runtime], [gxx, *_FLAGS, "-O2", "-c", str(runtime)])
    kernels = " ".join(f"SHIM_KERNEL({name})" for name in build.signatures(source))
    text = f'#include "{header}"\n#include "{source}"\n{kernels}\n'
    unit = _folder() / f"{source.stem}-{hashlib.sha256(text.encode()).hexdigest()[:8]}.cpp"
    _made(unit, lambda target: target.write_text(text, encoding="utf-8"))
    # The sanitizer's library is not linked: runtime.cpp has the hooks.
    instrumented = [gxx, *_FLAGS, "-fsanitize=thread", "-Wno-tsan", "-c", str(unit)]
    hooked = _built(source.stem, [source, header, unit], instrumented)
    linked = _built(source.stem, [hooked, compiled], [gxx, "-shared", "-Wl,-Bsymbolic", str(hooked), str(compiled)])
    return ctypes.CDLL(str(linked))


def compile_all() -> None:
    """Every family, two at a time."""
    compiler()
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(library, [build.source_path(f) for f in build.families()]))


def _poisoned(make: Callable[..., torch.Tensor], pattern: int) -> Callable[..., torch.Tensor]:
    """An allocator whose memory holds the pattern until it is written."""

    def allocate(*args, **kwargs):
        out = make(*args, **kwargs)
        out.untyped_storage().fill_(pattern)
        return out

    return allocate


def run(
    source: Path,
    function: str,
    grid: Sequence[int],
    block: Sequence[int],
    args: Sequence[build.Argument],
    schedule: int = 0,
    poison: int = POISONS[0],
    through: Sequence[torch.Tensor] = (),
) -> None:
    """One launch under one schedule, in place. Found says what the runtime saw."""
    build.check_arguments(source, function, args)
    parameters = build.signatures(source)[function]
    held = [(p.name, x) for p, x in zip(parameters, args) if isinstance(x, torch.Tensor)]
    held += [(f"through[{i}]", x) for i, x in enumerate(through)]
    n = len(held)
    values = [
        ctypes.c_void_p(x.data_ptr()) if isinstance(x, torch.Tensor)
        else ctypes.c_void_p(0) if x is None
        else _C_TYPES[p.type](x)
        for p, x in zip(parameters, args)
    ]  # fmt: skip
    text = ctypes.create_string_buffer(512)
    lib = library(source)
    failed = lib.shim_run(
        getattr(lib, f"shim_kernel_{function}"),
        (ctypes.c_void_p * len(values))(*[ctypes.addressof(v) for v in values]),
        n,
        (ctypes.c_void_p * n)(*[x.data_ptr() for _, x in held]),
        (ctypes.c_int64 * n)(*[x.numel() * x.element_size() for _, x in held]),
        (ctypes.c_int64 * n)(*[x.element_size() for _, x in held]),
        (ctypes.c_char_p * n)(*[name.encode() for name, _ in held]),
        (ctypes.c_uint * 3)(*(*grid, 1, 1)[:3]),
        (ctypes.c_uint * 3)(*(*block, 1, 1)[:3]),
        ctypes.c_int64(schedule), poison, text, len(text),
    )  # fmt: skip
    if failed:
        raise Found(f"{function}: {text.value.decode()} (schedule {schedule})")


def hunt(
    source: Path,
    function: str,
    grid: Sequence[int],
    block: Sequence[int],
    args: Sequence[build.Argument],
    poison: int = POISONS[0],
    through: Sequence[torch.Tensor] = (),
    schedules: int = SCHEDULES,
) -> None:
    """Run a launch under every schedule from the same state, leaving what schedule 0 left; Found names a race."""
    names = [p.name for p, x in zip(build.signatures(source)[function], args) if isinstance(x, torch.Tensor)]
    tensors = [x for x in (*args, *through) if isinstance(x, torch.Tensor)]
    before = [x.clone() for x in tensors]
    conflict: Found | None = None
    first: list[torch.Tensor] = []
    for schedule in range(schedules):
        for x, start in zip(tensors, before):
            x.copy_(start)
        try:
            run(source, function, grid, block, args, schedule, poison, through)
        except Found as found:
            if "conflict" not in str(found):
                raise
            conflict = conflict or found
        after = [_bits(x) for x in tensors]
        first = first or after
        for name, a, b in zip((*names, *(f"through[{i}]" for i in range(len(through)))), first, after):
            if not torch.equal(a, b):
                at = int((a != b).nonzero()[0])
                raise Found(f"race in {function}: {name}[{at}] differs between schedules 0 and {schedule}; {conflict}")
    if conflict is not None:
        raise conflict
    for x, bits in zip(tensors, first):
        _bits(x, copy=False).copy_(bits)


def _bits(x: torch.Tensor, copy: bool = True) -> torch.Tensor:
    kinds = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    view = x.reshape(-1).view(kinds[x.element_size()])
    return view.clone() if copy else view


@contextmanager
def installed(monkeypatch: pytest.MonkeyPatch, poison: int, schedules: int = SCHEDULES) -> Iterator[list[str]]:
    """Ops of CPU tensors run their kernels here; yields the kernels launched so far."""
    launched: list[str] = []

    def launch(family, function, grid, block, *args, through=()):
        if all(grid):
            launched.append(function)
            hunt(build.source_path(family), function, grid, block, args, poison, through, schedules)

    with monkeypatch.context() as patch:
        for owner, name in ((torch, "empty"), (torch, "empty_like"), (torch.Tensor, "new_empty")):
            patch.setattr(owner, name, _poisoned(getattr(owner, name), poison))
        patch.setattr(build, "launch", launch)
        patch.setattr(build, "on_gpu", lambda x: x.dtype != torch.float64)
        yield launched
