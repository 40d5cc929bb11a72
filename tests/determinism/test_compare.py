"""Two runs compared: equal ones pass and say what was covered; every planted difference is found and named."""

import json
import os
import shutil

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from safetensors.numpy import save_file

from foxhunt_assets.contracts import diag
from foxhunt_assets.determinism.compare import CAUSAL_ORDER, compare_runs
from tests.determinism import fake_run as fake


@pytest.fixture
def pair(tmp_path):
    """make(change_b, phase, **identity_b) -> Comparison of two runs of which the second is changed."""

    def make(change=lambda folder: None, phase="train", both=False, **identity):
        shutil.rmtree(tmp_path / "a", ignore_errors=True)
        shutil.rmtree(tmp_path / "b", ignore_errors=True)
        fake.commit(tmp_path / "a", phase, change if both else lambda folder: None)
        fake.commit(tmp_path / "b", phase, change, **identity)
        return compare_runs(tmp_path / "a", tmp_path / "b")

    return make


def file_of(comparison, name):
    return next(f for f in comparison.files if f.file.endswith(name))


def edit(name, old, new):
    def change(folder):
        text = (folder / name).read_text()
        assert old in text
        (folder / name).write_text(text.replace(old, new, 1))

    return change


def with_tensors(**changed):
    def change(folder):
        kept = {k: v for k, v in {**fake.tensors(), **changed}.items() if v is not None}
        save_file(kept, folder / "checkpoint.safetensors")

    return change


def test_equal_runs_pass_and_say_what_was_compared(tmp_path):
    for arm in "ab":
        fake.commit(tmp_path / arm, "train")
        fake.commit(tmp_path / arm, "evaluate")
    result = compare_runs(tmp_path / "a", tmp_path / "b")
    assert (result.verdict, result.exit_code, result.culprit) == ("PASS", 0, None)
    coverage = result.to_json()["coverage"]
    assert coverage["train/diag.jsonl"] == "4 rows of 7 leaves, steps 0 to 3"
    assert coverage[f"{fake.EVAL}/eval_diag.jsonl"] == "4 rows of 7 leaves, steps 4 to 7"
    assert coverage["train/checkpoint.safetensors"] == "3 tensors"
    assert coverage["train/trades.parquet"] == "1 rows of 15 columns"
    assert len(coverage) == 11  # 6 of training and 5 of evaluation; derived files, clocks and manifests prove nothing
    assert not any("timing" in name or "manifest" in name or name.endswith("diag.parquet") for name in coverage)
    json.dumps(result.to_json(), allow_nan=False)


def test_a_folder_may_be_named_instead_of_a_run(tmp_path):
    a, b = (fake.commit(tmp_path / arm, "train") for arm in "ab")
    assert compare_runs(a, b).verdict == "PASS"
    assert compare_runs(a, fake.commit(tmp_path / "a", "evaluate")).verdict == "NOT_COMPARABLE"


@pytest.mark.parametrize(
    ("fault", "verdict", "file"),
    [
        ("tensor_bit", "DIVERGED", "train/checkpoint.safetensors"),
        ("one_leaf", "DIVERGED", "train/diag.jsonl"),
        ("trade_cent", "DIVERGED", "train/trades.parquet"),
        ("missing_file", "INCOMPLETE", "train/trades.parquet"),
        ("extra_file", "INCOMPLETE", "train/step_0_new.bin"),
    ],
)
def test_planted_faults(pair, fault, verdict, file):
    result = pair(fake.FAULTS[fault])
    assert result.verdict == verdict
    assert file in result.text()


def test_it_is_symmetric(pair, tmp_path):
    assert pair(fake.tensor_bit).verdict == compare_runs(tmp_path / "b", tmp_path / "a").verdict == "DIVERGED"


# --- the culprit -------------------------------------------------------------------------------------------------


