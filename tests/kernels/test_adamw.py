"""AdamW and its statistics against numbers computed outside the code."""

import math

import pytest
import torch

from kernels.adamw import op
from kernels.adamw.reference import clip_factor


def state(weights):
    w = torch.tensor(weights)
    return w, torch.zeros_like(w), torch.zeros_like(w), torch.zeros(1, dtype=torch.int64)


def adamw(segments, rates, clip=1e9):
    adam = op.AdamW(
        segments, torch.tensor(rates), beta1=0.9, beta2=0.999, eps=1e-8, weight_decay=0.01, clip=clip
    )  # fmt: skip
    return adam, torch.zeros(len(adam.names), dtype=torch.float64)


def test_three_steps_by_hand():
    adam, stats = adamw({"all": slice(0, 1)}, [0.01])
    weights, m, v, t = state([1.0])
    seen = []
    for g in (0.5, -0.2, 0.1):
        adam.step(weights, torch.tensor([g]), m, v, t, torch.ones(1), stats)
        seen.append(float(weights))
    assert seen == pytest.approx([0.989900000200, 0.986344951812, 0.982452399588], abs=2e-7)
    assert float(m) == pytest.approx(0.0325, abs=1e-7) and float(v) == pytest.approx(0.00029946025, abs=1e-9)
    assert int(t) == 3


def test_statistics_of_the_first_step_by_hand():
    # From zero moments m_hat is g and v_hat g^2, so that a step is rate x sign(g) + rate x decay x w.
    adam, stats = adamw({"a": slice(0, 2), "b": slice(2, 4)}, [0.01, 0.01, 0.1, 0.1])
    weights, m, v, t = state([3.0, 4.0, 2.0, 0.0])
    adam.step(weights, torch.tensor([3.0, -4.0, 12.0, 0.0]), m, v, t, torch.ones(1), stats)
    moved = [-0.01 * 1.03, -0.01 * -0.96, -0.1 * 1.02, 0.0]
    assert weights.tolist() == pytest.approx([3 + moved[0], 4 + moved[1], 2 + moved[2], 0], abs=1e-6)
    want = {
        "a.grad_norm": 5, "b.grad_norm": 12, "a.update_ratio": math.hypot(*moved[:2]) / 5,
        "b.update_ratio": 0.102 / 2, "grad_norm_pre_clip": 13, "update_norm": math.hypot(*moved), "adam_snr": 0.75,
        "grad_abs_max": 12, "zero_grad_frac": 0.25, "stepped": 1,
    }  # fmt: skip
    assert dict(zip(adam.names, stats.tolist())) == pytest.approx(want, rel=1e-5)


def test_the_whole_gradient_is_clipped_and_the_norms_are_those_before():
    adam, stats = adamw({"a": slice(0, 1), "b": slice(1, 2)}, [0.01, 0.01], clip=0.5)
    weights, m, v, t = state([1.0, 1.0])
    adam.step(weights, torch.tensor([3.0, 4.0]), m, v, t, torch.ones(1), stats)
    assert m.tolist() == pytest.approx([0.1 * 0.3, 0.1 * 0.4], rel=1e-6)
    assert stats[adam.names.index("grad_norm_pre_clip")] == 5


def test_a_closed_gate_moves_nothing():
    adam, stats = adamw({"all": slice(0, 2)}, [0.01, 0.01])
    weights, m, v, t = state([1.0, 2.0])
    stats.fill_(7)
    adam.step(weights, torch.tensor([0.5, float("nan")]), m, v, t, torch.zeros(1), stats)
    assert (weights.tolist(), m.tolist(), v.tolist(), int(t)) == ([1, 2], [0, 0], [0, 0], 0)
    assert stats.tolist() == [7] * len(adam.names)


def test_clip_factor():
    assert float(clip_factor(torch.tensor(2.0), 1.0)) == 0.5
    assert float(clip_factor(torch.tensor(0.0), 1.0)) == 1.0


@pytest.mark.parametrize("segments, message", [
    ({"a": slice(0, 1), "b": slice(2, 3)}, "b is 2 to 3, expected to begin at 1"),
    ({"a": slice(0, 2)}, "they end at 2, the buffers at 3"),
])  # fmt: skip
def test_segments_must_cover_the_buffers(segments, message):
    with pytest.raises(ValueError, match=message):
        adamw(segments, [0.1, 0.1, 0.1])


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_a_gradient_that_is_no_number_moves_nothing_and_shows(bad):
    w, g, m, v = (torch.randn(40, generator=torch.Generator().manual_seed(i)) for i in range(4))
    v, t, gate = v.abs(), torch.tensor([5]), torch.ones(1)
    g[17] = bad
    adam, stats = adamw({"a": slice(0, 30), "b": slice(30, 40)}, [1e-2] * 40, clip=1.0)
    before = [x.clone() for x in (w, m, v)]
    adam.step(w, g, m, v, t, gate, stats)
    for x, was in zip((w, m, v), before):
        assert torch.equal(x, was)
    found = dict(zip(adam.names, stats.tolist()))
    assert not math.isfinite(found["grad_norm_pre_clip"]) and not math.isfinite(found["a.grad_norm"])
    assert found["update_norm"] == 0 and found["b.update_ratio"] == 0 and found["stepped"] == 0
    assert t.item() == 5
    adam.step(w, torch.zeros(40), m, v, t, gate, stats)  # and the next one goes on
    assert t.item() == 6 and stats[adam.names.index("stepped")] == 1 and bool(torch.isfinite(w).all())
