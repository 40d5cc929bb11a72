"""From file to snapshots, labels and features against what else does it, as ratios of one run.

    python -m benchmarks.market                                  600,000 generated MBP-10 records, five rounds
    FOXHUNT_REAL_DATA=DIR python -m benchmarks.market            the books of a real hour too: the bars are judged on it
    python -m benchmarks.market --records 4000000                the memory bar
    FOXHUNT_REAL_DATA=DIR python -m benchmarks.market --peer-python VENV/bin/python    with nautilus_trader from there

Each row is a fresh process; rounds are interleaved and the least CPU of the rounds is shown. CPU seconds are the sturdy
figure on a shared machine: only ratios inside one run mean anything. Imports, compilation and the holiday calendar are
warm before the clock starts (a first decode of a small file pays 1 to 2 s for them). Output goes to the page cache;
"committed" adds the check of its contract, the sha256 of all files and fsync, as the pipeline does it; "floor" is what
no decoder can leave out of that: unpack or read, write as many bytes, hash them, fsync. The source is hashed before the
clock starts, because observing it did that; a row of its own says what it takes. Extra memory is the peak of the
process above what it held when the clock started.

The MBO file is the real hour with the clock of each copy a day later, an R record before it; nautilus_trader reads the
file once, not 16 times. "Real" is MBP-10 made of that hour's books, copied in the same way; how it packs is printed
beside the generated file and a file of the venue's own. The mid column is bid + ask in int64, as
`labels.half_tick_mids` gives it, each copy a fresh tensor that is let go before the next; the same in int32, the least
that holds it, is a row too. A peer that is not there is named and left out.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import zstandard

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

FROG = "blockhouse-frog/FROG.zip"  # a session of a share, as the venue's MBP-10
HOUR = "nautilus_trader/esh4-glbx-mdp3-20231225.mbo.dbn.zst"
COPIES = 16
ROWS = 1_000_000  # of labels and features
HORIZONS, SIGMA = (60, 300, 1800), 0.5
EVENTS_PER_SECOND, RECORDS_PER_MINUTE = 60.0, 3_480  # of the generated market
_DAY_NS = 86_400 * 10**9
_PACKED = 30_000  # records of a file that say how it packs

PEER = """
import json, sys, time
from pathlib import Path
import nautilus_trader.adapters.databento as adapter
from nautilus_trader.core import nautilus_pyo3 as n
path = sys.argv[1]
loader = n.DatabentoDataLoader(Path(adapter.__file__).with_name("publishers.json"))
iid = n.InstrumentId.from_str("ESH4.GLBX")
wall, cpu, seen = time.perf_counter(), time.process_time(), 0
book = n.OrderBook(iid, n.BookType.L3_MBO)
for delta in loader.load_order_book_deltas(path, instrument_id=iid, price_precision=2):
    book.apply_delta(delta)
    if delta.flags & 128:
        for side in (book.bids(10), book.asks(10)):
            for level in side:
                seen += (level.price.raw, level.size(), len(level.get_orders())) is not None
