"""Databento Binary Encoding: header and streaming readers of its records. Nothing about books here.

Format: DBN 1, 2 and 3 as the `dbn` crate writes them, plain or zstd (any number of frames). A record of either
schema has the same bytes in all three versions; only the metadata block differs. A cut file is an error, never
a shorter file.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

import databento_dbn
import numpy as np
import zstandard

from foxhunt_assets.errors import BadInput
from foxhunt_assets.market.frames import zstd_frames

BATCH = 16_368  # rows a buffer; a power of two makes the column copies alias in cache and run 14 times slower
UNDEF_TS = 2**64 - 1

F_LAST, F_TOB, F_SNAPSHOT, F_MBP = 128, 64, 32, 16  # record flags are bits: 130 and 168 carry F_LAST too
F_BAD_TS_RECV, F_MAYBE_BAD_BOOK, F_PUBLISHER = 8, 4, 2
FLAG_NAMES = {
    F_LAST: "last", F_TOB: "top_of_book", F_SNAPSHOT: "snapshot", F_MBP: "mbp",
    F_BAD_TS_RECV: "bad_ts_recv", F_MAYBE_BAD_BOOK: "maybe_bad_book", F_PUBLISHER: "publisher_specific",
}  # fmt: skip

_HEADER = [("length", "u1"), ("rtype", "u1"), ("publisher_id", "<u2"), ("instrument_id", "<u4"), ("ts_event", "<u8")]
HEADER_BYTES = 16  # of every record
_LEVEL = [
    ("bid_px", "<i8"),
    ("ask_px", "<i8"),
    ("bid_sz", "<u4"),
    ("ask_sz", "<u4"),
    ("bid_ct", "<u4"),
    ("ask_ct", "<u4"),
]
_MBP10: list[tuple] = (
    [*_HEADER, ("price", "<i8"), ("size", "<u4"), ("action", "u1"), ("side", "u1"), ("flags", "u1"), ("depth", "u1"),
     ("ts_recv", "<u8"), ("ts_in_delta", "<i4"), ("sequence", "<u4"), ("levels", _LEVEL, (10,))]
)  # fmt: skip
_MBO: list[tuple] = (
    [*_HEADER, ("order_id", "<u8"), ("price", "<i8"), ("size", "<u4"), ("flags", "u1"), ("channel_id", "u1"),
     ("action", "u1"), ("side", "u1"), ("ts_recv", "<u8"), ("ts_in_delta", "<i4"), ("sequence", "<u4")]
)  # fmt: skip
FIELDS = {"mbp-10": _MBP10, "mbo": _MBO}
MBP10_DTYPE, MBO_DTYPE = np.dtype(_MBP10), np.dtype(_MBO)
RTYPES = {"mbp-10": 10, "mbo": 160}
ONE_LEVEL = ("mbp-1", "tbbo", "bbo-1s", "bbo-1m")  # fit to look at, too little to train on
NOT_DBN = 0

_ZSTD, _SKIPPABLE = b"\x28\xb5\x2f\xfd", b"\x2a\x4d\x18"
_GZIP = b"\x1f\x8b"
_VERSIONS = (1, 2, 3)
_READ_BYTES = 2**18  # small enough that records are still in the core's own cache when a pass comes to them
_GROUP_BYTES = 6 * 2**20
DAY_NS = 86_400 * 10**9


@dataclass(frozen=True)
class Mapping:
    """One symbol of one instrument id over [start_ns, end_ns), both UTC midnights compared with ts_recv."""

    symbol: str
    instrument_id: int
    start_ns: int
    end_ns: int


@dataclass(frozen=True)
class Header:
    """The metadata of a DBN file. start, end: ns UTC of the request (end None: open). schema None: mixed records.

    version: NOT_DBN for a file of another encoding. partial, not_found: symbols of the request that some of its days,
    or all of them, do not know.
    """

    version: int
    schema: str | None
    dataset: str
    start: int
    end: int | None
    ts_out: bool
    stype_in: str | None
    symbols: tuple[str, ...]
    mappings: tuple[Mapping, ...]
    partial: tuple[str, ...] = ()
    not_found: tuple[str, ...] = ()

    @property
    def dtype(self) -> np.dtype:
        """Record layout; a file with ts_out has the send time after each record."""
        fields = FIELDS[str(self.schema)]
        return np.dtype([*fields, ("ts_out", "<u8")] if self.ts_out else fields)


class DbnStream:
    """An open file of any schema: `header`, then `groups()` once. Use as a context manager."""

    warnings: tuple[str, ...] = ()  # what a reader of another encoding had to assume

    def __init__(self, path: Path):
        self.path = path
        self._raw, self._stream = _open(path)
        self._size = max(path.stat().st_size, 1)
        self.header = _decode_header(path, self._stream)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stream.close()
        self._raw.close()

    def _check_whole(self) -> None:
        """BadInput if a packed file ends inside a frame: unpacking would end there without a word."""
        if self._stream is not self._raw:
            zstd_frames(self.path)

    @property
    def fraction(self) -> float:
        """Share of the file's bytes read so far."""
        return self._raw.tell() / self._size

    def groups(self) -> Iterator[np.ndarray]:
        """Records as uint8 [n, length], each array of one length, in file order; for whatever a file holds.

        Each array is good until the next turn. A record says its own length, so files of mixed records can be walked.
        """
        buffer = np.empty(_GROUP_BYTES // 8, np.int64).view(np.uint8)
        kept = done = 0
        self._check_whole()
        while True:
            filled = kept + _fill(self.path, self._stream, buffer.data[kept:])
            at = 0
            while (n := _run_of_one_length(buffer[at:filled])) > 0:
                size = 4 * int(buffer[at])
                yield buffer[at : at + n * size].reshape(n, size)
                at += n * size
                done += n
            kept = filled - at
            if filled < buffer.size or n < 0:
                break
            buffer[:kept] = buffer[at:filled].copy()
        if kept:
            raise BadInput(f"{self.path}: {_unfinished(done, kept, 4 * int(buffer[at]))}")


class DbnReader(DbnStream):
    """An open file of one book schema: `header`, then `batches()` once. Use as a context manager."""

    def __init__(self, path: Path):
        super().__init__(path)
        try:
            require_book_schema(path, self.header)
        except BadInput:
            self.__exit__()
            raise

    def batches(self) -> Iterator[np.ndarray]:
        """Records as uint8 [n, record size] in one small reused buffer: copy what must outlive the turn."""
        size = self.header.dtype.itemsize
        buffer = np.empty(_READ_BYTES // size * size // 8, np.int64).view(np.uint8)  # int64: every field is aligned
        self._check_whole()
        done = 0
        while True:
            filled = _fill(self.path, self._stream, buffer.data)
            if filled % size:
                raise BadInput(f"{self.path}: {_unfinished(done + filled // size, filled % size, size)}")
            if filled:
                yield buffer[:filled].reshape(-1, size)
            done += filled // size
            if filled < buffer.size:
                return


def _run_of_one_length(octets: np.ndarray) -> int:
    """How many whole records at the start have the length of the first; -1 where it is too short for a record."""
    if not octets.size:
        return 0
    size = 4 * int(octets[0])
    if size < HEADER_BYTES:
        return -1
    same = octets[: octets.size // size * size : size] == octets[0]
    return len(same) if same.all() else int(same.argmin())


def _unfinished(index: int, there: int, size: int) -> str:
    if size < HEADER_BYTES:
        return f"record {index} says that its length is {size} bytes; the file is damaged: download it again"
    return (
        f"ends inside record {index} ({there} of {size} bytes); the file is cut or two files were joined: "
        "download it again"
    )


def read_header(path: Path) -> Header:
    """The header of any DBN file, whatever its schema."""
    raw, stream = _open(path)
    with raw, stream:
        return _decode_header(path, stream)


def bad_record(path: Path, header: Header, index: int, record: np.ndarray) -> BadInput:
    """What to say about record `index` whose length or rtype is not the schema's. record: its uint8 bytes."""
    want = (header.dtype.itemsize // 4, RTYPES[str(header.schema)])
    return BadInput(
        f"{path}: record {index} has length {record[0]} and rtype {record[1]}, an {header.schema} record has "
        f"{want[0]} and {want[1]}; a live capture or joined files: download the {header.schema} batch file again"
    )


def _open(path: Path) -> tuple[Any, Any]:
    if not path.is_file():
        raise BadInput(f"{path}: no such file")
    raw = path.open("rb", buffering=0)
    magic = raw.read(4)
    if not magic:
        raise BadInput(f"{path}: empty file; download it again")
    raw.seek(0)
    if magic[:2] == _GZIP:
        raise BadInput(f"{path}: byte 0: gzip, which Databento does not use; download it as DBN")
    if magic[1:] == _SKIPPABLE:
        raise BadInput(f"{path}: byte 0: a DBZ file, the format before DBN; convert it with Databento's dbn tool")
    if magic != _ZSTD:
        return raw, raw
    return raw, zstandard.ZstdDecompressor().stream_reader(raw, read_across_frames=True, closefd=False)


def _fill(path: Path, stream: Any, into: memoryview) -> int:
    """Bytes read until the buffer is full or the stream ends."""
    filled = 0
    try:
        while filled < len(into) and (got := stream.readinto(into[filled:])):
            filled += got
    except (OSError, zstandard.ZstdError) as error:
        raise BadInput(f"{path}: {error} after a good start; the file is cut or damaged: download it again") from None
    return filled


def _decode_header(path: Path, stream: Any) -> Header:
    head = bytearray(8)
    got = _fill(path, stream, memoryview(head))
    if got < 8 or head[:3] != b"DBN":
        raise BadInput(f"{path}: byte 0: no DBN header (a fragment, or no Databento file); download it as DBN")
    if head[3] not in _VERSIONS:
        raise BadInput(f"{path}: DBN version {head[3]}, this reader knows 1 to 3; convert it with Databento's dbn tool")
    body = bytearray(int.from_bytes(head[4:], "little"))
    if _fill(path, stream, memoryview(body)) < len(body):
        raise BadInput(f"{path}: ends inside the header; the file is cut: download it again")
    as_is: Any = databento_dbn.VersionUpgradePolicy.AS_IS
    try:
        return _header(databento_dbn.Metadata.decode(bytes(head + body), upgrade_policy=as_is))
    except (databento_dbn.DBNError, ValueError) as error:
        raise BadInput(f"{path}: header does not decode ({error}); download it again") from None


def _instrument_id(text: str) -> int:
    if not 0 <= int(text) < 2**32:
        raise ValueError(f"instrument id {text} is no uint32")
    return int(text)


def _header(meta: Any) -> Header:
    mappings = [
        Mapping(symbol, _instrument_id(part["symbol"]), midnight(part["start_date"]), midnight(part["end_date"]))
        for symbol, parts in meta.mappings.items()
        for part in parts
        if part["symbol"] and part["start_date"] < part["end_date"]  # an empty interval maps nothing
    ]
    return Header(
        version=meta.version,
        schema=None if meta.schema is None else str(meta.schema),
        dataset=meta.dataset,
        start=meta.start,
        end=meta.end,
        ts_out=meta.ts_out,
        stype_in=None if meta.stype_in is None else str(meta.stype_in),
        symbols=tuple(meta.symbols),
        mappings=tuple(sorted(mappings, key=lambda m: (m.instrument_id, m.start_ns))),
        partial=tuple(meta.partial),
        not_found=tuple(meta.not_found),
    )


def midnight(day: Any) -> int:
    """ns UTC of the start of a day, at most the last instant an int64 holds (2262): a damaged date may lie beyond."""
    return min((day.toordinal() - datetime(1970, 1, 1, tzinfo=UTC).toordinal()) * DAY_NS, 2**63 - 1)


def require_book_schema(path: Path, header: Header) -> None:
    """BadInput unless ten levels can be had from the records."""
    if header.schema not in FIELDS:
        what = f"schema {header.schema}" if header.schema else "mixed schemas (a live capture)"
        holds = "holds one book level, not ten" if header.schema in ONE_LEVEL else "does not hold ten book levels"
        raise BadInput(f"{path}: {what} {holds}; download schema mbp-10, or mbo")
