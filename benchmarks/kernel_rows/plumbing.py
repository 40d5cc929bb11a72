"""Random words, digests, sums and packing: what every other part stands on."""

from __future__ import annotations

import torch

from benchmarks.kernel_rows.row import Row, written
from kernels.digest import op as digest
from kernels.pack import kernel as pack_kernel
from kernels.pack import reference as pack
from kernels.philox import kernel as philox_kernel
from kernels.philox import reference as philox
from kernels.reduce import kernel as reduce_kernel
from kernels.reduce import reference as reduce


def rows(large: int = 1 << 25, tall: int = 65_536) -> list[Row]:
    """large: words of a single digest. tall: rows of the larger sum."""
    found = []
    for r in (4096, tall):
        x = torch.randn(r, 128)
        found.append(Row(f"reduce {r} x 128", reduce_kernel.sum_rows, reduce.sum_rows, (x,), r * 512))
    found += [digest_row("digests 100 x 64 KiB", [8192] * 100), digest_row(f"digest {large >> 17} MiB", [large])]
    words = (torch.arange(1024), 32, 7, 2, (3, 4))
    return [
        *found,
        pack_row(),
        Row("philox 1024 x 32", philox_kernel.words, philox.words, words, 1024 * 33 * 8),
    ]  # fmt: skip


def pack_row() -> Row:
    """Tensors like those of a group of measurements, as many as a launch takes."""
    numbers = [torch.ones(n, dtype=torch.float64) for n in (180, 56, 56, 56, 56, 8)]
    numbers += [torch.ones(17), torch.ones(16, dtype=torch.bool)]
    out = torch.empty(sum(x.numel() for x in numbers), dtype=torch.int64)
    moved = 8 * out.numel() + sum(x.numel() * x.element_size() for x in numbers)
    name = f"pack {len(numbers)} tensors, {out.numel()} numbers"
    return Row(name, written(pack_kernel.words, 1), written(pack.words, 1), (numbers, out), moved, compiled=False)


def digest_row(name: str, sizes: list[int]) -> Row:
    """Buffers in one run. The twin that is timed is what a buffer costs without its two host waits."""
    buffers = [torch.randint(0, 2**62, (n,)) for n in sizes]
    digests = digest.Digests(buffers, [0] * len(buffers))

    def twin(*xs: torch.Tensor) -> torch.Tensor:
        return torch.stack([digest.reference.wide([x]) for x in xs])

    def oracle(*xs: torch.Tensor) -> torch.Tensor:
        found = [digest.reference.digest64(x) for x in xs]
        return torch.tensor([d - 2**64 if d >= 2**63 else d for d in found])

    return Row(name, lambda *_: digests.run(), twin, tuple(buffers), 8 * sum(sizes), compiled=len(sizes) == 1,
               oracle=oracle)  # fmt: skip
