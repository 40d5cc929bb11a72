"""Ten levels rebuilt from real orders against ten levels that somebody else derived from the same orders."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import numpy as np

from foxhunt_assets.contracts.instruments import UNDEF_PRICE
from foxhunt_assets.contracts.tables import ABSENT_PX
from foxhunt_assets.market import book
from foxhunt_assets.market.databento_csv import CsvReader
from foxhunt_assets.market.grid import ASK, BID, CT, PX, SZ
from tests.market.test_book import apply, compiled_levels

CENT = 10_000_000
NAMES = {(PX, BID): "bid_px", (PX, ASK): "ask_px", (SZ, BID): "bid_sz", (SZ, ASK): "ask_sz", (CT, BID): "bid_ct"}
NAMES[CT, ASK] = "ask_ct"


def records_of(path: Path) -> np.ndarray:
    with CsvReader(path) as reader:
        parts = [batch.copy() for batch in reader.batches()]
        return np.concatenate(parts).view(reader.header.dtype).ravel()


def states_by_sequence(records: np.ndarray) -> dict[int, set[bytes]]:
    """The ten levels after each order record, by the sequence number of the record."""
    orders, states = book.new_orders(), defaultdict(set)
    for record in records:
        action = chr(record["action"])
        if action in "AMCR":
            side = BID if record["side"] == ord("B") else ASK
            ticks, off = divmod(int(record["price"]), CENT) if action != "R" else (0, 0)
            assert off == 0
            orders = apply(orders, 0, action, side, int(record["order_id"]), ticks, int(record["size"]))
        states[int(record["sequence"])].add(compiled_levels(orders, 0).tobytes())
    assert not orders["errors"].any()
    return states


def test_each_derived_row_is_the_book_after_a_record_of_its_sequence(real_data: Path) -> None:
    folder = real_data / "blockhouse-arl"
    orders, derived = records_of(folder / "mbo.csv"), records_of(folder / "mbp.csv")
    assert (len(orders), len(derived)) == (5_886, 3_928)
    states = states_by_sequence(orders)
    for n, row in enumerate(derived):
        want = np.zeros((3, 2, 10), np.int32)
        for (plane, side), name in NAMES.items():
            values = row["levels"][name].astype(np.int64)
            if plane == PX:
                values = np.where(values == UNDEF_PRICE, ABSENT_PX, values // CENT)
            want[plane, side] = values
        assert want.tobytes() in states[int(row["sequence"])], f"row {n}"
    changed = sum(len(s) > 1 for s in states.values())
    assert changed > 100, "several records share a sequence, so the rule is looser than equality with the last"
