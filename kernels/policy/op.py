"""An action from logits, a legal mask and one random word a row."""

from __future__ import annotations

import torch

from kernels import build
from kernels.arguments import FLOATS, check, check_scalar
from kernels.policy import kernel, reference


def sample(
    logits: torch.Tensor, legal: torch.Tensor, draws: torch.Tensor, floor: torch.Tensor | float
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """(pi [R, A], action int64 [R], log_pi [R] in nats): behaviour probabilities, a draw from them, ln pi(action).

    pi = (1 - floor n_legal) softmax over the legal actions + floor; an illegal action has exactly 0. The action is
    the first whose cumulative probability exceeds u = (draw >> 8) 2^-24, the last possible one if rounding leaves
    none. logits: [R, A]. legal: bool [R, A], at least one a row. draws: int64 [R] of uint32 words.
    floor: probability each legal action keeps, floor n_legal at most 1.
    """
    check("logits", logits, (None, None), *FLOATS)
    check("legal", legal, tuple(logits.shape), torch.bool)
    check("draws", draws, (logits.shape[0],), torch.int64)
    check_scalar("floor", floor)
    return (kernel if build.on_gpu(logits) else reference).sample(logits, legal, draws, floor)
