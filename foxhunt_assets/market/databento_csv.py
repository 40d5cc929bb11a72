"""Databento's CSV encoding of MBP-10 and MBO, plain, zstd or zipped, as the records of the same data in DBN.

Columns are found by name, so their order and further columns do not matter. Prices are decimal points or 1e-9 units
(told apart by the decimal point), times ISO 8601 or ns; a blank price is an absent one. A CSV has no metadata: the
symbols come from its symbol column, else from a symbology file beside it, and the span from its records. That takes a
first pass over three columns; both passes stream, so memory does not grow with the file.
"""

from __future__ import annotations

import csv
import io
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from functools import lru_cache
from pathlib import Path
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv

from foxhunt_assets.contracts.instruments import UNDEF_PRICE
from foxhunt_assets.contracts.tables import LEVELS
from foxhunt_assets.errors import BadInput
from foxhunt_assets.market import symbology
from foxhunt_assets.market.dbn import BATCH, DAY_NS, FIELDS, NOT_DBN, RTYPES, UNDEF_TS, Header, Mapping

PUBLISHERS = {1: "GLBX.MDP3", 2: "XNAS.ITCH"}  # publisher_id: its dataset
_BLOCK = 2**20  # bytes parsed at a time
_SAMPLE = 2**16  # bytes looked at to tell how prices and times are written
_PRICE = pa.decimal128(19, 9)  # every int64 of 1e-9 units fits
_LEVEL_FIELDS = ("bid_px", "ask_px", "bid_sz", "ask_sz", "bid_ct", "ask_ct")
_NEEDED = {
    "mbp-10": ("ts_event", "instrument_id", "action", "side", "price", "size", "flags"),
    "mbo": ("ts_event", "instrument_id", "action", "side", "price", "size", "flags", "order_id"),
}
_OPTIONAL = ("rtype", "publisher_id", "depth", "channel_id", "ts_in_delta", "sequence")  # 0 where there is no column
_UNREADABLE = (OSError, EOFError, zipfile.BadZipFile, zlib.error)
_BAD_ARCHIVE = (
    *_UNREADABLE,
    RuntimeError,
    ValueError,
)  # unknown method, encrypted, undecodable name
_BLANK_SIDE = ord("N")


def level_columns(level: int) -> list[str]:
    """Names of the six columns of a level, in the order of a DBN record."""
    return [f"{name}_{level:02d}" for name in _LEVEL_FIELDS]


@dataclass(frozen=True)
class _Layout:
    """How one file writes its columns. names: as read, a repeated one renamed; types: of those that are needed."""

    schema: str | None
    names: tuple[str, ...]
    types: dict[str, pa.DataType]
    warnings: tuple[str, ...]

    @property
    def receive_time(self) -> str:
        return "ts_recv" if "ts_recv" in self.names else "ts_event"


