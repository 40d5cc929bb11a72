"""Which reader opens a file: by its name, because a CSV has no mark of its own."""

from __future__ import annotations

from pathlib import Path

from foxhunt_assets.market.databento_csv import CsvReader
from foxhunt_assets.market.dbn import DbnReader, Header, read_header

CSV_SUFFIXES = (".csv", ".csv.zst", ".zip")
DBN_SUFFIXES = (".dbn", ".dbn.zst")


def is_source(path: Path) -> bool:
    """May this be a file of records, by its name? A symbology file is read with the CSV it lies beside."""
    return path.name.endswith(DBN_SUFFIXES + CSV_SUFFIXES) and not path.name.endswith("symbology.csv")


def is_csv(path: Path) -> bool:
    """Does the name say CSV, plain, zstd or zipped?"""
    return path.name.endswith(CSV_SUFFIXES)


def open_book(path: Path) -> DbnReader | CsvReader:
    """A reader of the records of a file that holds ten levels. BadInput where it does not."""
    return CsvReader(path) if is_csv(path) else DbnReader(path)


def header_of(path: Path) -> Header:
    """The header of a file; of a CSV it is made from its columns."""
    if not is_csv(path):
        return read_header(path)
    with CsvReader(path) as reader:
        return reader.header


def is_synthetic(path: Path) -> bool:
    """Generated files say so in their name: their header must please the official tools."""
    return ".synthetic." in path.name