print(json.dumps({"cpu": time.process_time() - cpu, "wall": time.perf_counter() - wall, "seen": seen}))
"""


def inputs(work: Path, records: int) -> dict[str, Path]:
    """The files of the run, made once: name -> path."""
    from foxhunt_assets.market import synthetic

    minutes = records / RECORDS_PER_MINUTE
    for name, length in (("mbp", minutes), ("small", 1.0)):
        synthetic.write_files(work / name, "planted", 7, 1, length, events_per_second=EVENTS_PER_SECOND)
    files = {name: next((work / name).glob("*.zst")) for name in ("mbp", "small")}
    real = Path(os.environ.get("FOXHUNT_REAL_DATA", "")) / HOUR
    if real.is_file():
        files |= {"hour": real, "mbo": work / f"es{COPIES}.mbo.dbn.zst", "real": work / f"es{COPIES}.mbp-10.dbn.zst"}
        _copies(_records(real), "mbo", files["mbo"])
        _copies(_ten_levels(real, work), "mbp-10", files["real"])
    for name in [name for name in ("mbp", "real") if name in files]:
        plain = files[f"{name}.plain"] = files[name].with_suffix("")
        with files[name].open("rb") as source, plain.open("wb") as target:
            zstandard.ZstdDecompressor().copy_stream(source, target)
    return files


def _records(path: Path, most: int = 10**6) -> np.ndarray:
    from foxhunt_assets.market.databento_csv import CsvReader
    from foxhunt_assets.market.dbn import DbnReader

    with CsvReader(path) if path.suffix == ".zip" else DbnReader(path) as reader:
        parts, n = [], 0
        for part in reader.batches():
            parts.append(part.copy())
            n += len(part)
            if n >= most:
                break
        return np.concatenate(parts).view(reader.header.dtype).ravel()[:most]


def _ten_levels(hour: Path, work: Path) -> np.ndarray:
    """The hour as MBP-10: a record for each event that changed the ten levels, with the fields of its last record,
    and one for each trade, with the book before it. So the files of the venue look: see FROG in `packing`."""
    from foxhunt_assets.contracts.instruments import CONTRACTS, UNDEF_PRICE
    from foxhunt_assets.contracts.tables import ABSENT_PX
    from foxhunt_assets.market import snapshots
    from foxhunt_assets.market.dbn import MBP10_DTYPE, RTYPES
    from foxhunt_assets.market.snapshot_folder import open_snapshots, values

    (work / "books").mkdir()
    snapshots.decode(hour, work / "books", CONTRACTS["ES"], snapshots.EVENT_CLOCK)
    table, orders = open_snapshots(work / "books"), _records(hour)
    columns = {name: np.concatenate([values(c) for c in table[name].chunks]) for name in table.column_names}
    ends, sides = columns["source_row"], ("bid", "ask")
    book = np.concatenate([columns[f"{side}_{part}"] for side in sides for part in ("px", "sz", "ct")], axis=1)
    changed = np.append(True, (book[1:] != book[:-1]).any(axis=1))
    trades = np.flatnonzero(orders["action"] == ord("T"))
    at = np.union1d(ends[changed], trades[trades > ends[0]])
    row = np.searchsorted(ends, at, side="right") - 1
    made = np.zeros(len(at), MBP10_DTYPE)
    for name in set(made.dtype.names) - {"length", "rtype", "depth", "levels"}:
        made[name] = orders[name][at]
    made["length"], made["rtype"] = made.dtype.itemsize // 4, RTYPES["mbp-10"]
    made["depth"] = np.where(ends[row] == at, columns["depth"][row], 0)
    for side in sides:
        px = columns[f"{side}_px"][row].astype(np.int64)
        made["levels"][f"{side}_px"] = np.where(px == ABSENT_PX, UNDEF_PRICE, px * CONTRACTS["ES"].tick)
        for part in ("sz", "ct"):
            made["levels"][f"{side}_{part}"] = columns[f"{side}_{part}"][row]
    return made


def _copies(records: np.ndarray, schema: str, out: Path) -> None:
    """The records COPIES times, each a day after the last and behind an R record, packed as the archive packs."""
    import databento_dbn

    from foxhunt_assets.contracts.instruments import UNDEF_PRICE
    from tests.market import made_dbn as made

    clear = records[:1].copy()
    clear["action"], clear["side"], clear["price"], clear["size"] = ord("R"), ord("N"), UNDEF_PRICE, 0
    mapping = {"ESH4": [(made.date(2023, 12, 1), made.date(2024, 3, 15), int(records["instrument_id"][0]))]}
    with out.open("wb") as raw, zstandard.ZstdCompressor(level=3, write_checksum=True).stream_writer(raw) as f:
        f.write(made.metadata(databento_dbn.Schema.from_str(schema), mapping))
        for day in range(COPIES):
            for part in (clear.copy(), records.copy()):
                part["ts_event"] += np.uint64(day * _DAY_NS)
                part["ts_recv"] += np.uint64(day * _DAY_NS)
                f.write(part.tobytes())


def packing(files: dict[str, Path]) -> None:
    """How often the begin of each MBP-10 file packs, beside the one long file that a venue's own MBP-10 came in."""
    frog = Path(os.environ.get("FOXHUNT_REAL_DATA", "")) / FROG
    parts = {name: _records(files[name], _PACKED) for name in ("mbp", "real") if name in files}
    if frog.is_file():
        parts["FROG"] = _records(frog, _PACKED)
    for name, records in parts.items():
        packed = len(zstandard.ZstdCompressor(level=3, write_checksum=True).compress(records.tobytes()))
        levels = records["levels"]
        moved = (levels[1:] != levels[:-1]).sum(axis=1).mean()
        print(f"{name}: {len(records):,} records pack {records.nbytes / packed:.1f} times, {moved:.2f} levels moved")