class CsvReader:
    """An open CSV file of one book schema: `header`, then `batches()` once. Use as a context manager."""

    def __init__(self, path: Path):
        self.path = path
        self._layout = _layout(path)
        self.warnings = self._layout.warnings
        if self._layout.schema not in FIELDS:
            raise BadInput(_not_a_book(path, self._layout))
        _require_whole_lines(path)
        stat = path.stat()
        self.header = _header(path, stat.st_size, stat.st_mtime_ns)
        self._rows = 0
        self._raw, self._source = _open(path)
        self._size = _bytes_inside(path)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._source.close()
        self._raw.close()

    @property
    def fraction(self) -> float:
        """Share of the file's bytes read so far."""
        return 1.0 if self._raw.closed else self._raw.tell() / self._size

    def batches(self) -> Iterator[np.ndarray]:
        """Records in DBN's layout, uint8 [n, record size], n up to BATCH."""
        size = self.header.dtype.itemsize
        for table in _parse(self.path, self._source, self._layout, list(self._layout.types)):
            records = self._records(table)
            self._rows += len(records)
            for at in range(0, len(records), BATCH):
                yield records[at : at + BATCH].view(np.uint8).reshape(-1, size)

    def _records(self, table: pa.RecordBatch) -> np.ndarray:
        schema = str(self._layout.schema)
        column = {name: table.column(name) for name in table.schema.names}
        made = np.zeros(len(table), self.header.dtype)
        made["length"], made["rtype"] = self.header.dtype.itemsize // 4, RTYPES[schema]
        for name in ("instrument_id", *_NEEDED[schema][5:], *_OPTIONAL[1:]):
            if name in column and name in made.dtype.names:
                self._fill(made, name, _integers(column[name], 0))
        self._fill(made, "price", _prices(column["price"]))
        for name in ("ts_event", "ts_recv"):
            made[name] = _times(column.get(name, column["ts_event"]))
        for name in ("action", "side"):
            made[name] = self._letters(name, column[name])
        for level in range(LEVELS if schema == "mbp-10" else 0):
            for field, name in zip(_LEVEL_FIELDS, level_columns(level), strict=True):
                values = _prices(column[name]) if field.endswith("px") else _integers(column[name], 0)
                made["levels"][field][:, level] = self._fitting(name, values, np.dtype(made["levels"][field].dtype))
        self._require_rtype(column, schema)
        return made

    def _fill(self, made: np.ndarray, name: str, values: np.ndarray) -> None:
        made[name] = self._fitting(name, values, made[name].dtype)

    def _fitting(self, name: str, values: np.ndarray, kind: np.dtype) -> np.ndarray:
        """values, unless one does not fit the field of a DBN record."""
        limits = np.iinfo(kind)
        if kind.itemsize < 8 and len(values) and not limits.min <= values.min() <= values.max() <= limits.max:
            wrong = (values < limits.min) | (values > limits.max)
            raise self._bad(name, int(wrong.argmax()), f"{values[wrong][0]} does not fit {kind.itemsize} bytes")
        return values

    def _letters(self, name: str, column: pa.Array) -> np.ndarray:
        """One byte a row; a blank side is N, a blank action an error."""
        coded = column.fill_null("").dictionary_encode()
        blank = _BLANK_SIDE if name == "side" else 0
        text = coded.dictionary.to_pylist()
        codes = [ord(t) if len(t) == 1 and t.isascii() else blank if not t else 0 for t in text]
        letters = np.array(codes, np.uint8)[coded.indices.to_numpy(zero_copy_only=False)]
        if not letters.all():
            row = int(letters.argmin())
            raise self._bad(name, row, f"{column[row].as_py()!r} is not one letter")
        return letters

    def _require_rtype(self, column: dict[str, pa.Array], schema: str) -> None:
        if "rtype" in column:
            wrong = _integers(column["rtype"], RTYPES[schema]) != RTYPES[schema]
            if wrong.any():
                text = f"is not {RTYPES[schema]}, so not {schema}"
                raise self._bad("rtype", int(wrong.argmax()), text)

    def _bad(self, name: str, row: int, text: str) -> BadInput:
        return BadInput(f"{self.path}: row {self._rows + row}: {name} {text}; download the file again")


@lru_cache(maxsize=16)
def _header(path: Path, size: int, changed_ns: int) -> Header:
    """Symbols, dataset and span, from a first pass over their columns; kept while the file stays as it is."""
    layout = _layout(path)
    wanted = [n for n in ("instrument_id", "publisher_id", "symbol", layout.receive_time) if n in layout.types]
    seen: dict[tuple[int, int, str | None], None] = {}
    publishers: set[int] = set()
    first, last = UNDEF_TS, 0
    raw, source = _open(path)
    with raw, source:
        for table in _parse(path, source, layout, wanted):
            at = _times(table.column(layout.receive_time))
            first, last = min(first, int(at.min())), max(last, int(at.max()))
            seen |= dict.fromkeys(_instrument_days(table, at))
            if "publisher_id" in wanted:
                publishers |= set(table.column("publisher_id").unique().to_pylist())
    mappings = _mappings(path, layout, list(seen))
    datasets = sorted({PUBLISHERS.get(p, f"of publisher {p}") for p in publishers})
    return Header(
        version=NOT_DBN,
        schema=layout.schema,
        dataset=" and ".join(datasets) or "unknown",
        start=first if seen else 0,
        end=last + 1 if seen else None,
        ts_out=False,
        stype_in=None,
        symbols=tuple(sorted({m.symbol for m in mappings})),
        mappings=mappings,
    )


