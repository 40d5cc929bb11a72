"""GAE against worked numbers: termination, truncation, and the flags belonging to the transition they end."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kernels.gae import op

R, V, LAST = [1.0, 0.0, -1.0, 2.0], [0.5, 0.6, 0.4, 0.3], 0.7
GAMMA, LAM = 0.99, 0.95


def _column(x, dtype=torch.float64):
    return torch.tensor(x, dtype=dtype)[:, None]


def _gae(terminated, truncated, next_values=None, dtype=torch.float64):
    following = next_values or [*V[1:], LAST]
    flags = (_column(terminated, torch.bool), _column(truncated, torch.bool))
    both = op.gae(_column(R, dtype), _column(V, dtype), _column(following, dtype), *flags, GAMMA, LAM)
    return [x[:, 0].tolist() for x in both]


def test_termination():
    advantages, returns = _gae([0, 1, 0, 0], [0, 0, 0, 0])
    assert advantages == pytest.approx([0.5297, -0.6, 1.1476165, 2.393], abs=1e-12)
    assert returns == pytest.approx([1.0297, 0, 1.5476165, 2.693], abs=1e-12)


def test_truncation_bootstraps_from_the_final_state_and_cuts_the_recursion():
    advantages, _ = _gae([0, 0, 0, 0], [0, 1, 0, 0], [V[1], 0.9, V[3], LAST])
    assert advantages == pytest.approx([1.3676855, 0.291, 1.1476165, 2.393], abs=1e-12)


def test_without_flags_value_leaks_through():
    advantages, _ = _gae([0, 0, 0, 0], [0, 0, 0, 0])
    assert advantages[:2] == pytest.approx([1.917250986, 0.875333318], abs=1e-9)


def test_termination_outranks_truncation_and_ignores_the_next_value():
    following = [V[1], float("nan"), V[3], LAST]
    assert _gae([0, 1, 0, 0], [0, 1, 0, 0], following) == _gae([0, 1, 0, 0], [0, 0, 0, 0])


def test_float32_and_device_scalars():
    advantages, _ = _gae([0, 1, 0, 0], [0, 0, 0, 0], dtype=torch.float32)
    assert advantages == pytest.approx([0.5297, -0.6, 1.1476165, 2.393], abs=1e-6)
    x, flag = torch.ones(3, 2), torch.zeros(3, 2, dtype=torch.bool)
    as_tensors = op.gae(x, x, x, flag, flag, torch.tensor(GAMMA), torch.tensor(LAM))
    torch.testing.assert_close(as_tensors, op.gae(x, x, x, flag, flag, GAMMA, LAM), rtol=1e-6, atol=0)


@given(st.lists(st.sampled_from(["on", "terminated", "truncated"]), min_size=1, max_size=12), st.integers(0, 2**31))
def test_equals_the_sum_over_the_rest_of_each_segment(ends, seed):
    """A_t = sum over l of (gamma lam)^l delta_{t+l} up to and with the end of the segment, written forwards."""
    n, generator = len(ends), torch.Generator().manual_seed(seed)
    r, v, following = torch.randn(3, n, generator=generator, dtype=torch.float64).tolist()
    terminated, truncated = ([e == kind for e in ends] for kind in ("terminated", "truncated"))
    expected = []
    for t in range(n):
        total, weight = 0.0, 1.0
        for s in range(t, n):
            total += weight * (r[s] + (0 if terminated[s] else GAMMA * following[s]) - v[s])
            weight *= GAMMA * LAM
            if ends[s] != "on":
                break
        expected.append(total)
    flags = (_column(terminated, torch.bool), _column(truncated, torch.bool))
    advantages, returns = op.gae(_column(r), _column(v), _column(following), *flags, GAMMA, LAM)
    assert advantages[:, 0].tolist() == pytest.approx(expected, abs=1e-12)
    torch.testing.assert_close(returns, advantages + _column(v), rtol=0, atol=0)