def decompress(path: Path, _: Path) -> int:
    """The floor: the bytes unpacked into one reused buffer and thrown away; 128 KB was the fastest buffer."""
    buffer, n = bytearray(2**17), 0
    with path.open("rb") as f, zstandard.ZstdDecompressor().stream_reader(f, read_across_frames=True) as stream:
        while got := stream.readinto(buffer):
            n += got
    return n


def decode(path: Path, out: Path, known: Any, written: Any = None) -> int:
    from foxhunt_assets.contracts.instruments import CONTRACTS
    from foxhunt_assets.market import snapshots

    return snapshots.decode(path, out, CONTRACTS["ES"], snapshots.EVENT_CLOCK, known=known, written=written)["records"]


def commit(path: Path, out: Path, known: Any) -> int:
    from foxhunt_assets import storage
    from foxhunt_assets.market import snapshots

    n = 0
    written = snapshots.Written()

    def write(folder: Path) -> dict[str, storage.Hashed]:
        nonlocal n
        n = decode(path, folder, known, written)
        return written.hashes

    def validate(folder: Path) -> None:
        snapshots.validate(folder, written)

    storage.build_folder(out / "committed", write, validate, out / "quarantine", {})
    return n


def hash_source(path: Path, _: Path) -> int:
    from foxhunt_assets import storage

    storage.file_sha256(path)
    return 0


def floor(path: Path, out: Path) -> int:
    """What no decoder can leave out of a committed file: unpack or read, write as many bytes, hash them, fsync."""
    n, left = decompress(path, out) if path.suffix == ".zst" else _read(path), int((out / "bytes").read_text())
    buffer, digest = memoryview(bytearray(2**18)), hashlib.sha256()
    with (out / "raw").open("wb", buffering=0) as f:
        while left > 0:
            part = buffer[: min(left, len(buffer))]
            f.write(part)
            digest.update(part)
            left -= len(part)
        os.fsync(f.fileno())
    return n


def _read(path: Path) -> int:
    buffer, n = bytearray(2**18), 0
    with path.open("rb", buffering=0) as f:
        while got := f.readinto(buffer):
            n += got
    return n


def to_parquet(path: Path, out: Path) -> int:
    import databento

    databento.DBNStore.from_file(path).to_parquet(out / "peer.parquet")
    return 0


