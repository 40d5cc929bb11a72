"""Broken copies of small order-book files, and what a reader may do with them: decode what they say, or refuse.

    python -m tests.market.fuzz --files 2000 --seed 0

Each mutant is decoded under a time limit (a decode that hangs is stopped and counted as a failure). It must end in
a one-line BadInput that names the file, or in a report that accounts for every record the file holds. What the file
holds is counted outside the decoder: its bytes are unpacked by zstandard (frame by frame, each to its end) or zipfile,
and the length byte of each record is followed, or the lines of a CSV counted. A cut, damaged or foreign tail therefore
never passes as a shorter file. `inspect` is asked too: it must call usable what is decoded, and nothing else. Half of
the packed files are broken inside and packed again, so that the damage gets past the checksums to the books. What
nobody can see is a plain file cut or changed between two whole records.
"""

from __future__ import annotations

import argparse
import collections
import io
import signal
import sys
import tempfile
import traceback
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import databento
import numpy as np
import zstandard

from foxhunt_assets.contracts.instruments import CONTRACTS
from foxhunt_assets.errors import BadInput
from foxhunt_assets.market import inspect, snapshots
from tests.market import made_dbn as made

T0 = made.ns("2024-03-01T15:00:00")
SECONDS = 20  # the limit of one decode; a sound mutant takes milliseconds
KINDS = ("cut", "bit", "byte", "word", "splice", "repeat", "drop")
WORDS = (0, 1, -1, 2**31, 2**32 - 1, 2**63 - 1, -(2**63), T0, T0 + 10**15)  # extreme prices, sizes, flags and times


ZSTD = b"\x28\xb5\x2f\xfd"


class TooSlow(Exception):
    """A decode that ran into its time limit."""


def originals(folder: Path) -> list[Path]:
    """MBP-10 and MBO, plain and compressed, one frame and several."""
    mbp = [made.mbp(T0 + i * made.MS, 20_000 + i % 7, 20_001 + i % 7, action="ACMT"[i % 4]) for i in range(60)]
    mbo = [made.mbo(T0, "R", "N", 0, 0, 0)] + [
        made.mbo(T0 + i * made.MS, "AAACM"[i % 5], "BA"[i % 2], 1 + i % 40, 20_000 + i % 9, 1 + i) for i in range(199)
    ]
    head = made.metadata(made.databento_dbn.Schema.MBP_10), made.metadata(made.databento_dbn.Schema.MBO)
    both = np.concatenate(mbp).tobytes(), np.concatenate(mbo).tobytes()
    out = []
    for name, header, body, cut in zip(("mbp", "mbo"), head, both, (368 * 20, 56 * 70), strict=True):
        out.append(made.write(folder / f"{name}.dbn", [header + body]))
        out.append(made.write(folder / f"{name}.dbn.zst", [header + body]))
        out.append(made.write(folder / f"{name}-frames.dbn.zst", [header, body[:cut], body[cut:]]))
        store = databento.DBNStore.from_file(out[-1])
        out += [folder / f"{name}.csv", folder / f"{name}.csv.zst", folder / f"{name}.zip"]
        store.to_csv(out[-3])
        store.to_csv(out[-2], pretty_px=False, pretty_ts=False, compression="zstd")
        out[-1].write_bytes(pack(out[-3].read_bytes(), ".zip"))
    return out


def pack(data: bytes, suffix: str) -> bytes:
    """Bytes of a file of that kind with the data in it: one zstd frame, a zip of one CSV, or the data."""
    if suffix == ".zst":
        return zstandard.ZstdCompressor(level=3, write_checksum=True).compress(data)
    if suffix == ".zip":
        with io.BytesIO() as raw:
            with zipfile.ZipFile(raw, "w", zipfile.ZIP_DEFLATED) as z:
                z.writestr("data.csv", data)
            return raw.getvalue()
    return data


def unpack(data: bytes) -> bytes | None:
    """What lies in a file, by its first bytes; None if it is not whole."""
    plain = b""
    try:
        if data[:2] == b"PK":
            with zipfile.ZipFile(io.BytesIO(data)) as z:
                return z.read(z.namelist()[0])
        while data[:4] == ZSTD:
            frame = zstandard.ZstdDecompressor().decompressobj()
            plain += frame.decompress(data)
            if not frame.eof:
                return None
            data = frame.unused_data
    except (zstandard.ZstdError, zipfile.BadZipFile, zlib.error):
        return None
    return plain + data


