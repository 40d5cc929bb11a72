"""The way of loading a tape that is not taken: one thread of Python, copies out of the mapped file by torch's threads.

No thread waits for the interpreter's lock, and three buffers stay in the last cache. What speaks against it: a file
cut while it is mapped ends the process without a word, where a read says which file; and torch's threads wait for each
other in loops, which a machine with other work on its cores turns into seconds. benchmarks.tape measures both.
"""

from __future__ import annotations

import mmap
from collections.abc import Sequence
from pathlib import Path

import torch

from foxhunt_assets.market import tape, upload

_SLOTS = 3


def through_mapping(
    folder: Path, names: Sequence[str], batch: int, times: int, device: torch.device
) -> dict[str, torch.Tensor]:
    """Columns of the whole batches of a snapshots file, `times` times end to end, on a device.

    Batches have `batch` rows and are laid out alike, as benchmarks.tape writes them.
    """
    file = tape.Snapshots(folder)
    with (folder / tape.SNAPSHOTS_FILE).open("rb") as opened:
        raw = torch.frombuffer(mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_COPY), dtype=torch.uint8)
    batches, stored = file.n_rows // batch, [file.stored(name) for name in names]
    widths = [kind.itemsize for kind in stored]
    of = max(1, 2 * upload.PIECE_BYTES // (batch * sum(widths)))  # batches of a piece
    out = {
        name: torch.empty((times * batches * batch, *kind.shape), dtype=getattr(torch, kind.base.name), device=device)
        for name, kind in zip(names, stored)
    }
    flat = [x.view(-1).view(torch.uint8) for x in out.values()]
    places = [file._places(name)[:batches].tolist() for name in names]
    slots = [_Slot(of * batch * sum(widths), device) for _ in range(_SLOTS)]
    pieces = [(t * batches, first) for t in range(times) for first in range(0, batches, of)]
    for i, (before, first) in enumerate(pieces):
        slot, k = slots[i % _SLOTS], min(of, batches - first)
        sizes, row = [k * batch * width for width in widths], (before + first) * batch
        slot.wait()
        for part, at, width in zip(slot.here[: sum(sizes)].split(sizes), places, widths):
            step = at[first + 1] - at[first] if k > 1 else 1
            part.view(k, -1).copy_(raw.as_strided((k, batch * width), (step, 1), at[first]))
        slot.send([x[row * width :][:size] for x, width, size in zip(flat, widths, sizes)], sizes)
    return out


class _Slot:
    """A pinned buffer and its like on the device."""

    def __init__(self, size: int, device: torch.device):
        gpu = device.type == "cuda"
        self.here = torch.empty(size, dtype=torch.uint8, pin_memory=gpu)
        self._there = torch.empty_like(self.here, device=device)
        self._sent = torch.cuda.Event(blocking=True) if gpu else None

    def wait(self) -> None:
        if self._sent is not None:
            self._sent.synchronize()

    def send(self, targets: list[torch.Tensor], sizes: list[int]) -> None:
        size = sum(sizes)
        self._there[:size].copy_(self.here[:size], non_blocking=True)
        torch._foreach_copy_(targets, list(self._there[:size].split(sizes)))
        if self._sent is not None:
            self._sent.record()