def _tape() -> dict[str, Any]:
    import torch

    torch.set_num_threads(1)
    rng = np.random.default_rng(0)
    mid = 40_000 + np.cumsum(rng.integers(-1, 2, ROWS))
    bid = torch.from_numpy((mid // 2).astype(np.int32))
    return {
        "mid": torch.from_numpy(mid),
        "mid32": torch.from_numpy(mid.astype(np.int32)),
        "bid": bid,
        "ask": bid + 1,
        "segment": torch.zeros_like(bid),
    }


def label(_: Path, __: Path, tape: dict[str, Any]) -> int:
    from foxhunt_assets.market.labels import make_labels

    make_labels(tape["bid"], tape["ask"], tape["segment"], HORIZONS, SIGMA)
    return ROWS


def copy_mid(_: Path, __: Path, tape: dict[str, Any], column: str = "mid") -> int:
    for _h in HORIZONS:
        tape[column].clone()
    return ROWS


def copy_mid32(_: Path, __: Path, tape: dict[str, Any]) -> int:
    return copy_mid(_, __, tape, "mid32")


WHAT: dict[str, tuple[Callable[..., int], str]] = {
    f"{kind} {what}": (function, source + suffix)
    for kind, source in (("real", "real"), ("generated", "mbp"))
    for what, function, suffix in (
        ("unpack", decompress, ""),
        ("decode", decode, ""),
        ("committed", commit, ""),
        ("floor", floor, ""),
        ("to_parquet", to_parquet, ""),
        ("plain decode", decode, ".plain"),
        ("plain committed", commit, ".plain"),
        ("plain floor", floor, ".plain"),
    )
} | {
    "sha256 of real plain": (hash_source, "real.plain"),
    "MBO unpack": (decompress, "mbo"),
    "MBO decode": (decode, "mbo"),
    "MBO committed": (commit, "mbo"),
    "MBO floor": (floor, "mbo"),
    "labels": (label, "tape"),
    "copy mid three times": (copy_mid, "tape"),
    "the same in int32": (copy_mid32, "tape"),
}


def measure(name: str, path: Path, small: Path, out: Path) -> dict[str, float]:
    """One row in this process: CPU s, wall s, peak MB above the start, items."""
    function, source = WHAT[name]
    more: tuple[Any, ...] = (_tape(),) if source == "tape" else ()
    if function in (decode, commit):
        from foxhunt_assets import storage

        for n, first in enumerate([small] + [path.parent / "hour"] * (source == "mbo")):
            (out / f"warm{n}").mkdir()
            commit(first, out / f"warm{n}", None)
        more = (storage.hashed(path),)
    for _ in range(2 if source == "tape" else 0):
        function(path, out, *more)
    Path("/proc/self/clear_refs").write_text("5")
    held, wall, cpu = _memory("VmRSS"), time.perf_counter(), _cpu()
    n = function(path, out, *more)
    return {"cpu": _cpu() - cpu, "wall": time.perf_counter() - wall, "mb": _memory("VmHWM") - held, "n": n}


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _memory(field: str) -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(field))


def child(name: str, files: dict[str, Path], work: Path) -> dict[str, float]:
    """Measure in a fresh process and clean up what it wrote."""
    source = WHAT[name][1]
    out, size = work / "out", work / f"{source}.bytes"
    out.mkdir()
    (out / "bytes").write_text(size.read_text() if size.is_file() else "0")
    command = [sys.executable, __file__, "--measure", name, str(files.get(source, work)), str(files["small"]), str(out)]
    found = subprocess.run(command, check=True, capture_output=True, text=True)
    if WHAT[name][0] is decode:
        size.write_text(str((out / "snapshots.arrow").stat().st_size))
    shutil.rmtree(out)
    return json.loads(found.stdout.splitlines()[-1])


def peer(python: str, hour: Path) -> dict[str, float] | None:
    """nautilus_trader over one hour, ten levels with prices, sizes and counts at each event end."""
    done = subprocess.run([python, "-c", PEER, str(hour)], capture_output=True, text=True)
    if done.returncode:
        print(f"left out: nautilus_trader in {python} ({(done.stderr.strip().splitlines() or ['?'])[-1]})")
        return None
    return json.loads(done.stdout.splitlines()[-1])


def parallel(files: dict[str, Path], work: Path) -> str:
    """Wall time of as many files as cores, one process and then one a core; the files written must be the same."""
    cores, walls, bytes_of = os.cpu_count() or 1, [], []
    for processes in (1, cores):
        outs = [work / f"many{processes}-{n}" for n in range(cores)]
        with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
            for out in outs:
                out.mkdir()
                (out / "warm").mkdir()
            list(pool.map(decode, [files["small"]] * cores, [out / "warm" for out in outs], [None] * cores))
            start = time.perf_counter()
            list(pool.map(decode, [files["mbp"]] * cores, outs, [None] * cores))
            walls.append(time.perf_counter() - start)
        bytes_of.append([(out / "snapshots.arrow").read_bytes() for out in outs])
    same = "identical" if bytes_of[0] == bytes_of[1] else "DIFFERENT"
    return f"{cores} files: {walls[0]:.2f} s in one process, {walls[1]:.2f} s in {cores}, {same} (warm)"


def features() -> str:
    """CPU s of the feature table over ROWS snapshots, against reading its inputs and writing its output once."""
    import torch

    from foxhunt_assets.contracts.tables import SNAPSHOTS
    from foxhunt_assets.market import features as table

    torch.set_num_threads(1)
    levels = torch.arange(10, dtype=torch.int32).expand(ROWS, 10)
    made = {}
    for column in SNAPSHOTS:
        wide = column.type.startswith("fixed")
        made[column.name] = levels + 1 if wide else torch.zeros(ROWS, dtype=getattr(torch, column.type))
    made["bid_px"], made["ask_px"] = 20_000 - levels, 20_001 + levels
    made["ts"] = 1_709_000_000 * 10**9 + torch.arange(ROWS) * 250_000_000
    made["ts_event"] = made["ts"] - 10**6
    used = {name: made[name] for name in table.COLUMNS}
    segment = torch.zeros(ROWS, dtype=torch.int32)
    table.compute({name: column[:1000] for name, column in used.items()}, segment[:1000])
    start = time.process_time()
    out = table.compute(used, segment)
    taken = time.process_time() - start
    start = time.process_time()
    moved = [column.clone() for column in used.values()] + [out.clone()]
    floor = time.process_time() - start
    megabytes = sum(m.numel() * m.element_size() for m in moved) / 1e6
    return f"{taken:.2f} CPU s, {taken / floor:.1f} times copying its {megabytes:.0f} MB of inputs and output once"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=600_000, help="generated MBP-10 records")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--peer-python", default=sys.executable, help="interpreter that has nautilus_trader")
    parser.add_argument("--measure", nargs=4, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.measure:
        name, path, small, out = args.measure
        print(json.dumps(measure(name, Path(path), Path(small), Path(out))))
        return 0
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        files = inputs(work, args.records)
        if "hour" in files:
            (work / "hour").symlink_to(files["hour"])
        else:
            print("left out: the rows of real books (FOXHUNT_REAL_DATA is not set)")
        packing(files)
        names = [n for n, (_, source) in WHAT.items() if source in files or source == "tape"]
        rounds = [{n: child(n, files, work) for n in names} for _ in range(args.rounds)]
        least = {n: {k: min(r[n][k] for r in rounds) for k in ("cpu", "wall")} for n in names}
        for name, row in least.items():
            row |= {"mb": max(r[name]["mb"] for r in rounds), "n": rounds[0][name]["n"]}
        report(least, peer(args.peer_python, files["hour"]) if "hour" in files else None)
        print(f"files in parallel: {parallel(files, work)}")
        print(f"features of {ROWS:,} snapshots: {features()}")
    return 0


def report(m: dict[str, dict[str, float]], nautilus: dict[str, float] | None) -> None:
    load = os.getloadavg()[0]
    print(f"load {load:.1f} on {os.cpu_count()} cores")
    print(f"{'row':24}{'CPU s':>9}{'wall s':>9}{'extra MB':>10}{'M rec/CPU s':>13}")
    records = {WHAT[name][1]: row["n"] for name, row in m.items() if WHAT[name][0] in (decode, label)}
    for name, row in m.items():
        rate = records[WHAT[name][1]] / row["cpu"] / 1e6
        print(f"{name:24}{row['cpu']:9.3f}{row['wall']:9.3f}{row['mb']:10.1f}{rate:13.2f}")
    ratios = [
        (f"{kind} {a} / {b}{bar}", f"{kind} {a}", f"{kind} {b}")
        for kind in ("real", "generated", "MBO")
        for a, b, bar in (
            ("committed", "unpack", " (bar 2.0)" if kind != "MBO" else ""),
            ("floor", "unpack", ""),
            ("committed", "floor", ""),
            ("decode", "unpack", ""),
            ("to_parquet", "committed", " (bar 10)"),
            ("to_parquet", "decode", ""),
        )
    ]
    ratios += [
        ("labels / copy mid three times (bar 3)", "labels", "copy mid three times"),
        ("labels / the same in int32", "labels", "the same in int32"),
    ]
    for text, a, b in ratios:
        if a in m and b in m:
            print(f"{text:52}{m[a]['cpu'] / m[b]['cpu']:8.2f}")
    if nautilus:
        ours = m["MBO committed"]["cpu"] / records["mbo"]
        theirs = nautilus["cpu"] / (records["mbo"] / COPIES)
        print(f"{'nautilus_trader ten levels / MBO committed (bar 20)':52}{theirs / ours:8.1f}")


if __name__ == "__main__":
    sys.exit(main())
