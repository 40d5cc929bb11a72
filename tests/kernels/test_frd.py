"""The gradient of the forward-return head by hand and against autograd."""

import math

import pytest
import torch

from kernels.frd import op

LABELS = torch.tensor([[1, -1], [-1, -1], [0, 1]])


def test_softmax_less_the_label_over_the_labels_there_are():
    logits = torch.tensor([[[1.0, 0.0], [5.0, -5.0]], [[0.0, 0.0], [0.0, 0.0]], [[0.0, 0.0], [math.log(3), 0.0]]])
    p = math.e / (1 + math.e)
    grad = op.gradient(logits, LABELS, torch.tensor([0, 1, 2]))
    assert grad[0, 0].tolist() == pytest.approx([p / 3, -p / 3], abs=1e-6)  # three labels
    assert not grad[0, 1].any() and not grad[1].any()
    assert grad[2].tolist() == [pytest.approx([-0.5 / 3, 0.5 / 3]), pytest.approx([0.75 / 3, -0.75 / 3], abs=1e-6)]


def test_without_labels_there_is_no_gradient():
    grad = op.gradient(torch.randn(2, 2, 3), LABELS, torch.tensor([1, 1]))
    assert grad.tolist() == torch.zeros(2, 2, 3).tolist()


def test_it_is_the_gradient_of_the_mean_loss():
    g = torch.Generator().manual_seed(2)
    logits = torch.randn(9, 2, 4, generator=g, dtype=torch.float64, requires_grad=True)
    labels, anchors = torch.randint(-1, 4, (6, 2), generator=g), torch.randint(0, 6, (9,), generator=g)
    loss = -torch.stack([
        torch.log_softmax(logits[r, s], 0)[labels[a, s]]
        for r, a in enumerate(anchors.tolist()) for s in range(2) if labels[a, s] >= 0
    ]).mean()  # fmt: skip
    autograd = torch.autograd.grad(loss, logits)[0]
    assert torch.allclose(op.gradient(logits.detach(), labels, anchors), autograd, rtol=1e-12, atol=1e-16)