def _mappings(path: Path, layout: _Layout, seen: Sequence[tuple[int, int, str | None]]) -> tuple[Mapping, ...]:
    if "symbol" not in layout.types:
        beside = symbology.beside(path)
        if beside is None:
            raise BadInput(
                f"{path}: no symbol column and no symbology.json or symbology.csv beside it; "
                "put the symbology file of the download there, or download with symbols (map_symbols)"
            )
        return beside
    days: dict[tuple[int, str], list[int]] = {}
    meant: dict[tuple[int, int], str] = {}
    for instrument, day, symbol in seen:
        if symbol is None:
            continue  # unmapped, and counted as such
        if meant.setdefault((instrument, day), symbol) != symbol:
            raise BadInput(
                f"{path}: instrument {instrument} is {meant[instrument, day]} and {symbol} on one day; "
                "download the file again"
            )
        days.setdefault((instrument, symbol), []).append(day)
    return symbology.intervals({key: [_date(d) for d in values] for key, values in days.items()})


def _date(day: int) -> date:
    return date(1970, 1, 1) + timedelta(day)


def _instrument_days(table: pa.RecordBatch, at: np.ndarray) -> list[tuple[int, int, str | None]]:
    """Distinct (instrument id, day number, symbol) of a batch."""
    columns = {"id": table.column("instrument_id"), "day": pa.array((at // DAY_NS).astype(np.int64))}
    if "symbol" in table.schema.names:
        columns["symbol"] = table.column("symbol")
    groups = pa.table(columns).group_by(list(columns)).aggregate([])
    rows = groups.to_pylist()
    return [(row["id"], row["day"], row.get("symbol")) for row in rows]


def _open(path: Path) -> tuple[Any, Any]:
    """(what knows its place in the file, stream of the CSV text)."""
    if not path.is_file():
        raise BadInput(f"{path}: no such file")
    if path.suffix == ".zip":
        archive, member = _zipped(path)
        try:
            inside = archive.open(member)
        except _BAD_ARCHIVE as error:
            raise _damaged(path, error) from None
        return inside, pa.PythonFile(inside, mode="r")
    raw = pa.OSFile(str(path))
    return raw, pa.CompressedInputStream(raw, "zstd") if path.suffix == ".zst" else raw


def _bytes_inside(path: Path) -> int:
    """Length of the text where it is known, else of the file."""
    return max(_zipped(path)[1].file_size if path.suffix == ".zip" else path.stat().st_size, 1)


def _zipped(path: Path) -> tuple[zipfile.ZipFile, zipfile.ZipInfo]:
    try:
        archive = zipfile.ZipFile(path)
    except _BAD_ARCHIVE as error:
        raise BadInput(f"{path}: {error}; the archive is cut or damaged: download it again") from None
    members = [m for m in archive.infolist() if m.filename.endswith(".csv") and not m.filename.startswith("__MACOSX")]
    if len(members) != 1:
        raise BadInput(
            f"{path}: {len(members)} CSV files inside, expected one; unpack it and name the files one by one"
        )
    return archive, members[0]


def _damaged(path: Path, error: Exception) -> BadInput:
    text = " ".join(str(error).split())
    return BadInput(f"{path}: {text}; the file is cut, damaged or was edited: download it again")


def _require_whole_lines(path: Path) -> None:
    """A plain file that was cut can only show it in its last line."""
    if path.suffix != ".csv":
        return
    with path.open("rb") as f:
        f.seek(-1, io.SEEK_END)
        if f.read(1) not in b"\r\n":
            raise BadInput(f"{path}: the last line has no end; the file is cut: download it again")


def _layout(path: Path) -> _Layout:
    raw, source = _open(path)
    with raw, source:
        try:
            sample = source.read(_SAMPLE)
        except _UNREADABLE as error:
            raise _damaged(path, error) from None
    if not sample:
        raise BadInput(f"{path}: empty file; download it again")
    text = sample.decode("utf-8-sig", errors="replace")
    lines = text.splitlines() if len(sample) < _SAMPLE else text.splitlines()[:-1]
    rows = list(csv.reader(lines))
    if not rows or not any(name.isidentifier() for name in rows[0]):
        raise BadInput(f"{path}: line 1 names no columns; not a Databento CSV file")
    names, warnings = _unique_names(path, rows[0])
    schema = _schema_of(names)
    if schema in FIELDS and "ts_recv" not in names:
        warnings.append("no ts_recv column: ts_event taken as the time of receipt")
    types = _types(path, schema, names, rows[1:]) if schema in FIELDS else {}
    return _Layout(schema, tuple(names), types, tuple(warnings))


def _unique_names(path: Path, header: list[str]) -> tuple[list[str], list[str]]:
    """Column names with the first of two alike renamed, and what to say of it."""
    names, warnings = list(header), []
    for at, name in enumerate(header):
        if name and name in header[at + 1 :]:
            if name != "ts_event":
                raise BadInput(f"{path}: line 1: two columns are called {name!r}; rename or drop one")
            names[at] = f"{name} (column {at + 1})"
            warnings.append(f"two columns are called {name}: the last of them is used")
    return names, warnings


def _schema_of(names: list[str]) -> str | None:
    if "bid_px_09" in names:
        return "mbp-10"
    if "bid_px_00" in names:
        return "mbp-1"
    if "order_id" in names and "action" in names:
        return "mbo"
    return "ohlcv" if {"open", "high", "low", "close"} <= set(names) else None


def _types(path: Path, schema: str | None, names: list[str], rows: list[list[str]]) -> dict[str, pa.DataType]:
    levels = [n for k in range(LEVELS) for n in level_columns(k)] if schema == "mbp-10" else []
    needed = [*_NEEDED[str(schema)], *levels]
    missing = [n for n in needed if n not in names]
    if missing:
        raise BadInput(f"{path}: line 1: no column {', '.join(missing[:5])}; download schema {schema} again")
    first = {name: [row[at] for row in rows if at < len(row) and row[at]] for at, name in enumerate(names)}
    prices = [n for n in needed if "_px_" in n or n == "price"]
    decimal = any("." in value for name in prices for value in first[name])
    types: dict[str, pa.DataType] = {"action": pa.string(), "side": pa.string()}
    types |= {n: _PRICE if decimal else pa.int64() for n in prices}
    for name in ("ts_event", "ts_recv"):
        if name in names:
            types[name] = _time_type(first[name][0] if first[name] else "0")
    types |= {n: pa.int64() for n in (*needed, *_OPTIONAL) if n in names and n not in types}
    if "order_id" in types:
        types["order_id"] = pa.uint64()
    if "symbol" in names:
        types["symbol"] = pa.string()
    return types


def _time_type(example: str) -> pa.DataType:
    if example.isdecimal():
        return pa.uint64()
    zoned = example.endswith("Z") or example[19:].count("+") + example[19:].count("-") > 0
    return pa.timestamp("ns", "UTC") if zoned else pa.timestamp("ns")


def _parse(path: Path, source: Any, layout: _Layout, columns: list[str]) -> Iterator[pa.RecordBatch]:
    try:
        reader = pacsv.open_csv(
            source,
            pacsv.ReadOptions(use_threads=False, block_size=_BLOCK, column_names=list(layout.names), skip_rows=1),
            convert_options=pacsv.ConvertOptions(
                column_types={n: layout.types[n] for n in columns},
                include_columns=columns,
                null_values=[""],
                strings_can_be_null=True,
            ),
        )
        yield from (batch for batch in reader if batch.num_rows)
    except pa.ArrowInvalid as error:
        if "Empty CSV file" not in str(error):  # a header and no row is an empty table, not an error
            raise _damaged(path, error) from None
    except _UNREADABLE as error:
        raise _damaged(path, error) from None


def _integers(column: pa.Array, blank: int) -> np.ndarray:
    return column.fill_null(blank).to_numpy(zero_copy_only=False)


def _prices(column: pa.Array) -> np.ndarray:
    """int64 [n] of 1e-9 units; a blank is UNDEF."""
    if pa.types.is_decimal(column.type):
        low = np.frombuffer(column.buffers()[1], np.int64)[2 * column.offset :: 2][: len(column)]
        return np.where(_blank(column), UNDEF_PRICE, low)
    return _integers(column, UNDEF_PRICE)


def _times(column: pa.Array) -> np.ndarray:
    """uint64 [n] of ns UTC; a blank is UNDEF_TS."""
    blank = _blank(column)
    plain = column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column
    return np.where(blank, np.uint64(UNDEF_TS), plain.fill_null(0).to_numpy(zero_copy_only=False).astype(np.uint64))


def _blank(column: pa.Array) -> np.ndarray:
    return column.is_null().to_numpy(zero_copy_only=False)


def _not_a_book(path: Path, layout: _Layout) -> str:
    if layout.schema == "mbp-1":
        return f"{path}: schema mbp-1 holds one book level, not ten; download schema mbp-10, or mbo"
    shown = ", ".join(layout.names[:6]) + (" ..." if len(layout.names) > 6 else "")
    return f"{path}: its columns ({shown}) are those of no book schema; download schema mbp-10 or mbo"
