"""The same calls for every backend: CPU twin, the sources in the shim, a CUDA device, a captured graph.

A file a theme; importing it here registers its cases, and every test finds them.
"""

from tests.kernels.cases import encoder, learning, market, measuring, plumbing, replay
from tests.kernels.cases.measuring import acting_parts
from tests.kernels.cases.registry import CASES, made, ulps_apart

__all__ = [
    "CASES", "acting_parts", "encoder", "learning", "made", "market", "measuring", "plumbing", "replay", "ulps_apart",
]  # fmt: skip