def test_the_culprit_is_the_first_leaf_of_the_first_step_in_causal_order(pair):
    def change(folder):
        lines = [json.loads(line) for line in (folder / "diag.jsonl").read_text().splitlines()]
        for row in lines[2:]:
            row["checksums"]["grads"] += 1
            row["loss"]["total"] += 1
            row["encoder"]["h_t_digest32"] += 1
        lines[3]["checksums"]["batch_inputs"] += 1  # earlier in the order, but a step later
        (folder / "diag.jsonl").write_text("".join(json.dumps(o) + "\n" for o in lines))

    culprit = pair(change).culprit
    assert (culprit.file, culprit.step, culprit.leaf, culprit.stage) == (
        "train/diag.jsonl", 2, "encoder.h_t_digest32", "encode",
    )  # fmt: skip
    assert "first among compared" in pair(change).text() and "2 more leaves" in culprit.text


def test_the_causal_order_names_leaves_of_the_contract():
    assert set(CAUSAL_ORDER) <= {leaf.path for leaf in diag.leaves()}


def test_training_is_named_before_evaluation_and_steps_count_on_the_shared_axis(tmp_path):
    for arm in "ab":
        bad = edit("eval_diag.jsonl", '"grads": 202', '"grads": 0') if arm == "b" else lambda folder: None
        fake.commit(tmp_path / arm, "train")
        fake.commit(tmp_path / arm, "evaluate", bad)
    culprit = compare_runs(tmp_path / "a", tmp_path / "b").culprit
    assert (culprit.file, culprit.step) == (f"{fake.EVAL}/eval_diag.jsonl", fake.STEPS + 2)
    assert f"compared from step {fake.STEPS}" in culprit.text  # earlier steps were not in this file


def test_without_a_differing_row_the_culprit_is_the_first_differing_file(pair):
    assert pair(fake.trade_cent).culprit.file == "train/trades.parquet"


# --- JSON lines --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"total": 0.0', '"total": 0.00'),
        ('"sum": -0.0', '"sum": 0.0'),
        ('"total": 0.0', '"total": 0.0, "elapsed_s": 1.0'),  # nested: must not be dropped
        ('"elapsed_s"', '"elapsed_t"'),  # a renamed clock
        ('{"step": 0', '{"gpu_s": 3.5, "step": 0'),  # a new clock must fail loudly
        ('"batch_inputs": 100, "grads": 200', '"grads": 200, "batch_inputs": 100'),  # order of keys
    ],
)
def test_text_tokens_must_be_the_same(pair, old, new):
    result = pair(edit("diag.jsonl", old, new))
    assert file_of(result, "diag.jsonl").verdict == "DIVERGED"


def test_only_the_named_clock_is_left_out(pair):
    assert pair(edit("diag.jsonl", '"elapsed_s": ', '"elapsed_s": 1')).verdict == "PASS"
    assert pair(edit("diag.jsonl", '"step": 0,', '"step":  0 ,')).verdict == "PASS"  # spacing carries no value


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ('"step": 1', '"step": 1, "step": 1', "duplicate key step"),
        ('"grads": 201', '"grads": 201, "grads": 201', "duplicate key grads"),
        ('"total": 0.1', '"total": NaN', "NaN is not JSON"),
        ('"total": 0.1', '"total": -Infinity', "-Infinity is not JSON"),
        ('"step": 1', '"step": 5', "step 5 follows step 0"),
    ],
)
def test_what_is_no_clean_row_is_incomplete_even_when_both_sides_agree(pair, old, new, says):
    result = pair(edit("diag.jsonl", old, new), both=True)
    assert result.verdict == "INCOMPLETE"
    assert says in result.text() and "line 2" in result.text()


def test_a_clock_that_hides_other_things_is_refused(pair):
    def change(folder):
        path = folder / "diag.jsonl"
        path.write_text(path.read_text().replace('"elapsed_s": ', '"elapsed_s": "x", "y": ', 1))

    assert "elapsed_s is left out of the comparison and is not a number" in pair(change, both=True).text()


def test_a_torn_last_line_is_incomplete_and_the_rest_is_still_compared(pair):
    def torn(folder):
        path = folder / "diag.jsonl"
        path.write_text(path.read_text().replace("301", "999")[:-20])

    result = pair(torn)
    assert result.verdict == "INCOMPLETE" and "B line 4: torn" in result.text()
    assert result.culprit.step == 1


