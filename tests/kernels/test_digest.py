"""The digest sees what XOR and norms do not: order, length, zeros, sign of zero, NaN payloads."""

import struct

import numpy as np
import pytest
import torch

from kernels.digest import op, reference

K, M = 0x9E3779B97F4A7C15, 2**64 - 1


def _fmix(x):
    x = ((x ^ (x >> 33)) * 0xFF51AFD7ED558CCD) & M
    x = ((x ^ (x >> 33)) * 0xC4CEB9FE1A85EC53) & M
    return x ^ (x >> 33)


def _by_hand(data: bytes, seed: int = 0) -> int:
    padded = data + b"\0" * (-len(data) % 8)
    words = struct.unpack(f"<{len(padded) // 8}Q", padded)
    total = sum(_fmix(w ^ _fmix((i * K + seed) & M)) for i, w in enumerate(words)) & M
    return _fmix(total ^ (len(data) * K & M))


def test_equals_the_formula_on_python_integers():
    x = torch.from_numpy(np.random.default_rng(0).normal(size=13).astype("float32"))
    assert op.digest64(x) == _by_hand(x.numpy().tobytes())
    assert op.digest64(x, 12345) == _by_hand(x.numpy().tobytes(), 12345)


def test_sees_order_length_zeros_and_signs():
    a, b = torch.tensor([1.0, 2.0, 3.0, 4.0]), torch.tensor([2.0, 1.0, 3.0, 4.0])
    assert op.digest64(a) != op.digest64(b)
    assert op.digest64(torch.zeros(4096)) != op.digest64(torch.zeros(8192))
    assert op.digest64(torch.tensor([0.0])) != op.digest64(torch.tensor([-0.0]))
    nan = torch.tensor([0x7FC00001, 0x7FC00002], dtype=torch.int32).view(torch.float32)
    assert op.digest64(nan[:1]) != op.digest64(nan[1:])
    assert op.digest64(nan) == op.digest64(nan.clone())


def test_every_flipped_bit_changes_the_digest():
    x = torch.arange(16, dtype=torch.int64)
    seen = {op.digest64(x)}
    for word in range(16):
        for bit in range(64):
            y = x.clone()
            y[word] ^= -(2**63) if bit == 63 else 1 << bit
            seen.add(op.digest64(y))
    assert len(seen) == 16 * 64 + 1


def test_digest32_is_the_weighted_sum():
    x = torch.tensor([1, 2, -1], dtype=torch.int32)
    assert reference.digest32(x) == (1 * 1 + 3 * 2 + 5 * 0xFFFFFFFF) % 2**32


def test_leaf53_fits_a_double():
    assert op.leaf53(2**64 - 1) == (2**53 - 1) ^ (2**11 - 1)


def test_several_buffers_are_one_end_to_end_in_whole_words():
    x = torch.arange(6, dtype=torch.int64)
    odd = torch.tensor([1, 2, 3], dtype=torch.int8)
    parts = op.Digests([[x[:2], x[2:]], x, [odd, x]]).run().tolist()
    assert parts[0] == parts[1]
    nothing = bytes(8 - 3)  # the bytes that fill a word are not counted
    total = sum(
        _fmix(w ^ _fmix(i * K & M))
        for i, w in enumerate(struct.unpack("<7Q", odd.numpy().tobytes() + nothing + x.numpy().tobytes()))
    )
    assert op.unsigned(parts[2]) == _fmix((total & M) ^ ((3 + 48) * K & M))


def test_a_chain_keeps_its_own_seed():
    x, seed = torch.arange(5, dtype=torch.float32), torch.tensor([12345])
    digests = op.Digests([x, x], [seed, 7])
    first = digests.run().tolist()
    assert [op.unsigned(d) for d in first] == [op.digest64(x, 12345), op.digest64(x, 7)]
    assert seed.tolist() == first[:1]
    x += 1
    assert op.unsigned(int(digests.run()[0])) == op.digest64(x, first[0])


def test_narrow_ones_are_digest32():
    x = torch.tensor([1.5, -2.0, 3.25, 4.0, -0.0])
    by_hand = sum((2 * i + 1) * w for i, w in enumerate(struct.unpack("<5I", x.numpy().tobytes()))) % 2**32
    got = op.Digests([x, x], narrow=[1]).run().tolist()
    assert (op.unsigned(got[0]), got[1]) == (op.digest64(x), by_hand) and reference.digest32(x) == by_hand
    with pytest.raises(ValueError, match=r"seeds\[0\]: digest32 has no seed"):
        op.Digests([x], [torch.tensor([1])], narrow=[0])
