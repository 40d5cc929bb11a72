"""What a mode of run.deterministic sets for the whole process."""

import os

import pytest
import torch

from foxhunt_assets.trainer.assemble import pin_bits


@pytest.fixture
def pinned():
    yield
    pin_bits(1, 1)  # what every other test of this process runs under


@pytest.mark.parametrize(
    ("mode", "precision", "debug"),
    [(0, "high", 0), (1, "highest", 2), (2, "highest", 0)],
    ids=["TF32", "pinned", "control"],
)
def test_a_mode_sets_precision_and_whether_moving_variants_are_refused(pinned, mode, precision, debug):
    pin_bits(1, mode)
    assert torch.get_float32_matmul_precision() == precision
    assert torch.get_deterministic_debug_mode() == debug
    assert torch.get_num_threads() == 1
    assert torch.utils.deterministic.fill_uninitialized_memory is False


def test_the_pinned_mode_asks_cublas_for_workspaces_of_its_own(pinned, monkeypatch):
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
    pin_bits(1, 2)
    assert "CUBLAS_WORKSPACE_CONFIG" not in os.environ
    pin_bits(1, 1)
    assert os.environ["CUBLAS_WORKSPACE_CONFIG"] == ":4096:8"
