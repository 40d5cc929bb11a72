"""CUDA sources to loaded functions: compile ahead where nvcc is found, else once by NVRTC; launch on torch's stream.

`launch` is the only door to a device. CuPy is imported inside it, so only where a CUDA tensor is used. A function's
first launch loads it and must lie outside a graph capture; the later ones neither synchronise nor allocate.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch

ROOT = Path(__file__).resolve().parent
ARCHITECTURES = (80, 86, 89, 90)  # cubins; a later chip gets the PTX of the last one
# No contraction: a sum is fused only where the source says fmaf, so that the twin can say the same.
FLAGS = ("-std=c++17", "-fmad=false")

_TYPES = {
    "float": (torch.float32,), "double": (torch.float64,), "int": (torch.int32,), "long long": (torch.int64,),
    "bool": (torch.bool,), "signed char": (torch.int8,), "unsigned char": (torch.uint8, torch.bool),
}  # fmt: skip
_QUALIFIERS = ("const", "volatile", "__restrict__")
_DECLARATION = re.compile(r'extern "C" __global__ void (?:__launch_bounds__\([^)]*\) )?(\w+)\(([^)]*)\)')

Argument = torch.Tensor | int | float | None


class KernelError(RuntimeError):
    """A kernel that cannot be built, loaded or launched; one line that names it and the remedy."""


@dataclass(frozen=True)
class Parameter:
    """One parameter of a kernel as its source declares it."""

    name: str
    type: str  # of the value or of what it points to
    pointer: bool


def families() -> tuple[str, ...]:
    """Every family with a CUDA source."""
    return tuple(sorted(p.parent.name for p in ROOT.glob("*/*.cu")))


def source_path(family: str) -> Path:
    return ROOT / family / f"{family}.cu"


@cache
def signatures(path: Path) -> dict[str, tuple[Parameter, ...]]:
    """Kernels a source declares: name -> parameters in order."""
    text = re.sub(r"//[^\n]*", "", path.read_text(encoding="utf-8"))
    return {name: tuple(map(_parameter, body.split(","))) for name, body in _DECLARATION.findall(text)}


def _parameter(text: str) -> Parameter:
    name = text.split()[-1].lstrip("*")
    declared = text[: text.rindex(name)]
    kind = [word for word in declared.replace("*", " ").split() if word not in _QUALIFIERS]
    return Parameter(name, " ".join(kind), "*" in declared)


@cache
def kernel_hashes() -> dict[str, str]:
    """family -> sha256 of its source and flags: the kernel identity a manifest carries. Needs no GPU; read once."""
    return {family: _hash(family) for family in families()}


def _hash(family: str, *more: str) -> str:
    body = "\0".join((source_path(family).read_text(encoding="utf-8"), *FLAGS, *more))
    return hashlib.sha256(body.encode()).hexdigest()


# --- compiling ------------------------------------------------------------------------------------


def cache_dir() -> Path:
    """Compiled kernels; theirs alone, wherever runs are kept."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "foxhunt-kernels"


@cache
def compiler_version(nvcc: str) -> str:
    return subprocess.run([nvcc, "--version"], capture_output=True, text=True, check=True).stdout.strip()


def compile_ahead(family: str, target: str, nvcc: str, into: Path | None = None) -> Path:
    """Path of the compiled source for a target ("sm_90" gives a cubin, "compute_90" PTX), from the cache or nvcc.

    Cached by hash of source, flags, compiler version and target; written beside and renamed, never half-written.
    """
    into = into or cache_dir()
    suffix = "cubin" if target.startswith("sm_") else "ptx"
    done = into / f"{family}-{target}-{_hash(family, compiler_version(nvcc), target)[:24]}.{suffix}"
    if done.exists():
        return done
    into.mkdir(parents=True, exist_ok=True)
    descriptor, beside = tempfile.mkstemp(dir=into, suffix=f".{suffix}")
    os.close(descriptor)
    command = [nvcc, f"-{suffix}", f"-arch={target}", *FLAGS, "-o", beside, str(source_path(family))]
    result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode:
        os.unlink(beside)
        first = next((x for x in result.stderr.splitlines() if "error" in x), result.stderr.strip()[:200])
        raise KernelError(f"kernel {family}: nvcc refused it for {target}: {first}; run: {' '.join(command)}")
    os.replace(beside, done)
    return done


def target_of(capability: tuple[int, int]) -> str:
    """What to compile for a chip: the nearest listed cubin of its generation, the last PTX for a later one."""
    chip = 10 * capability[0] + capability[1]
    if chip < ARCHITECTURES[0]:
        raise KernelError(f"compute capability {capability[0]}.{capability[1]}: kernels need 8.0; set device to cpu")
    if capability[0] > ARCHITECTURES[-1] // 10:
        return f"compute_{ARCHITECTURES[-1]}"
    return f"sm_{max(a for a in ARCHITECTURES if a <= chip)}"


# --- loading and launching ------------------------------------------------------------------------


def _cupy() -> ModuleType:
    try:
        import cupy
    except ImportError as error:
        raise KernelError(f"kernels on a GPU need CuPy ({error}); install the extra: pip install '.[gpu]'") from None
    return cupy


