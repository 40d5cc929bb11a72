"""Equal content, equal version; any other content, another; and the clock is in none."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from safetensors.numpy import save_file

from foxhunt_assets.assets import versions as V
from foxhunt_assets.contracts.sameness import EVAL_RUN, TRAIN_RUN
from foxhunt_assets.errors import BadInput, ContractBroken


def jsonl(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_json_lines_without_the_clock_and_with_everything_else(tmp_path):
    a = jsonl(tmp_path / "a", [{"step": 0, "elapsed_s": 1.5, "g": {"x": 1.0}}])
    b = jsonl(tmp_path / "b", [{"g": {"x": 1.0}, "elapsed_s": 9.0, "step": 0}])
    assert V.json_lines_sha256(a, ("elapsed_s",)) == V.json_lines_sha256(b, ("elapsed_s",))
    assert V.json_lines_sha256(a, ()) != V.json_lines_sha256(b, ())
    assert V.json_lines_sha256(a, ("elapsed_s", "g.x")) != V.json_lines_sha256(a, ("elapsed_s",))
    for other in (
        {"step": 0, "g": {"x": 1}},
        {"step": 0, "g": {"x": 1.0000000000000002}},
        {"step": 1, "g": {"x": 1.0}},
    ):
        c = jsonl(tmp_path / "c", [{**other, "elapsed_s": 1.5}])
        assert V.json_lines_sha256(a, ("elapsed_s",)) != V.json_lines_sha256(c, ("elapsed_s",))


def test_two_rows_in_one_order_are_not_two_rows_in_another(tmp_path):
    rows = [{"step": 0}, {"step": 1}]
    assert V.json_lines_sha256(jsonl(tmp_path / "a", rows), ()) != V.json_lines_sha256(
        jsonl(tmp_path / "b", rows[::-1]), ()
    )


def test_tensors_by_name_dtype_shape_and_bits(tmp_path):
    def version(tensors, metadata=None):
        save_file(tensors, tmp_path / "t.safetensors", metadata=metadata)
        return V.tensors_sha256(tmp_path / "t.safetensors")

    w = np.arange(6, dtype=np.float32)
    base = version({"a": w, "b": w})
    assert version({"b": w, "a": w}, {"note": "other"}) == base
    signed = w.copy()
    signed[0] = -0.0
    others = [
        {"a": w},
        {"a": w, "c": w},
        {"a": w.reshape(2, 3), "b": w},
        {"a": w.view(np.int32), "b": w},
        {"a": signed, "b": w},
    ]
    assert base not in {version(o) for o in others}
    assert len({version(o) for o in others}) == len(others)


def test_a_table_by_values_whatever_its_encoding_and_chunks(tmp_path):
    table = pa.table({"x": pa.array([1, 2, 3], pa.int64()), "s": ["a", "bc", ""]})
    pq.write_table(table, tmp_path / "a.parquet", compression="zstd")
    pq.write_table(table, tmp_path / "b.parquet", compression="none", row_group_size=1)
    with pa.OSFile(str(tmp_path / "c.arrow"), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=2)
    found = {V.table_sha256(tmp_path / n) for n in ("a.parquet", "b.parquet", "c.arrow")}
    assert len(found) == 1
    for other in (
        pa.table({"x": pa.array([1, 2, 3], pa.int32()), "s": ["a", "bc", ""]}),
        pa.table({"x": pa.array([1, 2, 3], pa.int64()), "s": ["ab", "c", ""]}),
        pa.table({"y": pa.array([1, 2, 3], pa.int64()), "s": ["a", "bc", ""]}),
        table.slice(0, 2),
    ):
        assert V.columns_sha256(other) not in found
    assert V.columns_sha256(pa.concat_tables([table, table]).slice(3)) in found


def test_level_lists_count_by_their_values():
    def levels(rows):
        return pa.table({"px": pa.array(rows, pa.list_(pa.int32(), 2))})

    assert V.columns_sha256(levels([[1, 2], [3, 4]])) == V.columns_sha256(levels([[0, 0], [1, 2], [3, 4]]).slice(1))
    assert V.columns_sha256(levels([[1, 2], [3, 4]])) != V.columns_sha256(levels([[1, 2], [4, 3]]))


def test_a_null_where_none_may_be_is_a_broken_contract():
    with pytest.raises(ContractBroken, match="column x: 1 nulls"):
        V.columns_sha256(pa.table({"x": pa.array([1, None], pa.int64())}))


def test_what_is_judged_by_identity_or_not_at_all_has_no_data_version(tmp_path):
    for rules, name in ((TRAIN_RUN, "manifest.json"), (EVAL_RUN, "timing.parquet"), (TRAIN_RUN, "unknown")):
        with pytest.raises(BadInput):
            V.run_version(tmp_path, rules, name)
