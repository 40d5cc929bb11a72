"""The tape on its way to the device: columns against the bus, the whole fold against the clock, and what fits.

    python -m benchmarks.tape                            45 million rows on a GPU, 300,000 on a CPU
    python -m benchmarks.tape --workers 8 12 16 --piece-mib 8 16 32        what it takes to fill the bus
    python -m benchmarks.tape --rows 5000000 --file-rows 1000000

Writes a snapshots file of the real schema in batches as the decoder writes them (a generated book), with labels and
scales of a fold over it. Where --rows is more than the file holds (--file-rows, by default what half of the free
memory and of the free disk take) the fold lists the file several times. The file lies in the page cache, so the disk
is not measured. The first load of the process, which also pins the buffers, has a row of its own; each later round
makes the tensors anew, memory of the device included, and the median of the rounds is shown. The bus is one pinned
copy of a GiB, the median of ten. "host memory" is what as many threads copy from memory to buffers of a piece, with no
file and no bus. "one thread, pageable" is the plain loop: each batch copied to a tensor, each tensor to the device.
"reads alone" is a load that sends nothing, "sends alone" one that reads nothing: the slower of the two is what bounds
a load. "mapped" is the way not taken: benchmarks._tape_mapped. Last comes what the workers of a load did with their
time. Rows are compared with the file before a figure of ours is printed.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import torch

from benchmarks._tape_mapped import through_mapping
from foxhunt_assets import storage
from foxhunt_assets.contracts.tables import LEVELS, SNAPSHOTS, arrow_schema, label_columns
from foxhunt_assets.market import features, norm, tape, upload
from foxhunt_assets.market.columns import ColumnFile
from foxhunt_assets.market.folds import FoldSpec, TapeSegment, TapeSource
from foxhunt_assets.trainer.config import TrainerConfig, from_profile
from foxhunt_assets.trainer.tape import load_tape

GPU_ROWS, CPU_ROWS = 45_000_000, 300_000
BATCH = 16_368  # rows of a batch of the decoder
BLOCK = 8 * BATCH  # rows generated; the file repeats them, with times that go on
SESSION = 331_200  # rows of 23 hours at 250 ms
GRID_NS = 250_000_000
GIB = 1 << 30
BAR = 0.6  # of the pinned bandwidth
# what a training reads: see trainer.tape
COLUMNS = tuple(dict.fromkeys((*features.COLUMNS, "low_bid_px", "high_ask_px")))
WIDTH = {c.name: 40 if c.type.startswith("fixed") else np.dtype(c.type).itemsize for c in SNAPSHOTS}


def block(seed: int = 0) -> dict[str, np.ndarray]:
    """BLOCK rows of every snapshot column: a random walk of the mid under a dense book."""
    rng = np.random.default_rng(seed)
    made = {}
    for c in SNAPSHOTS:
        shape = (BLOCK, LEVELS) if c.type.startswith("fixed") else (BLOCK,)
        made[c.name] = rng.integers(0, 60, shape).astype("int32" if len(shape) > 1 else c.type)
    bid, level = 20_000 + rng.integers(-1, 2, BLOCK).cumsum(), np.arange(LEVELS)
    made["bid_px"] = (bid[:, None] - level).astype(np.int32)
    made["ask_px"] = (bid[:, None] + 1 + level).astype(np.int32)
    made["low_bid_px"], made["high_ask_px"] = made["bid_px"][:, 0], made["ask_px"][:, 0]
    made["ts"] = 1_700_000_000 * 10**9 + GRID_NS * np.arange(BLOCK)
    made["ts_event"] = made["ts_recv"] = made["ts"] - rng.integers(10**6, GRID_NS, BLOCK)
    made["segment"] = np.zeros(BLOCK, np.int32)
    return made


def write_snapshots(folder: Path, rows: int) -> None:
    folder.mkdir(parents=True)
    made, schema = block(), arrow_schema(SNAPSHOTS, {"grid_ms": "250"})

    def array(name: str, values: np.ndarray) -> pa.Array:
        if values.ndim == 1:
            return pa.array(values)
        return pa.FixedSizeListArray.from_arrays(pa.array(values.reshape(-1)), type=schema.field(name).type)

    with pa.OSFile(str(folder / tape.SNAPSHOTS_FILE), "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
        for first in range(0, rows, BATCH):
            a, n = first % BLOCK, min(BATCH, rows - first)
            later = (first - a) * GRID_NS
            cut = {name: values[a : a + n] + later * name.startswith("ts") for name, values in made.items()}
            cut = {name: values.astype(made[name].dtype, copy=False) for name, values in cut.items()}
            writer.write_batch(pa.record_batch([array(f.name, cut[f.name]) for f in schema], schema=schema))


def write_fold(home: Path, rows: int, file_rows: int, config: TrainerConfig) -> dict[str, str]:
    """A fold of `rows` rows over one file, listed as often as it takes. Returns the snapshots folders."""
    write_snapshots(home / "snapshots", file_rows)
    starts = range(0, rows, file_rows)
    sources = tuple(TapeSource("k", 0, min(file_rows, rows - a), "") for a in starts)
    segments = tuple(
        TapeSegment(i, "ESH4", 17, "2024-03-04", a, min(a + SESSION, rows), "session", 250_000_000, 5_000)
        for i, a in enumerate(range(0, rows, SESSION))
    )
    horizons = config.labels.horizons
    spec = FoldSpec(
        fold="fold_0", root="ES", mode="sessions", synthetic=True, grid_ms=250, window=config.model.window,
        latency_steps=1, horizons=horizons, purge_rows=config.purge_rows, embargo_rows=0, n_rows=rows, sources=sources,
        segments=segments, train=((0, min(rows, BLOCK)),), validation=(), test=(),
    )  # fmt: skip
    storage.write_json(home / "fold" / "spec" / "fold_spec.json", spec.to_json())
    folder = home / "fold" / "labels"
    folder.mkdir()
    schema = arrow_schema(label_columns(horizons), {"sigma_step": json.dumps(0.5)})
    atoms = np.random.default_rng(1).integers(-1, 21, (len(horizons), 4 * BATCH)).astype(np.int8)
    with pa.OSFile(str(folder / "frd_labels.arrow"), "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
        for first in range(0, rows, atoms.shape[1]):
            cut = [pa.array(a[: rows - first]) for a in atoms]
            writer.write_batch(pa.record_batch(cut, schema=schema))
    few = min(rows, file_rows, BLOCK)
    small = FoldSpec(**{**_fields(spec), "n_rows": few, "segments": (_first(segments[0], few),), "train": ((0, few),)})
    columns = tape.read_columns([TapeSource("k", 0, few, "")], lambda _: home / "snapshots", features.COLUMNS)
    norm.write_norm(small, columns, home / "fold" / "norm")
    return {"k": str(home / "snapshots")}


def _fields(spec: FoldSpec) -> dict[str, Any]:
    return {name: getattr(spec, name) for name in asdict(spec)}


def _first(segment: TapeSegment, rows: int) -> TapeSegment:
    return TapeSegment(**{**asdict(segment), "row_end": min(segment.row_end, rows)})


def bus(device: torch.device) -> float:
    """Bytes a second of a plain large copy to the device, from pinned memory; on a CPU from memory to memory."""
    there = torch.empty(GIB, dtype=torch.uint8, device=device)
    here = torch.ones(GIB, dtype=torch.uint8, pin_memory=device.type == "cuda")
    return GIB / timed(lambda: there.copy_(here, non_blocking=True), device, 10)


def timed(call: Callable[[], Any], device: torch.device, rounds: int) -> float:
    """Median seconds of a call that leaves its work on the device; what it returns is dropped before the next."""
    seconds = []
    for _ in range(rounds + 1):  # the first warms up
        if device.type == "cuda":
            torch.cuda.synchronize()
        start = time.perf_counter()
        got = call()
        if device.type == "cuda":
            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - start)
        del got
    return statistics.median(seconds[1:])


def plain(folder: Path, rows: int, device: torch.device) -> dict[str, torch.Tensor]:
    """One thread, pageable: what a loop over the batches of the first `rows` rows does."""
    snapshots = tape.Snapshots(folder)
    out = {name: torch.empty((rows, LEVELS) if WIDTH[name] == 40 else (rows,), dtype=torch.int32 if WIDTH[name] != 8
           else torch.int64, device=device) for name in COLUMNS}  # fmt: skip
    for name, tensor in out.items():
        at = 0
        for values in snapshots.slices(name, 0, rows):
            tensor[at : at + len(values)].copy_(torch.from_numpy(values.copy()))
            at += len(values)
    return out


def fresh(call: Callable[[], Any], device: torch.device) -> Callable[[], Any]:
    """The call with no device memory left over from the one before."""

    def run() -> Any:
        if device.type == "cuda":
            torch.cuda.empty_cache()
        return call()

    return run


def must_equal(columns: dict[str, torch.Tensor], folder: Path, sources: list[TapeSource]) -> None:
    """The first, a middle and the last row of every batch of every source against the file."""
    snapshots, at = tape.Snapshots(folder), 0
    for source in sources:
        for name, tensor in columns.items():
            rows, want, first = [], [], at
            for values in snapshots.slices(name, 0, source.row_end):
                some = [0, len(values) // 2, len(values) - 1]
                rows += [first + i for i in some]
                want.append(values[some])
                first += len(values)
            found = tensor[torch.tensor(rows, device=tensor.device)].cpu().numpy()
            if not np.array_equal(found, np.concatenate(want)):
                raise SystemExit(f"{name}: rows of the tape are not those of the file")
        at += source.row_end


def defaults(args: argparse.Namespace, device: torch.device, work: Path) -> None:
    """Rows that fit the device and the file, where the command line names none."""
    free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    room = torch.cuda.mem_get_info()[0] if device.type == "cuda" else free // 2
    args.rows = args.rows or min(GPU_ROWS if device.type == "cuda" else CPU_ROWS, int(room * 0.8) // 850)
    disk = shutil.disk_usage(work).free
    args.file_rows = args.file_rows or min(args.rows, min(free, disk) // 2 // sum(WIDTH.values()))
    args.file_rows = min(args.rows, args.file_rows)


def columns_table(args: argparse.Namespace, home: Path, sources: list[TapeSource], device: torch.device) -> None:
    """GB/s of the plain loop and of the columns by number of threads, against the bus."""
    size, limit = sum(WIDTH[name] for name in COLUMNS), bus(device)
    print(f"{'pinned copy' if device.type == 'cuda' else 'copy in memory'} of a GiB: {limit / 1e9:.1f} GB/s")
    print(f"host memory to {usual()}: {memory_to_memory() / 1e9:.1f} GB/s")

    def say(what: str, rows: int, seconds: float) -> None:
        rate = rows * size / seconds
        print(f"{what}: {rows * size / 1e9:.2f} GB in {seconds:.3f} s, {rate / 1e9:.1f} GB/s, {rate / limit:.0%}")

    def read() -> dict[str, torch.Tensor]:
        return tape.read_columns(sources, lambda _: home / "snapshots", COLUMNS, device)

    few = min(args.file_rows, 4_000_000)
    slow = timed(fresh(lambda: plain(home / "snapshots", few, device), device), device, 1)
    say("columns, one thread, pageable", few, slow)
    first, seconds, spent = under_clocks(read)
    must_equal(first, home / "snapshots", sources)
    del first
    say(f"columns, first load, {usual()}", args.rows, seconds)
    where_it_went(seconds, spent, args.rows * size)
    for mib in args.piece_mib:
        for threads in args.workers:
            with patch.object(upload, "WORKERS", threads), patch.object(upload, "PIECE_BYTES", mib << 20):
                say(f"columns, {usual()}", args.rows, timed(fresh(read, device), device, args.rounds))
    if device.type == "cuda":
        for what, where, name, instead in (
            ("reads", upload._Lane, "send", only_read), ("sends", ColumnFile, "read", lambda *_: None),
        ):  # fmt: skip
            with patch.object(where, name, instead):
                say(f"{what} alone, {usual()}", args.rows, timed(fresh(read, device), device, args.rounds))
        print(f"the bar is {BAR:.0%}; a training uses {usual()}")
    mapped(args, home / "snapshots", device, say)
    _, seconds, spent = under_clocks(fresh(read, device))
    say("once more, under clocks", args.rows, seconds)
    where_it_went(seconds, spent, args.rows * size)


def mapped(args: argparse.Namespace, folder: Path, device: torch.device,
           say: Callable[[str, int, float], None]) -> None:  # fmt: skip
    """The row of through_mapping, with as many of torch's threads as there are cores."""
    times, before = max(1, args.rows // args.file_rows), torch.get_num_threads()
    whole = args.file_rows // BATCH * BATCH
    if not whole:
        return

    def read() -> dict[str, torch.Tensor]:
        return through_mapping(folder, COLUMNS, BATCH, times, device)

    torch.set_num_threads(os.cpu_count() or 1)
    try:
        got = read()
        must_equal(got, folder, [TapeSource("k", 0, whole, "")] * times)
        del got
        seconds = timed(fresh(read, device), device, args.rounds)
        say(f"mapped, {torch.get_num_threads()} of torch's threads", times * whole, seconds)
    finally:
        torch.set_num_threads(before)


def only_read(lane: upload._Lane, first: int, last: int, fill: upload.Fill) -> None:
    """A piece that goes no further than the pinned buffer."""
    fill((lane._layouts.get(last - first) or lane._lay_out(last - first)).here)


def memory_to_memory() -> float:
    """Bytes a second of as many threads that copy, from a large array to a buffer of a piece each: no file, no bus."""
    source, threads = np.ones(2 * GIB, np.uint8), upload.workers()
    pieces = np.split(source, np.arange(upload.PIECE_BYTES, len(source), upload.PIECE_BYTES))
    buffers = [np.ones_like(pieces[0]) for _ in range(threads)]

    def copy(i: int) -> None:
        for piece in pieces[i::threads]:
            np.copyto(buffers[i][: len(piece)], piece)

    with ThreadPoolExecutor(threads) as pool:
        return len(source) / timed(lambda: list(pool.map(copy, range(threads))), torch.device("cpu"), 5)


def usual() -> str:
    return f"{upload.workers()} threads, pieces of {upload.PIECE_BYTES >> 20} MiB"


def under_clocks(read: Callable[[], Any]) -> tuple[Any, float, dict[str, list[float]]]:
    """What a load returns, its seconds, and the seconds of each call of its parts in whatever thread."""
    spent: dict[str, list[float]] = {}

    def clocked(what: str, call: Callable[..., Any]) -> Callable[..., Any]:
        mine = spent.setdefault(what, [])

        def run(*args: Any, **named: Any) -> Any:
            start = time.perf_counter()
            try:
                return call(*args, **named)
            finally:
                mine.append(time.perf_counter() - start)

        return run

    parts = (
        ("opening files", ColumnFile, "__init__"), ("placing runs", ColumnFile, "_runs"),
        ("piece", upload._Lane, "send"), ("making buffers", upload._Lane, "__init__"), ("reading", os, "preadv"),
        ("waiting for the device", upload._Lane, "wait"), ("queueing copies", torch, "_foreach_copy_"),
    )  # fmt: skip
    with ExitStack() as stack:
        for what, where, name in parts:
            stack.enter_context(patch.object(where, name, clocked(what, getattr(where, name))))
        start = time.perf_counter()
        got = read()
        return got, time.perf_counter() - start, spent


def where_it_went(wall: float, spent: dict[str, list[float]], size: int) -> None:
    total = {what: sum(seconds) for what, seconds in spent.items()}
    before = total["opening files"] + total["placing runs"]
    inside = ("reading", "waiting for the device", "queueing copies")
    every = wall * upload.workers()
    parts = {what: total[what] for what in (*inside, "making buffers")}
    parts["Python between"] = total["piece"] - sum(total[what] for what in inside)
    parts["idle"] = every - total["piece"] - total["making buffers"]
    calls, reading = len(spent["reading"]), total["reading"]
    print(f"  of {every:.2f} thread seconds: " + ", ".join(f"{what} {s / every:.0%}" for what, s in parts.items()))
    print(f"  {before:.3f} s finding the columns; {len(spent['piece']):,} pieces, {calls:,} reads of "
          f"{size / calls / 1e6:.2f} MB at {size / reading / 1e9:.1f} GB/s a thread")  # fmt: skip


def whole_table(args: argparse.Namespace, home: Path, snapshots: dict[str, str], config: TrainerConfig,
                device: torch.device) -> None:  # fmt: skip
    """Seconds and bytes of the whole fold, features included."""
    gpu = device.type == "cuda"
    if gpu:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
    start = time.perf_counter()
    whole = load_tape(home / "fold", snapshots, config, str(device))
    if gpu:
        torch.cuda.synchronize()
    seconds = time.perf_counter() - start
    print(f"whole tape, features and labels included: {args.rows:,} rows in {seconds:.2f} s")
    if not bool(torch.isfinite(whole.features).all()):
        raise SystemExit("a feature is not finite")
    if gpu:
        held, peak = torch.cuda.memory_allocated() - before, torch.cuda.max_memory_allocated() - before
        total = torch.cuda.get_device_properties(device).total_memory
        print(f"device memory: {held / args.rows:.0f} bytes a row held, {peak / args.rows:.0f} while loading; "
              f"{held / GIB:.1f} and {peak / GIB:.1f} of {total / GIB:.1f} GiB, "
              f"reserved {torch.cuda.max_memory_reserved() / GIB:.1f} GiB at most")  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=0)
    parser.add_argument("--file-rows", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--workers", type=int, nargs="+", default=[upload.WORKERS])
    parser.add_argument("--piece-mib", type=int, nargs="+", default=[upload.PIECE_BYTES >> 20])
    parser.add_argument("--work", type=Path, default=None, help="a folder with room for the file")
    args = parser.parse_args()
    device = torch.device("cuda", 0) if torch.cuda.is_available() else torch.device("cpu")
    if device.type == "cpu":
        print("no GPU: the tape is loaded into host memory, and no figure here says anything of a bus")
    home = Path(tempfile.mkdtemp(prefix="tape-", dir=args.work))
    try:
        defaults(args, device, home)
        config = from_profile("mid", {})
        snapshots = write_fold(home, args.rows, args.file_rows, config)
        sources = list(FoldSpec.from_json(storage.read_json(home / "fold" / "spec" / "fold_spec.json")).sources)
        print(
            f"{args.rows:,} rows from a file of {args.file_rows:,}; {os.cpu_count()} cores, torch {torch.__version__}"
        )
        columns_table(args, home, sources, device)
        whole_table(args, home, snapshots, config, device)
    finally:
        shutil.rmtree(home)


if __name__ == "__main__":
    main()
