"""LOBSTER message and orderbook pairs: a second venue (Nasdaq equities, tick 0.01) for looking at, never for training.

Row i of the message file is the event that led to row i of the orderbook file. LOBSTER has no order counts (they are
0 here, not known to be none), no instrument ids, no receive time and no flags: each row is a book after one event.
Format: "LOBSTER output", lobsterdata.com; prices are dollars x 10,000, times seconds after midnight in New York.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, datetime, time
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv

from foxhunt_assets.contracts.tables import ABSENT_PX, LEVELS
from foxhunt_assets.errors import BadInput

TICK = 10_000_000  # 0.01 dollars in 1e-9 units
UNITS_PER_TICK = 100  # of LOBSTER's 1e-4 dollars
NO_BID, NO_ASK = -9_999_999_999, 9_999_999_999  # price of a level that is not there
_NEW_YORK = ZoneInfo("America/New_York")
_NAME = re.compile(
    r"(?P<symbol>[A-Z.]+)_(?P<day>\d{4}-\d{2}-\d{2})_\d+_\d+_(?P<kind>message|orderbook)_(?P<n>\d+)\.csv"
)
_MESSAGE = {"time": pa.decimal128(18, 9), "type": pa.int64(), "order_id": pa.int64(), "size": pa.int64(),
            "price": pa.int64(), "direction": pa.int64()}  # fmt: skip
# message type: action. 1 new, 2 part cancelled, 3 deleted, 4 executed, 5 hidden executed, 6 cross, 7 halt
_ACTIONS = np.zeros(8, np.uint8)
_ACTIONS[1:] = np.frombuffer(b"ACCTTTN", np.uint8)
_TRADES, _CROSS, _HALT = (4, 5, 6), 6, 7
_KINDS = ("message", "orderbook")


@dataclass(frozen=True)
class Pair:
    """The two files of one stock and day."""

    message: Path
    orderbook: Path
    symbol: str
    day: date


def is_lobster(path: Path) -> bool:
    """Does the name say LOBSTER?"""
    return _NAME.fullmatch(path.name) is not None


def pair_of(path: Path) -> Pair:
    """The pair that a file, either of the two, belongs to."""
    match = _NAME.fullmatch(path.name)
    if match is None:
        raise BadInput(f"{path}: not the name of a LOBSTER file (SYMBOL_DAY_FROM_TO_message_10.csv)")
    if int(match["n"]) != LEVELS:
        raise BadInput(f"{path}: {match['n']} levels, {LEVELS} are needed; request the {LEVELS}-level files")
    kinds = {kind: path.with_name(path.name.replace(f"_{match['kind']}_", f"_{kind}_")) for kind in _KINDS}
    for other in kinds.values():
        if not other.is_file():
            raise BadInput(f"{other}: no such file; message and orderbook file must lie side by side")
    return Pair(kinds["message"], kinds["orderbook"], match["symbol"], date.fromisoformat(match["day"]))


def books(pair: Pair) -> Iterator[dict[str, np.ndarray]]:
    """The book after each event, in blocks, as snapshot columns: ts_event [n], bid_px [n, LEVELS] and so on.

    Prices in ticks of TICK, sizes in shares, counts 0. side of a trade is the aggressor's, else the book's.
    """
    names = [f"{side}_{what}_{k}" for k in range(LEVELS) for side in ("ask", "bid") for what in ("px", "sz")]
    midnight = int(datetime.combine(pair.day, time(0), _NEW_YORK).timestamp()) * 10**9
    messages = _read(pair.message, _MESSAGE)
    quotes = _read(pair.orderbook, dict.fromkeys(names, pa.int64()))
    done = 0
    for message, quote in _side_by_side(pair, messages, quotes):
        yield {**_event(pair, done, message, midnight), **_levels(pair, done, quote)}
        done += len(message)


def _event(pair: Pair, first: int, message: pa.RecordBatch, midnight: int) -> dict[str, np.ndarray]:
    column = {n: message.column(n) for n in message.schema.names}
    seconds = np.frombuffer(column["time"].buffers()[1], np.int64)[2 * column["time"].offset :: 2][: len(message)]
    kind, direction = (column[n].to_numpy() for n in ("type", "direction"))
    wrong = (kind < 1) | (kind > _HALT)
    if wrong.any():
        row = first + int(wrong.argmax())
        raise BadInput(f"{pair.message}: row {row}: type {kind[row - first]}, none of 1 to 7; download it again")
    trade = np.isin(kind, _TRADES)
    buys = (direction > 0) != trade  # an executed buy order met a selling aggressor
    side = np.where(buys, ord("B"), ord("A")).astype(np.uint8)
    side[(kind == _CROSS) | (kind == _HALT)] = ord("N")
    ts = midnight + seconds
    return {
        "ts_event": ts, "ts_recv": ts, "action": _ACTIONS[kind], "side": side,
        "size": column["size"].to_numpy(), "order_id": column["order_id"].to_numpy(),
    }  # fmt: skip


def _levels(pair: Pair, first: int, quote: pa.RecordBatch) -> dict[str, np.ndarray]:
    made = {}
    for side, absent in (("bid", NO_BID), ("ask", NO_ASK)):
        price, size = (
            np.stack([quote.column(f"{side}_{what}_{k}").to_numpy() for k in range(LEVELS)], 1) for what in ("px", "sz")
        )
        there = price != absent
        wrong = (there & (price % UNITS_PER_TICK != 0)).any(axis=1)
        if wrong.any():
            raise BadInput(f"{pair.orderbook}: row {first + int(wrong.argmax())}: a price that is no multiple of 0.01")
        made[f"{side}_px"] = np.where(there, price // UNITS_PER_TICK, ABSENT_PX).astype(np.int32)
        made[f"{side}_sz"] = np.where(there, size, 0).astype(np.int32)
        made[f"{side}_ct"] = np.zeros_like(made[f"{side}_sz"])
    return made


def _read(path: Path, types: dict[str, pa.DataType]) -> Iterator[pa.RecordBatch]:
    try:
        yield from pacsv.open_csv(
            path,
            pacsv.ReadOptions(use_threads=False, column_names=list(types)),
            convert_options=pacsv.ConvertOptions(column_types=types),
        )
    except pa.ArrowInvalid as error:
        text = " ".join(str(error).split())
        raise BadInput(f"{path}: {text}; the file is cut or no LOBSTER file: download it again") from None


def _side_by_side(pair: Pair, a: Iterator[Any], b: Iterator[Any]) -> Iterator[tuple[Any, Any]]:
    """Batches of two files cut to one length. BadInput where one file is longer."""
    left, right, n = next(a, None), next(b, None), 0
    while left is not None and right is not None:
        both = min(len(left), len(right))
        yield left.slice(0, both), right.slice(0, both)
        n += both
        left = left.slice(both) if both < len(left) else next(a, None)
        right = right.slice(both) if both < len(right) else next(b, None)
    if left is not None or right is not None:
        longer = pair.message if left is not None else pair.orderbook
        raise BadInput(f"{longer}: more than the {n} rows of the other file of the pair; download both again")
