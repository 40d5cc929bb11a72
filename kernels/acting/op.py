"""Numbers of one step's acting batch: what the heads said, what was done, what it brought, folded over the accounts."""

from __future__ import annotations

import torch

from kernels import build
from kernels.acting import kernel, reference
from kernels.acting.reference import Acted, Heads, History, Paid, Scale, names
from kernels.arguments import check

__all__ = ["Acted", "Heads", "History", "Paid", "Scale", "acting", "names"]


def acting(heads: Heads, acted: Acted, paid: Paid, history: History, scale: Scale) -> torch.Tensor:
    """float64 [len(names(A, M))]: sums over the B accounts but where a name says otherwise; history moves on a row.

    q.: of E[Q] and of the distribution of the executed action (taken, top, gap to the second, spread to the least,
    entropy, std, mass on the outer atoms edge_lo and edge_hi), agree (the best legal action is the policy's), v,
    q.<a> of action a.
    pi.: of the softmax over legal actions, before the floor (entropy, max, taken: probability of the sampled action,
    floored: legal actions under scale.floor, pi.<a>), logit (largest |logit|), log_kept (ln of the sampled action's
    floored probability), draw (uniform it was sampled with), near_tie, switched (executed another action than a row
    ago), account_entropy (of the running shares).
    frd.<m>.: entropy, argmax, nll and hit of the label where it is valid, expected value, mass on the outer atoms.
    reward.: see `Paid`; gap |final - scaled|, residual |raw - (core + fees)|.
    .squares: about the mean. .least, .largest. q.argmax.<a>, pi.sampled.<a>, pi.executed.<a>: counts.
    window.<a>: executed counts of the last window_rows rows. closed_raw: running sum, this row included.
    """
    b, actions = heads.legal.shape
    horizons, atoms = heads.frd_logits.shape[1:]
    single = (torch.float32,)
    shapes: dict[str, tuple[tuple[int | None, ...], tuple[torch.dtype, ...]]] = {
        "q_logits": ((b, actions, None), single), "q_values": ((b, actions), single), "v_min": ((), single),
        "v_max": ((), single), "v": ((b,), single), "pi_logits": ((b, actions), single), "pi": ((b, actions), single),
        "legal": ((b, actions), (torch.bool,)), "frd_logits": ((b, None, None), single),
        "frd_atoms": ((atoms,), (torch.float64,)), "sampled": ((b,), (torch.int64,)), "draw": ((b,), (torch.int64,)),
        "executed": ((b,), (torch.int64,)), "starts": ((b,), (torch.bool,)), "anchor": ((b,), (torch.int64,)),
        "labels": ((None, horizons), (torch.int64,)), "raw": ((b,), single), "scaled": ((b,), single),
        "final": ((b,), single), "core_cents": ((b,), (torch.int64,)), "fee_cents": ((b,), (torch.int64,)),
        "closed": ((b,), (torch.bool,)), "shares": ((b, actions), (torch.float64,)),
        "last_action": ((b,), (torch.int64,)), "counts": ((None, actions), (torch.int64,)),
        "rows": ((1,), (torch.int64,)), "closed_raw": ((1,), (torch.float64,)),
    }  # fmt: skip
    for part in (heads, acted, paid, history):
        for name, x in part._asdict().items():
            shape, dtypes = shapes[name]
            check(name, x, shape, *dtypes)
    if b == 0 or actions < 2 or heads.q_logits.shape[2] < 2:
        raise ValueError(f"q_logits: shape {list(heads.q_logits.shape)}, expected an account, two actions, two atoms")
    return (kernel if build.on_gpu(heads.legal) else reference).acting(heads, acted, paid, history, scale)
