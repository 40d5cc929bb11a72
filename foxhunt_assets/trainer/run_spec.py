"""What a trainer process is told (run.json), what a run is called, and where it lies.

A run id is the first 16 hex of sha256(configuration, inputs, code, seed): a finished run is not run again, and
an evaluation with another fee or latency is another evaluation of the same training.
"""

from __future__ import annotations

import dataclasses
import hashlib
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, Literal

from foxhunt_assets import storage
from foxhunt_assets.errors import BadInput
from foxhunt_assets.trainer.config import TrainerConfig

# Folders whose source decides a run's bits; a change of one gives every run a new id.
CODE_PACKAGES = (
    "kernels", "foxhunt_assets.contracts", "foxhunt_assets.market", "foxhunt_assets.simulator",
    "foxhunt_assets.trainer",
)  # fmt: skip
EVALUATION_PACKAGES = (*CODE_PACKAGES, "foxhunt_assets.evaluation")


@dataclass(frozen=True)
class RunSpec:
    """One process's orders. Paths are absolute; none of them enters the identity.

    kind: train writes `<run>/train`, evaluate reads it and writes `<run>/eval-<eval id>`.
    fold_dir: folder of fold_spec.json, frd_labels.arrow, feature_norm.parquet. snapshots: folder of each source key.
    inputs: sha256 of each input by name (identity). out: the folder to commit. resume: folder of resumable
    checkpoints. device: cpu or cuda. parent: pid whose death ends this process (0: none).
    """

    kind: Literal["train", "evaluate"]
    config: TrainerConfig
    fold: str
    seed: int
    fold_dir: str
    snapshots: dict[str, str]
    inputs: dict[str, str]
    out: str
    quarantine: str
    resume: str
    train_dir: str = ""
    device: str = "cpu"
    parent: int = 0
    lock: str = ""

    @property
    def code(self) -> str:
        """Hash of the sources that decide this process's bits."""
        return code_hash(CODE_PACKAGES if self.kind == "train" else EVALUATION_PACKAGES)

    @property
    def run_id(self) -> str:
        """Identity of the training, or of the evaluation (which covers its training's)."""
        body = {
            "kind": self.kind, "config": self.config.to_json(), "inputs": self.inputs, "code": self.code,
            "seed": self.seed, "fold": self.fold,
        }  # fmt: skip
        return hashlib.sha256(storage.canonical_json(body).encode()).hexdigest()[:16]

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, raw: dict[str, Any]) -> RunSpec:
        return cls(**{**raw, "config": TrainerConfig.from_json(raw["config"])})

    @classmethod
    def read(cls, path: Path) -> RunSpec:
        raw = storage.read_json(path)
        try:
            return cls.from_json(raw)
        except (TypeError, KeyError) as error:  # not an object, a field too many or too few
            raise BadInput(f"{path}: not the orders of a run: {error}") from None


@cache
def code_hash(packages: tuple[str, ...] = CODE_PACKAGES) -> str:
    """sha256 over every source file of some packages, read once a process; by default those of training."""
    digest = hashlib.sha256()
    for package in packages:
        root = Path(str(resources.files(package)))
        for path in sorted(root.rglob("*")):
            if path.suffix in (".py", ".tsv", ".cu", ".cuh"):
                digest.update(f"{package}/{path.relative_to(root).as_posix()}\0".encode())
                digest.update(path.read_bytes())
    return digest.hexdigest()