def mutate(rng: np.random.Generator, data: bytes, other: bytes) -> tuple[str, bytes]:
    """One broken copy and how it was broken. other: another file, for splices."""
    kind, at = KINDS[rng.integers(len(KINDS))], int(rng.integers(len(data)))
    length = int(rng.integers(1, 400))
    if kind == "cut":
        return kind, data[:at]
    if kind == "drop":
        return kind, data[:at] + data[at + length :]
    if kind == "repeat":
        return kind, data[: at + length] + data[at:]
    if kind == "splice":
        return kind, data[:at] + other[int(rng.integers(len(other))) :]
    broken = bytearray(data)
    for where in rng.integers(len(data), size=int(rng.integers(1, 4))):
        if kind == "bit":
            broken[where] ^= 1 << int(rng.integers(8))
        elif kind == "byte":
            broken[where] = int(rng.integers(256))
        else:
            word = WORDS[rng.integers(len(WORDS))].to_bytes(9, "little", signed=True)[: int(rng.integers(1, 9))]
            broken[where : where + len(word)] = word
    return kind, bytes(broken[: len(data)])


def records_in(data: bytes) -> int | None:
    """Records of a whole file, None if it is not whole: its frames, its last record, its last line."""
    plain = unpack(data)
    if plain is None:
        return None
    if plain[:3] != b"DBN":
        return len([line for line in plain.split(b"\n")[1:] if line.strip()])
    at, n = 8 + int.from_bytes(plain[4:8], "little"), 0
    while at < len(plain) and plain[at] and at + plain[at] * 4 <= len(plain):
        at, n = at + plain[at] * 4, n + 1
    return n if at == len(plain) else None


def judge(path: Path, out: Path) -> tuple[str, str]:
    """(decoded | refused | FAILED, why) of one file. `inspect` must say of it what the decoder does."""
    verdict, why = _decoded(path, out)
    if verdict == "FAILED":
        return verdict, why
    try:
        with time_limit():
            facts = inspect.inspect(path)
    except BadInput as error:
        facts = {"usable": False, "verdict": str(error)}
    except TooSlow:
        return "FAILED", f"inspect: more than {SECONDS} s"
    except Exception:
        return "FAILED", f"inspect: {traceback.format_exc(limit=-3)}"
    if facts["usable"] != (verdict == "decoded"):
        return "FAILED", f"{verdict} ({why}), but inspect says: {facts['verdict']}"
    return verdict, why


def _decoded(path: Path, out: Path) -> tuple[str, str]:
    try:
        with time_limit():
            report = snapshots.decode(path, out, CONTRACTS["ES"], 0)
    except BadInput as error:
        one_line = "\n" not in str(error) and path.name in str(error)
        return ("refused", str(error)) if one_line else ("FAILED", f"the error does not name the file: {error}")
    except TooSlow:
        return "FAILED", f"more than {SECONDS} s"
    except Exception:
        return "FAILED", traceback.format_exc(limit=-3)
    held = records_in(path.read_bytes())
    if report["records"] != held:
        return "FAILED", f"a silent short read: {report['records']} records reported, {held} in the file"
    seen = sum(report["actions"].values())
    if seen != held:
        return "FAILED", f"{seen} records by action, {held} in the file"
    return "decoded", f"{held} records"


@contextmanager
def time_limit() -> Iterator[None]:
    def stop(*_: object) -> None:
        raise TooSlow

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def run(folder: Path, files: int, seed: int) -> tuple[collections.Counter[tuple[str, str]], list[str]]:
    """Break, decode and judge `files` mutants; returns counts of (kind, verdict) and what failed."""
    rng = np.random.default_rng(seed)
    sources = originals(folder)
    contents = [p.read_bytes() for p in sources]
    counts: collections.Counter[tuple[str, str]] = collections.Counter()
    failed = []
    out = folder / "out"
    out.mkdir()
    for path in sources:
        snapshots.decode(path, out, CONTRACTS["ES"], 0)  # the first decode compiles, which no time limit should see
    for n in range(files):
        which = int(rng.integers(len(sources)))
        data, other, suffix = contents[which], contents[int(rng.integers(len(sources)))], sources[which].suffix
        inside = suffix in (".zst", ".zip") and rng.random() < 0.5
        kind, data = mutate(rng, unpack(data) or b"", unpack(other) or b"") if inside else mutate(rng, data, other)
        data = pack(data, suffix) if inside else data
        path = folder / f"mutant-{n}-{sources[which].name}"
        path.write_bytes(data)
        verdict, why = judge(path, out)
        counts[kind, verdict] += 1
        if verdict == "FAILED":
            failed.append(f"seed {seed} mutant {n} ({kind} of {sources[which].name}): {why}")
        else:
            path.unlink()
    return counts, failed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=2_000)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        counts, failed = run(Path(folder), args.files, args.seed)
    for kind in KINDS:
        print(kind, ", ".join(f"{v} {counts[kind, v]}" for v in ("decoded", "refused", "FAILED")))
    print(f"{sum(counts.values())} mutants, {len(failed)} failed")
    print(*failed[:20], sep="\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
