"""Compilation with a cache on disk that notices edits of what a loop calls into."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic


def cached(*called: ModuleType) -> Callable:
    """njit with a cache on disk. numba's own stamp sees only the file of the loop, so the text of the modules it
    calls goes into its name."""
    digest = hashlib.sha256(b"".join(Path(str(m.__file__)).read_bytes() for m in called)).hexdigest()[:12]

    def wrap(function: Callable) -> Callable:
        function.__qualname__ += "_" + digest
        return njit(cache=True)(function)

    return wrap


# njit of a helper that the compiler is to copy into its callers: a call passes an array as ten words and counts its
# references, which takes as long as what the small ones do
inlined: Any = njit(inline="always")


def _prefetch(_, array, row):
    def codegen(context, builder, signature, args):
        kind = signature.args[0]
        held = context.make_array(kind)(context, builder, args[0])
        first = context.get_constant(types.intp, 0)
        at = cgutils.get_item_pointer(context, builder, kind, held, [args[1], first])
        at = builder.bitcast(at, ir.IntType(8).as_pointer())
        i32 = ir.IntType(32)
        ask = ir.FunctionType(ir.VoidType(), [at.type, i32, i32, i32])
        function = builder.module.declare_intrinsic("llvm.prefetch", [at.type], ask)
        builder.call(function, [at, i32(0), i32(3), i32(1)])  # to read, to keep, data
        return context.get_dummy_value()

    return types.void(array, types.intp), codegen


# prefetch(array, row) in compiled code: ask for the cache line where a row of a 2-D array begins, and go on at once
prefetch: Any = intrinsic(_prefetch)
