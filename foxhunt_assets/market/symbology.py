"""What instrument ids mean, from outside a DBN file: Databento's symbology.json or symbology.csv beside the data."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping as Dict
from collections.abc import Sequence
from datetime import date, timedelta
from pathlib import Path

from foxhunt_assets.errors import BadInput
from foxhunt_assets.market.dbn import Mapping, midnight

_ONE_DAY = timedelta(1)
COLUMNS = ("raw_symbol", "instrument_id", "date")


def intervals(days: Dict[tuple[int, str], Sequence[date]]) -> tuple[Mapping, ...]:
    """Half-open intervals from the days on which an instrument id had a symbol; consecutive days are one interval."""
    found = []
    for (instrument, symbol), values in days.items():
        ordered = sorted(set(values))
        starts = [d for d in ordered if d - _ONE_DAY not in set(ordered)]
        ends = [d + _ONE_DAY for d in ordered if d + _ONE_DAY not in set(ordered)]
        found += [Mapping(symbol, instrument, midnight(a), midnight(b)) for a, b in zip(starts, ends, strict=True)]
    return tuple(sorted(found, key=lambda m: (m.instrument_id, m.start_ns)))


def beside(path: Path) -> tuple[Mapping, ...] | None:
    """Mappings of the symbology file in the folder of a data file; None where there is none."""
    folder = path.resolve().parent  # the file may be a link into a download folder
    for name in sorted(p.name for p in folder.iterdir()):
        if name == "symbology.json":
            return read_json(folder / name)
        if name.endswith("symbology.csv"):
            return read_csv(folder / name)
    return None


def read_csv(path: Path) -> tuple[Mapping, ...]:
    """Columns raw_symbol, instrument_id and date, one row an instrument and day."""
    days: dict[tuple[int, str], list[date]] = {}
    try:
        rows = csv.DictReader(path.read_text(encoding="utf-8-sig").splitlines())
        names = set(rows.fieldnames or ())
    except (ValueError, csv.Error) as error:
        raise BadInput(f"{path}: no CSV file ({error}); download the symbology again") from None
    if not set(COLUMNS) <= names:
        raise BadInput(f"{path}: line 1: columns {', '.join(COLUMNS)} are needed; download the symbology again")
    try:
        for row in rows:
            key = int(row["instrument_id"]), row["raw_symbol"]
            days.setdefault(key, []).append(date.fromisoformat(row["date"]))
    except (TypeError, ValueError, csv.Error) as error:
        raise BadInput(f"{path}: line {rows.line_num}: {error}; download the symbology again") from None
    return intervals(days)


def read_json(path: Path) -> tuple[Mapping, ...]:
    """Symbols as keys of `result`, each a list of intervals d0 to d1 (exclusive) of the instrument id s."""
    try:
        result = json.loads(path.read_text(encoding="utf-8"))["result"]
        found = [
            Mapping(symbol, int(part["s"]), midnight(date.fromisoformat(part["d0"])), _end(part))
            for symbol, parts in result.items()
            for part in parts
            if part["s"] and part["d0"] < part["d1"]
        ]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise BadInput(f"{path}: not a symbology file ({error}); download it again") from None
    return tuple(sorted(found, key=lambda m: (m.instrument_id, m.start_ns)))


def _end(part: Dict[str, str]) -> int:
    return midnight(date.fromisoformat(part["d1"]))
