"""The gradient of a forward-return head's loss."""

from __future__ import annotations

import torch

from kernels import build
from kernels.arguments import FLOATS, check
from kernels.frd import kernel, reference


def gradient(logits: torch.Tensor, labels: torch.Tensor, anchors: torch.Tensor) -> torch.Tensor:
    """dL/dlogits [R, S, N] of L = mean cross entropy (nats) over the labels there are; 0 where there is none.

    logits: [R, S, N]. labels: int64 [rows of the tape, S], atom or -1; read at anchors int64 [R].
    """
    check("logits", logits, (anchors.numel(), None, None), *FLOATS)
    check("labels", labels, (None, logits.shape[1]), torch.int64)
    check("anchors", anchors, (None,), torch.int64)
    return (kernel if build.on_gpu(logits) else reference).gradient(logits, labels, anchors)
