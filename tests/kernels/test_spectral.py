"""Power iteration: by hand, and towards what a decomposition finds."""

import pytest
import torch

from kernels.spectral import op


def test_one_iteration_by_hand():
    w, u = torch.tensor([[3.0, 0.0], [0.0, 1.0]]), torch.tensor([0.6, 0.8])
    # W^T u = (1.8, .8), over its length (.91381, .40614); W of that is (2.74143, .40614)
    sigma = op.Powers([w], [u]).step()
    assert sigma.tolist() == pytest.approx([2.77136], abs=1e-5)
    assert u.tolist() == pytest.approx([0.98920, 0.14655], abs=1e-5)


def test_it_converges_to_the_largest_singular_value_of_each_matrix():
    g = torch.Generator().manual_seed(4)
    matrices = [torch.randn(40, 7, generator=g), torch.randn(2, 33, generator=g)]
    powers = op.Powers(matrices, [torch.ones(40), torch.ones(2)])
    for _ in range(200):
        found = powers.step()
    wanted = [float(torch.linalg.matrix_norm(w.double(), 2)) for w in matrices]
    assert found.tolist() == pytest.approx(wanted, rel=1e-5)


def test_a_matrix_of_zeros_has_none():
    u = torch.ones(3)
    assert op.Powers([torch.zeros(3, 2)], [u]).step().tolist() == [0] and u.isfinite().all()
