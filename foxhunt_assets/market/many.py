"""Several files at once, one process a file: a file is one zstd stream, so it is decoded by one core."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from foxhunt_assets.contracts.instruments import ContractFacts
from foxhunt_assets.errors import FoxhuntError
from foxhunt_assets.market.roll import FRONT_MONTH
from foxhunt_assets.market.snapshots import decode


def decode_many(
    jobs: Sequence[tuple[Path, Path]],
    facts: ContractFacts,
    grid_ms: int,
    instrument_mode: str = FRONT_MONTH,
    processes: int | None = None,
) -> list[dict[str, Any] | FoxhuntError]:
    """`snapshots.decode` of each (file, existing output folder); in their order the report, or why the file is refused.

    processes: at most this many, the cores of the machine if None. Folders hold what one process would have written.
    """
    workers = max(1, min(processes or os.cpu_count() or 1, len(jobs)))
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:  # fork would copy held locks
        waiting = [pool.submit(_one, path, out, facts, grid_ms, instrument_mode) for path, out in jobs]
        return [job.result() for job in waiting]


def _one(path: Path, out: Path, facts: ContractFacts, grid_ms: int, mode: str) -> dict[str, Any] | FoxhuntError:
    try:
        return decode(path, out, facts, grid_ms, mode)
    except FoxhuntError as error:
        return error