@cache
def _module(cupy: ModuleType, family: str, device: int) -> Any:
    target = target_of(torch.cuda.get_device_capability(device))
    nvcc = shutil.which("nvcc")
    if nvcc:
        return cupy.RawModule(path=str(compile_ahead(family, target, nvcc)))
    options = (*FLAGS[:1], *(f"-{flag}" for flag in FLAGS[1:]))  # NVRTC spells them with two dashes
    return cupy.RawModule(code=source_path(family).read_text(encoding="utf-8"), options=options, backend="nvrtc")


@cache
def _function(family: str, function: str, device: int) -> Any:
    cupy = _cupy()
    if torch.cuda.is_current_stream_capturing():
        raise KernelError(f"kernel {function}: first launched inside a graph capture; run the step once before it")
    try:
        return _module(cupy, family, device).get_function(function)
    except KernelError:
        raise
    except Exception as error:  # CuPy's own kinds, one for each layer
        raise _broken(function, "not loaded", error) from None


def _broken(function: str, what: str, error: Exception) -> KernelError:
    first = next(iter(str(error).strip().splitlines()), type(error).__name__)
    return KernelError(f"kernel {function}: {what} ({first}); see nvidia-smi, or delete {cache_dir()} and try again")


def on_gpu(x: torch.Tensor) -> bool:
    """Whether x is computed by a kernel: float64, which serves checks, runs the twin on any device."""
    return x.is_cuda and x.dtype != torch.float64


def ceil_div(n: int, block: int) -> int:
    return -(-n // block)


def scalar(x: torch.Tensor | float, like: torch.Tensor) -> tuple[torch.Tensor | None, float]:
    """(tensor or None, number): a kernel reads a scalar from the device where it lives there, for captured graphs."""
    if isinstance(x, torch.Tensor):
        return x.to(device=like.device, dtype=like.dtype), 0.0
    return None, float(x)


def whole(x: torch.Tensor | int, like: torch.Tensor) -> tuple[torch.Tensor | None, int]:
    """`scalar` for an integer."""
    if isinstance(x, torch.Tensor):
        return x.to(device=like.device, dtype=torch.int64), 0
    return None, int(x)


def check_arguments(path: Path, function: str, args: Sequence[Argument]) -> torch.device:
    """Hold arguments to the declaration (count, type, contiguity, one device); return the device. Never reads data."""
    parameters = signatures(path)[function]
    if len(parameters) != len(args):
        raise KernelError(f"kernel {function}: {len(args)} arguments, its source declares {len(parameters)}")
    device: torch.device | None = None
    for p, x in zip(parameters, args):
        if not isinstance(x, torch.Tensor):
            wanted = (type(None),) if p.pointer else (float,) if p.type == "float" else (int,)
            if not isinstance(x, wanted):
                raise KernelError(f"kernel {function}: {p.name} is a {type(x).__name__}, declared {p.type}")
            continue
        if not p.pointer or x.dtype not in _TYPES[p.type]:
            raise KernelError(f"kernel {function}: {p.name} is {x.dtype}, declared {p.type}")
        if not x.is_contiguous():
            raise KernelError(f"kernel {function}: {p.name} is not contiguous; pass {p.name}.contiguous()")
        if device not in (None, x.device):
            raise KernelError(f"kernel {function}: {p.name} lies on {x.device}, the arguments before on {device}")
        device = x.device
    assert device is not None, f"{function} takes no tensor"
    return device


def by_name(family: str, function: str, values: Mapping[str, Argument]) -> list[Argument]:
    """A kernel's arguments, found by the names of its parameters; for kernels that take a run's named buffers."""
    return [values[p.name] for p in signatures(source_path(family))[function]]


def launch(
    family: str,
    function: str,
    grid: tuple[int, ...],
    block: tuple[int, ...],
    *args: Argument,
    through: Sequence[torch.Tensor] = (),
) -> None:
    """Start a kernel on torch's current stream. Tensors pass as pointers, None as a null one, int as long long.

    through: tensors the kernel reaches by addresses in a table. An empty grid starts nothing.
    """
    device = check_arguments(source_path(family), function, args)
    if not all(grid):
        return
    kernel = _function(family, function, device.index)
    stream = _Stream(torch.cuda.current_stream(device).cuda_stream)
    with torch.cuda.device(device):
        try:
            kernel(grid, block, tuple(map(_value, args)), stream=stream)
        except Exception as error:  # CuPy loads at the first call, so what it finds wrong with a file comes here too
            raise _broken(function, f"not started with grid {grid}, block {block}", error) from None


@dataclass(frozen=True)
class _Stream:
    """What CuPy asks of a stream: torch's, without CuPy's own bookkeeping of a current one."""

    ptr: int


def _value(x: Argument) -> Any:
    """An argument as CuPy passes it: an int is 64 bits wide, as a pointer is."""
    if isinstance(x, torch.Tensor):
        return x.data_ptr()
    return np.float32(x) if isinstance(x, float) else x or 0
