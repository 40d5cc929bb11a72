"""Raw words against known bit patterns: the cases where comparing values gets it wrong."""

import tracemalloc

import numpy as np
import pytest

from foxhunt_assets.determinism import bits


def diff(kind, a: bytes, b: bytes):
    k = bits.KINDS[kind]
    return bits.difference(*(bits.words(np.frombuffer(x, np.uint8), k) for x in (a, b)), k)


def hex_diff(kind, a: str, b: str):
    return diff(kind, bytes.fromhex(a), bytes.fromhex(b))


def test_equal_bytes_are_equal_nan_included():
    assert hex_diff("F32", "0000c07f", "0000c07f") is None
    assert hex_diff("I32", "0000c07f", "0000c07f") is None


def test_signed_zero_nan_payload_and_nan_against_a_number():
    zero = hex_diff("F32", "00000080", "00000000")
    assert (zero.count, zero.tags, zero.max_ulp, zero.max_abs) == (1, ("SIGNED_ZERO",), 0, 0.0)
    payload = hex_diff("F32", "0100c07f", "0200c07f")
    assert payload.tags == ("NAN_PAYLOAD",) and (payload.hex_a, payload.hex_b) == ("0100c07f", "0200c07f")
    number = hex_diff("F32", "0000c07f", "0000a040")
    assert (number.tags, number.n_nan, number.max_abs, number.count) == (("NAN",), 1, None, 1)


def test_the_whole_array_is_scanned():
    a = np.zeros(100, np.float32)
    b = a.copy()
    b[:5] = 1e-7
    b[99] = 1000
    found = diff("F32", a.tobytes(), b.tobytes())
    assert (found.count, found.total, found.first, found.last, found.max_abs) == (6, 100, 0, 99, 1000.0)


def test_blocks_do_not_hide_positions(monkeypatch):
    monkeypatch.setattr(bits, "_BLOCK", 8)
    a = np.arange(100, dtype=np.int32)
    b = a.copy()
    b[[17, 80]] += 3
    found = diff("I32", a.tobytes(), b.tobytes())
    assert (found.count, found.first, found.last, found.max_abs) == (2, 17, 80, 3)


@pytest.mark.parametrize(
    ("kind", "a", "b", "apart"),
    [
        ("I32", -(2**31), 0, 2**31),
        ("U64", 2**53, 2**53 + 1, 1),
        ("I64", -(2**63), 2**63 - 1, 2**64 - 1),
        ("I8", -128, 127, 255),
        ("U8", 3, 250, 247),
    ],
)
def test_integer_distance_is_exact(kind, a, b, apart):
    numpy_type = bits.KINDS[kind].values
    found = diff(kind, np.array([a], numpy_type).tobytes(), np.array([b], numpy_type).tobytes())
    assert found.max_abs == apart and found.max_ulp is None


@pytest.mark.parametrize("numpy_type", ["f2", "f4", "f8"])
def test_ulp_counts_steps_on_the_number_line_across_zero(numpy_type):
    kind = {"f2": "F16", "f4": "F32", "f8": "F64"}[numpy_type]
    one = np.array([1], numpy_type)
    assert diff(kind, one.tobytes(), np.nextafter(one, one * 2).tobytes()).max_ulp == 1
    least = np.nextafter(np.array([0], numpy_type), one)
    assert diff(kind, least.tobytes(), (-least).tobytes()).max_ulp == 2


def test_bfloat16_values():
    found = hex_diff("BF16", "803f", "813f")  # 1.0 and 1.0078125
    assert (found.max_ulp, found.max_abs) == (1, 0.0078125)


def test_infinity_is_written_so_that_json_can_hold_it():
    found = diff("F64", np.array([np.inf]).tobytes(), np.array([1.0]).tobytes())
    assert found.max_abs == np.inf and found.to_json()["max_abs"] == "inf"


@pytest.mark.parametrize("kind", list(bits.KINDS))
def test_one_flipped_bit_is_found_in_every_type(kind):
    size = bits.KINDS[kind].size
    a = np.random.default_rng(1).integers(0, 256, 9 * size, dtype=np.uint8)
    for bit in range(8 * size):
        b = a.copy()
        b[4 * size + bit // 8] ^= 1 << (bit % 8)
        found = diff(kind, a.tobytes(), b.tobytes())
        assert (found.count, found.first, found.last) == (1, 4, 4)
        back = diff(kind, b.tobytes(), a.tobytes())
        assert (back.count, back.max_abs, back.max_ulp) == (found.count, found.max_abs, found.max_ulp)


def test_memory_stays_small_where_everything_differs():
    a = np.zeros(8 << 20, np.float32)
    b = np.ones(8 << 20, np.float32)
    k = bits.KINDS["F32"]
    tracemalloc.start()
    found = bits.difference(a.view(np.uint32), b.view(np.uint32), k)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found.count == 8 << 20
    assert peak < 4 * bits._BLOCK * 24  # a few temporaries of one block, never of the array