def test_more_rows_on_one_side_diverge_and_the_common_rows_are_compared(pair):
    def shorter(folder):
        lines = (folder / "diag.jsonl").read_text().splitlines(keepends=True)
        (folder / "diag.jsonl").write_text("".join(lines[:2]))

    found = file_of(pair(shorter), "diag.jsonl")
    assert (found.verdict, found.compared) == ("DIVERGED", 2)
    assert "2 in A, 0 in B" in found.findings[0].text


def test_nesting_is_seen_where_dotted_paths_would_agree(pair):
    flat = edit("diag.jsonl", '"loss": {"total": 0.0}', '"loss.total": 0.0')
    assert file_of(pair(flat), "diag.jsonl").verdict == "DIVERGED"


# --- tensors -----------------------------------------------------------------------------------------------------


def test_same_weights_in_another_order_are_equal_and_noted(pair):
    def other_order(folder):
        header = {}
        data, at = b"", 0
        for name in ("optim.step", "isv", "encoder.w"):
            raw = fake.tensors()[name].tobytes()
            dtype = "I64" if name == "optim.step" else "F32"
            header[name] = {
                "dtype": dtype, "shape": list(fake.tensors()[name].shape), "data_offsets": [at, at + len(raw)],
            }  # fmt: skip
            data, at = data + raw, at + len(raw)
        text = json.dumps(header).encode()
        (folder / "checkpoint.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + data)

    result = pair(other_order)
    assert result.verdict == "PASS" and "ORDER" in result.text()


@pytest.mark.parametrize(
    ("changed", "verdict", "says"),
    [
        ({"optim.step": np.array([5.0])}, "DIVERGED", "optim.step: I64 against F64"),
        ({"optim.step": None}, "DIVERGED", "only in A: optim.step"),
        ({"more": np.zeros(1)}, "DIVERGED", "only in B: more"),
        ({"isv": np.zeros(8, np.float32)}, "NOT_COMPARABLE", "shape [7] against [8]; their common prefix is equal"),
        ({"isv": np.ones(9, np.float32)}, "NOT_COMPARABLE", "7 of the first 7 differ"),
        ({"encoder.w": np.arange(12, dtype=np.float32).reshape(4, 3)}, "NOT_COMPARABLE", "[3, 4] against [4, 3]"),
    ],
)
def test_trees_that_differ(pair, changed, verdict, says):
    found = file_of(pair(with_tensors(**changed)), "checkpoint.safetensors")
    assert found.verdict == verdict and says in " ".join(f.text for f in found.findings)


def test_a_difference_is_placed_in_the_tensors_own_shape(pair):
    w = fake.tensors()["encoder.w"].copy()
    w[2, 1] = np.nextafter(w[2, 1], np.float32(100))
    found = file_of(pair(with_tensors(**{"encoder.w": w})), "checkpoint.safetensors")
    assert found.detail["encoder.w"]["index"] == [2, 1] and found.detail["encoder.w"]["max_ulp"] == 1
    assert "encoder.w: 1 of 12 differ, first at [2, 1]" in found.findings[0].text


def test_a_cut_checkpoint_is_incomplete_and_a_contradictory_one_an_error(pair):
    def cut(folder):
        path = folder / "checkpoint.safetensors"
        path.write_bytes(path.read_bytes()[:-4])

    def lying(folder):
        path = folder / "checkpoint.safetensors"
        path.write_bytes(path.read_bytes().replace(b'"F32","shape":[7]', b'"F16","shape":[7]'))

    assert file_of(pair(cut, both=True), "safetensors").verdict == "INCOMPLETE"
    assert "28 bytes for F16 [7]" in pair(lying, both=True).text()
    assert pair(lying, both=True).verdict == "ERROR"
    three = pair(lambda folder: (folder / "checkpoint.safetensors").write_bytes(b"abc"))
    assert three.verdict == "INCOMPLETE" and file_of(three, "diag.jsonl").compared == 4  # the rest was still compared


def test_no_tensor_at_all_is_incomplete(pair):
    result = pair(lambda folder: save_file({}, folder / "checkpoint.safetensors"), both=True)
    assert file_of(result, "safetensors").verdict == "INCOMPLETE"


# --- tables, bytes, identity -------------------------------------------------------------------------------------


def test_encoding_of_a_table_is_no_difference_but_type_rows_and_nan_bits_are(pair):
    def rewritten(folder):
        pq.write_table(fake.trades("train"), folder / "trades.parquet", compression="none", use_dictionary=False)

    def narrower(folder):
        table = fake.trades("train")
        i = table.schema.get_field_index("lots")
        pq.write_table(table.set_column(i, "lots", table["lots"].cast(pa.int64())), folder / "trades.parquet")

    def twice(folder):
        pq.write_table(pa.concat_tables([fake.trades("train")] * 2), folder / "trades.parquet")

    def other_word(folder):
        table = fake.trades("train")
        i = table.schema.get_field_index("reason")
        pq.write_table(table.set_column(i, table.schema.field(i), pa.array(["trail"])), folder / "trades.parquet")

    assert pair(rewritten).verdict == "PASS"
    assert "lots int64" in pair(narrower).text() and pair(narrower).verdict == "DIVERGED"
    assert "1 rows against 2" in pair(twice).text()
    assert "reason: 1 of 1 rows differ, first row 0 ('policy' / 'trail')" in pair(other_word).text()


def float_table(*bits):
    array = pa.array(np.array(bits, dtype=np.uint64).view(np.float64), from_pandas=False)
    return lambda folder: pq.write_table(pa.table({"x": array}), folder / "trades.parquet")


def test_floats_of_a_table_are_compared_by_bits(pair, tmp_path):
    nan, other_nan, minus_zero = 0x7FF8000000000000, 0x7FF8000000000001, 1 << 63
    assert pair(float_table(nan), both=True).verdict == "PASS"
    for left, right in ((nan, other_nan), (0, minus_zero)):
        fake_a, fake_b = tmp_path / f"a{right}", tmp_path / f"b{right}"
        fake.commit(fake_a, "train", float_table(left))
        fake.commit(fake_b, "train", float_table(right))
        assert compare_runs(fake_a, fake_b).verdict == "DIVERGED"


def test_a_summary_that_differs_by_a_cent_names_the_leaf(pair):
    result = pair(edit("eval_summary.json", "6600", "6601"), "evaluate")
    assert result.verdict == "DIVERGED" and "total_pnl_cents" in result.text()
    assert file_of(result, "eval_summary.json").detail["leaves"] == ["total_pnl_cents"]


def test_bytes_past_the_common_length_count(pair):
    def longer(folder):
        with (folder / "config.json").open("a") as f:
            f.write(" ")

    assert "bytes" in file_of(pair(longer), "config.json").findings[0].text


@pytest.mark.parametrize("name", ["config.json", "diag.jsonl", "checkpoint.safetensors", "trades.parquet"])
def test_two_empty_files_are_not_equal(pair, name):
    result = pair(lambda folder: (folder / name).write_bytes(b""), both=True)
    assert result.verdict == "INCOMPLETE" and file_of(result, name).compared == 0


@pytest.mark.parametrize(
    ("key", "value"),
    [("seed", 8), ("code", "d" * 64), ("config_hash", "d" * 64), ("inputs", {"x": "d" * 64}), ("device", "cuda")],
)
def test_runs_of_another_identity_are_not_comparable(pair, key, value):
    result = pair(**{key: value})
    assert (result.verdict, result.exit_code) == ("NOT_COMPARABLE", 3) and f"{key} differs" in result.text()


def test_a_manifest_that_names_no_seed_is_incomplete(tmp_path):
    for arm in "ab":
        folder = fake.commit(tmp_path / arm, "train")
        manifest = json.loads((folder / "manifest.json").read_text())
        del manifest["seed"]
        (folder / "manifest.json").write_text(json.dumps(manifest))
    result = compare_runs(tmp_path / "a", tmp_path / "b")
    assert result.verdict == "INCOMPLETE" and "A does not name its seed" in result.text()


def test_a_folder_changed_since_its_commit_is_incomplete_though_both_sides_agree(tmp_path):
    for arm in "ab":
        folder = fake.commit(tmp_path / arm, "train")
        fake.flip_bit(folder / "checkpoint.safetensors", -1)
    result = compare_runs(tmp_path / "a", tmp_path / "b")
    assert result.verdict == "INCOMPLETE" and "changed since it was committed" in result.text()


def test_a_manifest_of_another_shape_hides_nothing_else(tmp_path):
    for arm in "ab":
        fake.commit(tmp_path / arm, "train")
    (tmp_path / "b" / "train" / "manifest.json").write_text("[]")
    result = compare_runs(tmp_path / "a", tmp_path / "b")
    assert result.verdict == "ERROR" and "manifest.json: not a manifest" in result.text()
    assert file_of(result, "train/diag.jsonl").compared  # the other files are compared all the same


def test_a_cut_table_is_incomplete(pair):
    def cut(folder):
        path = folder / "trades.parquet"
        path.write_bytes(path.read_bytes()[:-20])

    assert file_of(pair(cut), "train/trades.parquet").verdict == "INCOMPLETE"


def test_what_is_derived_from_an_evaluation_is_named_and_does_not_stand_in_the_way(tmp_path):
    for arm in "ab":
        fake.commit(tmp_path / arm, "train")
        (tmp_path / arm / f"report-{arm}").mkdir()
    result = compare_runs(tmp_path / "a", tmp_path / "b")
    assert result.verdict == "PASS"
    assert "note report-a: derived" in result.text() and "report-a" not in result.to_json()["coverage"]


# --- nothing to compare, the same thing twice, our own failures --------------------------------------------------


def test_nothing_compared_is_incomplete(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    assert (compare_runs(tmp_path / "a", tmp_path / "b").exit_code) == 2
    assert "compared: nothing" in compare_runs(tmp_path / "a", tmp_path / "b").text()
    assert compare_runs(tmp_path / "a", tmp_path / "none").verdict == "INCOMPLETE"


def test_a_phase_on_one_side_only_is_incomplete(tmp_path):
    fake.commit(tmp_path / "a", "train")
    fake.commit(tmp_path / "b", "train")
    fake.commit(tmp_path / "b", "evaluate")
    result = compare_runs(tmp_path / "a", tmp_path / "b")
    assert result.verdict == "INCOMPLETE" and f"{fake.EVAL}: missing in" in result.text()


def test_a_run_compared_with_itself_proves_nothing(tmp_path):
    fake.commit(tmp_path / "a", "train")
    assert compare_runs(tmp_path / "a", tmp_path / "a").verdict == "ERROR"
    (tmp_path / "link").symlink_to(tmp_path / "a")
    assert compare_runs(tmp_path / "a", tmp_path / "link").verdict == "ERROR"
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    (tmp_path / "b/train/diag.jsonl").unlink()
    os.link(tmp_path / "a/train/diag.jsonl", tmp_path / "b/train/diag.jsonl")
    result = compare_runs(tmp_path / "a", tmp_path / "b")
    assert result.exit_code == 4 and "one and the same file" in result.text()


def test_an_exception_is_an_error_and_not_a_divergence(tmp_path, monkeypatch):
    fake.commit(tmp_path / "a", "train")
    fake.commit(tmp_path / "b", "train", fake.trade_cent)

    def unreadable(*args):
        raise PermissionError("diag.jsonl: permission denied")

    monkeypatch.setattr("foxhunt_assets.determinism.judges.compare_lines", unreadable)
    result = compare_runs(tmp_path / "a", tmp_path / "b")
    assert result.exit_code == 4 and "PermissionError" in result.text()
    assert file_of(result, "trades.parquet").verdict == "DIVERGED"  # the other findings are not lost
    monkeypatch.setattr("foxhunt_assets.determinism.compare.compare_folder", unreadable)
    assert compare_runs(tmp_path / "a", tmp_path / "b").exit_code == 4
