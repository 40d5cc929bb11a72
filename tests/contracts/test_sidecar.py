"""diag.jsonl is read strictly: a fault is named by line and leaf."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from foxhunt_assets.contracts.diag import Leaf, contract_sha256
from foxhunt_assets.contracts.sidecar import from_parquet, read_diag, to_parquet
from foxhunt_assets.errors import BadInput, ContractBroken


def leaf(path: str, dtype: str, low: float | None = None, high: float | None = None) -> Leaf:
    return Leaf(path, dtype, "1", low, high, "g", "both", "p", "live", "", "d")


CONTRACT = (
    leaf("step", "int", 0),
    leaf("loss.q", "float", 0, 9.5),
    leaf("pyramid.max", "bool"),
    leaf("sum.a.b", "float"),
)
GOOD = [
    '{"step": 0, "loss": {"q": 0.5}, "pyramid": {"max": false}, "sum": {"a": {"b": -3}}}',
    '{"step": 1, "loss": {"q": 9.5}, "pyramid": {"max": true}, "sum": {"a": {"b": 1e300}}}',
]


def write(folder: Path, *lines: str, end: str = "\n") -> Path:
    path = folder / "diag.jsonl"
    path.write_bytes(("\n".join(lines) + end).encode())
    return path


def test_columns_come_in_contract_order_with_its_types(tmp_path: Path) -> None:
    columns = read_diag(write(tmp_path, *GOOD), CONTRACT)
    assert list(columns) == ["step", "loss.q", "pyramid.max", "sum.a.b"]
    assert [c.dtype for c in columns.values()] == [np.int64, np.float64, np.bool_, np.float64]
    assert columns["step"].tolist() == [0, 1] and columns["sum.a.b"].tolist() == [-3.0, 1e300]


MUTATIONS = [
    ('"q": 0.5', '"q": NaN', "line 2: NaN is not JSON"),
    ('"q": 0.5', '"q": Infinity', "line 2: Infinity is not JSON"),
    ('"q": 0.5', '"q": 1e999', "line 2: loss.q: inf is not finite"),
    ('"q": 0.5', '"q": null', "line 2: loss.q: None is not float"),
    ('"q": 0.5', '"q": 9.50001', "line 2: loss.q: 9.50001 is over 9.5"),
    ('"q": 0.5', '"q": -0.001', "line 2: loss.q: -0.001 is under 0"),
    ('"q": 0.5', '"q": "0.5"', "line 2: loss.q: '0.5' is not float"),
    ('"q": 0.5', '"q": true', "line 2: loss.q: True is not float"),
    ('"q": 0.5', '"q": [0.5]', r"line 2: loss.q: \[0.5\] is not float"),
    ('"q": 0.5', '"q": 0.5, "q": 0.6', "line 2: q: key twice"),
    ('"q": 0.5', '"q": 0.5, "r": 1', "line 2: loss.r: not in the contract"),
    ('"loss": {"q": 0.5}, ', "", "line 2: loss.q: missing"),
    ('"loss": {"q": 0.5}', '"loss.q": 0.5', "line 2: loss.q: a dotted key"),
    ('"loss": {"q": 0.5}', '"loss": {"q": 0.5}, "x": {}', "line 2: an empty object"),
    ('"step": 0', '"step": 0.0', "line 2: step: 0.0 is not int"),
    ('"step": 0', '"step": 9223372036854775808', "line 2: step: does not fit 64 bits"),
    ('"b": -3', f'"b": 1{"0" * 400}', "line 2: sum.a.b: does not fit 64 bits"),
    ('"b": -3', f'"b": 1{"0" * 5000}', "line 2: Exceeds the limit"),
    ('"max": false', '"max": 0', "line 2: pyramid.max: 0 is not bool"),
    ("}}}", "}}", "line 2: "),
    (GOOD[0], "", "line 2: blank"),
    (GOOD[0], "[1]", "line 2: not a JSON object"),
]


@pytest.mark.parametrize(("old", "new", "message"), MUTATIONS)
def test_a_row_that_breaks_the_contract_is_named(tmp_path: Path, old: str, new: str, message: str) -> None:
    assert old in GOOD[0]
    path = write(tmp_path, GOOD[1], GOOD[0].replace(old, new, 1), GOOD[1])
    with pytest.raises(ContractBroken, match=message) as error:
        read_diag(path, CONTRACT)
    assert str(path) in str(error.value) and "\n" not in str(error.value)


def test_a_torn_last_line_an_empty_file_and_no_file_are_named(tmp_path: Path) -> None:
    with pytest.raises(ContractBroken, match="line 2: torn"):
        read_diag(write(tmp_path, *GOOD, end=""), CONTRACT)
    with pytest.raises(ContractBroken, match="line 3: blank"):
        read_diag(write(tmp_path, *GOOD, end="\n\n"), CONTRACT)
    with pytest.raises(ContractBroken, match="no rows"):
        read_diag(write(tmp_path, end=""), CONTRACT)
    with pytest.raises(BadInput, match="no such file"):
        read_diag(tmp_path / "absent.jsonl", CONTRACT)


def test_faults_after_the_first_are_counted(tmp_path: Path) -> None:
    with pytest.raises(ContractBroken, match=r"line 1: loss.q: missing \(and 2 more\)"):
        read_diag(write(tmp_path, '{"step": 0}'), CONTRACT)


def test_parquet_holds_the_same_values_and_the_contract(tmp_path: Path) -> None:
    columns = read_diag(write(tmp_path, *GOOD), CONTRACT)
    path = tmp_path / "diag.parquet"
    to_parquet(path, dict(reversed(columns.items())), CONTRACT)
    table = pq.read_table(path)
    assert table.column_names == list(columns)
    assert table.schema.metadata[b"contract_sha256"] == contract_sha256().encode()
    assert pq.ParquetFile(path).metadata.row_group(0).column(0).compression == "ZSTD"
    back = from_parquet(path)
    assert all(np.array_equal(back[name], columns[name]) for name in columns)


def test_parquet_of_other_leaves_or_another_contract_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "diag.parquet"
    with pytest.raises(ContractBroken, match=r"are not the contract's leaves: loss\.q"):
        to_parquet(path, {"step": np.zeros(2, np.int64)}, CONTRACT[:2])
    to_parquet(path, {"step": np.zeros(2, np.int64)}, CONTRACT[:1])
    table = pq.read_table(path)
    pq.write_table(table.replace_schema_metadata({"contract_sha256": "0" * 64}), path)
    with pytest.raises(ContractBroken, match="another contract"):
        from_parquet(path)
