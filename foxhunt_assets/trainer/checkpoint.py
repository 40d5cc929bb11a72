"""Checkpoints: the final one that evaluation reads, and resumable ones that hold every buffer of a run under way.

safetensors, never pickle. A resumable checkpoint is a folder that appears by one rename, keyed by the run's
identity; the next attempt of that identity continues from the newest.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from foxhunt_assets import storage
from foxhunt_assets.errors import BadInput
from foxhunt_assets.trainer.world import World

CHECKPOINT = "checkpoint.safetensors"
FACTS = "checkpoint.json"
_STATE, _META = "state.safetensors", "meta.json"
_WHOLE = ("adam_t", "isv_full", "popart_state", "events_seen")  # beside the named parameters


def save_final(folder: Path, world: World, facts: dict[str, Any]) -> None:
    """Named weights, AdamW moments, the target head and the slots, with who and what they belong to."""
    b, layout = world.buffers, world.layout
    tensors = {name: b[name] for name in _WHOLE}
    for prefix, flat in (("weights", "weights"), ("adam_m", "adam_m"), ("adam_v", "adam_v")):
        tensors |= {f"{prefix}.{name}": view for name, view in layout.views(b[flat]).items()}
    tensors |= {f"target.{name}": view for name, view in layout.views(b["target_q"], "q").items()}
    save_file({k: v.detach().cpu().contiguous().clone() for k, v in tensors.items()}, folder / CHECKPOINT)
    storage.write_json(folder / FACTS, facts)


def load_final(train_dir: Path, world: World) -> dict[str, Any]:
    """Copy a final checkpoint into an evaluation's world; BadInput names what does not fit. Returns its facts."""
    path = train_dir / CHECKPOINT
    saved = _read(path)
    b, layout = world.buffers, world.layout
    wanted = {name: b[name] for name in _WHOLE}
    for prefix, flat in (("weights", "weights"), ("adam_m", "adam_m"), ("adam_v", "adam_v")):
        wanted |= {f"{prefix}.{name}": view for name, view in layout.views(b[flat]).items()}
    wanted |= {f"target.{name}": view for name, view in layout.views(b["target_q"], "q").items()}
    for name in sorted(wanted.keys() ^ saved.keys()):
        raise BadInput(f"{path}: tensor {name} is {'missing' if name in wanted else 'unknown'}; train again")
    for name, tensor in wanted.items():
        if tensor.shape != saved[name].shape or tensor.dtype != saved[name].dtype:
            raise BadInput(f"{path}: {name} is {list(saved[name].shape)}, the run wants {list(tensor.shape)}")
        tensor.copy_(saved[name])
    return storage.read_json(train_dir / FACTS)


@dataclass
class Resume:
    """A folder of resumable checkpoints; diag.jsonl grows beside them and is cut back to the newest one's length."""

    folder: Path

    @property
    def diag(self) -> Path:
        return self.folder / "diag.jsonl"

    def save(self, world: World, trades: torch.Tensor, meta: dict[str, Any]) -> None:
        """Write every state buffer and the closed trades beside, then rename; older checkpoints go."""
        name = f"step_{meta['step']:09d}"
        beside = self.folder / f".{name}.{os.getpid()}"
        shutil.rmtree(beside, ignore_errors=True)
        beside.mkdir(parents=True)
        state = {k: v.detach().cpu().contiguous().clone() for k, v in world.buffers.state().items()}
        save_file({**state, "closed_trades": trades}, beside / _STATE)
        storage.write_json(beside / _META, meta)
        storage.sync(beside)
        os.rename(beside, self.folder / name)
        for old in self._found()[:-1]:
            shutil.rmtree(old, ignore_errors=True)

    def newest(self) -> dict[str, Any] | None:
        """What was saved beside the newest checkpoint's state; None where there is no checkpoint."""
        found = self._found()
        return storage.read_json(found[-1] / _META) if found else None

    def load(self, world: World) -> torch.Tensor:
        """Copy the newest checkpoint's state into the world; returns the closed trades."""
        newest = self._found()[-1]
        saved = _read(newest / _STATE)
        trades = saved.pop("closed_trades")
        world.buffers.load_state(saved)
        kept = storage.read_json(newest / _META)["diag_bytes"]
        if not self.diag.is_file() or self.diag.stat().st_size < kept:  # truncate would fill it up with zeros
            raise BadInput(f"{self.diag}: rows that {newest.name} counts on are gone; remove {self.folder}, train anew")
        with self.diag.open("r+b") as f:  # rows after the checkpoint are written again
            f.truncate(kept)
        return trades

    def clear(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    def _found(self) -> list[Path]:
        return sorted(p for p in self.folder.glob("step_*") if p.is_dir())


def _read(path: Path) -> dict[str, torch.Tensor]:
    try:
        return load_file(path)
    except FileNotFoundError:
        raise BadInput(f"{path}: no such file; train first") from None
    except SafetensorError as error:
        raise BadInput(f"{path}: not a whole safetensors file ({error}); train again") from None
