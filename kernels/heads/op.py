"""All heads of an acting batch, into buffers: where nothing learns, five products and their ends are one launch."""

from __future__ import annotations

import torch

from kernels import build
from kernels.arguments import FLOATS, check
from kernels.heads import kernel, reference
from kernels.heads.reference import Outputs, Weights

__all__ = ["Outputs", "Weights", "acting"]


def acting(h: torch.Tensor, w: Weights, support: torch.Tensor, frd_atoms: torch.Tensor, into: Outputs) -> None:
    """Heads of h [R, H] into buffers, without gradients: logits of C51 Q, policy and forward return, E[Q], V, signs.

    support: [N], the value of each C51 atom. frd_atoms: float64 [M], that of each forward-return atom, in sigmas; the
    signs are of the mean taken in float64.
    """
    check("h", h, (None, None), *FLOATS)
    rows, units, dtype = *h.shape, h.dtype
    check("support", support, (None,), dtype)
    check("frd_atoms", frd_atoms, (None,), torch.float64)
    actions, horizons, hidden = w.pi_b.numel(), into.signs.shape[1], w.frd_b1.numel()
    atoms, bins = support.numel(), frd_atoms.numel()
    outputs = {"q": actions * atoms, "pi": actions, "v": 1, "frd": horizons * bins}
    layers = {"q": ("q_w", "q_b"), "pi": ("pi_w", "pi_b"), "v": ("v_w", "v_b"), "frd": ("frd_w2", "frd_b2")}
    named = w._asdict()
    for head, (matrix, bias) in layers.items():
        check(matrix, named[matrix], (outputs[head], hidden if head == "frd" else units), dtype)
        check(bias, named[bias], (outputs[head],), dtype)
    check("frd_w1", w.frd_w1, (hidden, units), dtype)
    shapes: dict[str, tuple[int, ...]] = {
        "q_logits": (rows, actions, atoms), "q_values": (rows, actions), "pi_logits": (rows, actions), "v": (rows,),
        "frd_logits": (rows, horizons, bins),
    }  # fmt: skip
    for name, shape in shapes.items():
        check(name, getattr(into, name), shape, dtype)
    check("signs", into.signs, (rows, horizons), torch.int8)
    with torch.no_grad():
        (kernel if build.on_gpu(h) else reference).acting(h, w, support, frd_atoms, into)
