"""Known answers of Random123 (kat_vectors) and the properties that replace a generator state."""

import torch

from kernels.philox import op, reference


def _one(counter, key):
    words = reference.philox4x32(tuple(torch.tensor([c]) for c in counter), key)
    return [int(w[0]) for w in words]


def test_known_answers():
    assert _one((0, 0, 0, 0), (0, 0)) == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]
    pi = (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344)
    assert _one(pi, (0xA4093822, 0x299F31D0)) == [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1]
    assert _one((1, 2, 3, 4), (5, 6)) == [0xC0C839BC, 0x889C87C5, 0x61986739, 0x2D4623D0]


def test_a_draw_depends_on_its_key_and_not_on_the_batch():
    rows = torch.arange(8)
    all_rows = op.words(7, "action", 3, rows, 4)
    assert torch.equal(op.words(7, "action", 3, rows[5:6], 4), all_rows[5:6])
    assert torch.equal(op.words(7, "action", 3, rows, 2), all_rows[:, :2])
    assert not torch.equal(op.words(7, "replay", 3, rows, 4), all_rows)
    assert not torch.equal(op.words(8, "action", 3, rows, 4), all_rows)
    assert not torch.equal(op.words(7 + 2**32, "action", 3, rows, 4), all_rows)


def test_uniform_never_reaches_one():
    assert float(op.uniform(torch.tensor([0xFFFFFFFF]))) == 1 - 2.0**-24
    assert float(op.uniform(torch.tensor([0]))) == 0


def test_uniforms_are_those_of_the_first_lane():
    rows, step = torch.tensor([0, 5, 2**32 - 1]), torch.tensor(9)
    drawn = op.uniforms(7, "replay", step, rows)
    assert torch.equal(drawn, op.uniform(op.words(7, "replay", 9, rows, 2)[:, 0])) and drawn.dtype == torch.float32


def test_normal_moments():
    x = op.normal(1, "init", 0, torch.arange(1000), 64)
    assert abs(float(x.mean())) < 0.02 and abs(float(x.std()) - 1) < 0.02
