"""Compilation with a cache on disk that notices edits of what a loop calls into."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

from numba import njit


def cached(*called: ModuleType) -> Callable:
    """njit with a cache on disk. numba's own stamp sees only the file of the loop, so the text of the modules it
    calls goes into its name."""
    digest = hashlib.sha256(b"".join(Path(str(m.__file__)).read_bytes() for m in called)).hexdigest()[:12]

    def wrap(function: Callable) -> Callable:
        function.__qualname__ += "_" + digest
        return njit(cache=True)(function)

    return wrap
