"""Every trained parameter in one table, laid out in one flat float32 buffer: branch after branch, name after name.

A branch is what shares a learning rate and has leaves of its own (optim.<branch>.*). The encoder's branches come
first, so encoder and heads are two slices.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch

from foxhunt_assets.contracts.buffers import BufferSpec
from foxhunt_assets.trainer.config import TrainerConfig
from kernels.philox import op as philox

ENCODER_BRANCHES = ("vsn", "mamba2_l1", "mamba2_l2", "ln", "attn", "cfc")
HEAD_BRANCHES = ("q", "pi", "v", "frd")
BRANCHES = ENCODER_BRANCHES + HEAD_BRANCHES


@dataclass(frozen=True)
class Param:
    """One parameter. init: xavier (uniform, Glorot 2010), zeros, ones, or a constant; gain multiplies xavier."""

    name: str
    branch: str
    shape: tuple[int, ...]
    init: str = "xavier"
    gain: float = 1.0
    constant: float = 0.0

    @property
    def size(self) -> int:
        return math.prod(self.shape)


def param_table(config: TrainerConfig, n_features: int, n_actions: int, n_account: int) -> tuple[Param, ...]:
    """The parameters in layout order. n_features: F. n_account: width of the account state."""
    m, horizons = config.model, len(config.labels.horizons)
    h = m.hidden
    frd_out = horizons * m.frd_atoms
    return (
        Param("vsn_w", "vsn", (n_features, n_features)),
        Param("vsn_b", "vsn", (n_features,), "zeros"),
        *_block("mamba2_l1", n_features, h),
        *_block("mamba2_l2", h, h),
        *(
            Param(f"ln_{x}_{part}", "ln", (h,), init)
            for x in "ab"
            for part, init in (("gain", "ones"), ("bias", "zeros"))
        ),
        Param("attn_q", "attn", (h,)),
        Param("cfc_w_in", "cfc", (4 * h, h + n_account)),
        Param("cfc_w_rec", "cfc", (4 * h, h)),
        Param("cfc_b", "cfc", (4 * h,), "zeros"),
        Param("q_out_w", "q", (n_actions * m.atoms, h), gain=0.1),
        Param("q_out_b", "q", (n_actions * m.atoms,), "zeros"),
        Param("pi_out_w", "pi", (n_actions, h), gain=0.1),
        Param("pi_out_b", "pi", (n_actions,), "zeros"),
        Param("v_out_w", "v", (1, h), gain=0.1),
        Param("v_out_b", "v", (1,), "zeros"),
        Param("frd_w1", "frd", (m.frd_hidden, h), gain=0.1),
        Param("frd_b1", "frd", (m.frd_hidden,), "zeros"),
        Param("frd_w2", "frd", (frd_out, m.frd_hidden), gain=0.1),
        Param("frd_b2", "frd", (frd_out,), "zeros"),
    )


def _block(name: str, n_in: int, h: int) -> tuple[Param, ...]:
    """A diagonal selective state-space block; b_a of 2 starts its decay near 0.88. What a and b have lies together:
    the encoder takes both in one product."""
    return (
        Param(f"{name}_w_in", name, (h, n_in)),
        Param(f"{name}_b_in", name, (h,), "zeros"),
        Param(f"{name}_w_a", name, (h, h)),
        Param(f"{name}_w_b", name, (h, h)),
        Param(f"{name}_b_a", name, (h,), "constant", constant=2.0),
        Param(f"{name}_b_b", name, (h,), "zeros"),
        Param(f"{name}_w_c", name, (h,), "ones"),
        Param(f"{name}_w_out", name, (h, h)),
        Param(f"{name}_b_out", name, (h,), "zeros"),
    )


class Layout:
    """Where each parameter and branch lies in the flat buffer."""

    def __init__(self, table: tuple[Param, ...]) -> None:
        self.table = table
        self.slices: dict[str, slice] = {}
        self.branches: dict[str, slice] = {}
        at = 0
        for p in table:
            self.slices[p.name] = slice(at, at + p.size)
            first = self.branches[p.branch].start if p.branch in self.branches else at
            self.branches[p.branch] = slice(first, at + p.size)
            at += p.size
        self.size = at
        self.encoder = slice(0, self.branches[ENCODER_BRANCHES[-1]].stop)
        self.heads = slice(self.encoder.stop, at)

    def specs(self) -> list[BufferSpec]:
        """Flat buffers: weights, their gradient, AdamW's moments and step count, and the target Q head."""
        n, q = self.size, self.branches["q"]
        return [
            BufferSpec("weights", (n,), "float32", "weights", ("parameter",)),
            BufferSpec("grads", (n,), "float32", "grads", ("parameter",)),
            BufferSpec("adam_m", (n,), "float32", "optimizer", ("parameter",)),
            BufferSpec("adam_v", (n,), "float32", "optimizer", ("parameter",)),
            BufferSpec("adam_t", (1,), "int64", "optimizer"),
            BufferSpec("target_q", (q.stop - q.start,), "float32", "target", ("parameter",)),
        ]

    def views(self, flat: torch.Tensor, branch: str | None = None) -> dict[str, torch.Tensor]:
        """Named views of a flat buffer, sharing its memory; of one branch if flat is just that branch."""
        base = self.branches[branch].start if branch else 0
        return {
            p.name: flat[self.slices[p.name].start - base : self.slices[p.name].stop - base].view(p.shape)
            for p in self.table
            if branch in (None, p.branch)
        }

    def span(self, flat: torch.Tensor, first: str, last: str) -> torch.Tensor:
        """What lies from one parameter to another, both included."""
        return flat[self.slices[first].start : self.slices[last].stop]

    def initialise(self, flat: torch.Tensor, seed: int) -> None:
        """Draw every parameter from Philox(seed, "init", step = position in the table): nothing is left unseeded."""
        for number, (p, view) in enumerate(zip(self.table, self.views(flat).values())):
            if p.init == "xavier":
                fan_in = p.shape[-1]
                fan_out = p.shape[0] if len(p.shape) > 1 else 1
                bound = p.gain * math.sqrt(6.0 / (fan_in + fan_out))
                rows = torch.arange(p.size, device=flat.device)
                uniform = philox.uniform(philox.words(seed, "init", number, rows, 1)).view(p.shape)
                view.copy_((2.0 * uniform - 1.0) * bound)
            else:
                view.fill_({"zeros": 0.0, "ones": 1.0, "constant": p.constant}[p.init])

    def __iter__(self) -> Iterator[Param]:
        return iter(self.table)
