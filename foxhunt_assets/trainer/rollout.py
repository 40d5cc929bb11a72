"""The rollout window: T rows of B accounts collected with frozen weights, then advantages for PPO."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from foxhunt_assets.contracts.buffers import BufferSpec
from foxhunt_assets.trainer.config import TrainerConfig
from foxhunt_assets.trainer.stats import Stats
from kernels.gae import op as gae
from kernels.philox import op as philox
from kernels.ring import op as ring
from kernels.window import op as window

COLUMNS = (
    "anchor", "action", "log_pi", "reward", "value", "next_value", "terminated", "truncated", "acct", "carry",
    "legal", "executed_entry",
)  # fmt: skip
WRITES = tuple(f"rollout_{c}" for c in COLUMNS)
KNOWN = tuple(c for c in COLUMNS if c != "next_value")  # of a row, before V of what it arrived in
WINDOW_STATS = Stats("stats_window", window.NAMES, "rollout")  # of the last finished window; 0 before the first
RESULTS = ("rollout_advantage", "rollout_return", WINDOW_STATS.buffer)
# What a learning minibatch reads of its rows.
LEARNED = ("anchor", "acct", "carry", "legal", "action", "log_pi", "value", "advantage", "return")


def specs(config: TrainerConfig, n_actions: int, n_account: int) -> list[BufferSpec]:
    t, b, h = config.learning.window_rows, config.model.accounts, config.model.hidden
    kinds = {
        "anchor": "int64", "action": "int64", "terminated": "bool", "truncated": "bool", "executed_entry": "int8",
    }  # fmt: skip
    widths = {"acct": (n_account,), "carry": (h,), "legal": (n_actions,)}
    columns = [
        BufferSpec(
            f"rollout_{c}",
            (t, b, *widths.get(c, ())),
            "bool" if c == "legal" else kinds.get(c, "float32"),
            "rollout",
            ("t", "account"),
        )
        for c in COLUMNS
    ]
    results = [BufferSpec(name, (t, b), "float32", "rollout", ("t", "account")) for name in RESULTS[:2]]
    return [*columns, *results, WINDOW_STATS.spec, BufferSpec("epoch_order", (t * b,), "int64", "transient", ("row",))]


class Rollout:
    """Operations on the rollout buffers of a registry."""

    def __init__(self, buffers: Mapping[str, torch.Tensor], config: TrainerConfig) -> None:
        self.b = buffers
        self.steps, self.accounts = config.learning.window_rows, config.model.accounts
        self.gamma, self.lam = config.learning.gamma, config.learning.gae_lambda
        self.minibatches = config.learning.window_minibatches
        columns = (KNOWN, ("next_value",), LEARNED)
        self._known, self._arrived, self._learned = (ring.Ring([self.flat(c) for c in names]) for names in columns)
        self._order = ring.Ring([buffers["epoch_order"]])

    def insert(self, t: torch.Tensor, row: Mapping[str, torch.Tensor]) -> None:
        """Write row t (0-dim int64, on the device) of every column but next_value."""
        self._known.put([row[name] for name in KNOWN], t[None], self.accounts, self.accounts)

    def row(self, t: torch.Tensor, into: Sequence[torch.Tensor]) -> None:
        """Copy row t (int64 [1]) into [B, ...] tensors in the order of KNOWN."""
        self._known.take_run(t, self.accounts, self.accounts, into=into)

    def bootstrap(self, t: torch.Tensor, v: torch.Tensor) -> None:
        """Write v [B], V of the states that row t (int64 [1]) arrived in."""
        self._arrived.put([v], t, self.accounts, self.accounts)

    def arrive(self, t: torch.Tensor, v: torch.Tensor) -> None:
        """V of row t [B] is V of the state the row before arrived in, unless its episode ended there or t is 0."""
        b = self.b
        window.arrive(v, t[None], b["rollout_terminated"], b["rollout_truncated"], b["rollout_next_value"])

    def finish(self) -> None:
        """Advantages and returns of the whole window (Schulman 2016, 1506.02438, Eq. 16), and its moments."""
        b = self.b
        advantage, returns = gae.gae(
            b["rollout_reward"], b["rollout_value"], b["rollout_next_value"], b["rollout_terminated"],
            b["rollout_truncated"], self.gamma, self.lam,
        )  # fmt: skip
        b["rollout_advantage"].copy_(advantage)
        b["rollout_return"].copy_(returns)
        flags = (b["rollout_terminated"], b["rollout_truncated"])
        values = (b["rollout_value"], b["rollout_next_value"])
        window.moments(advantage, returns, *values, *flags, b["rollout_executed_entry"], b[WINDOW_STATS.buffer])

    def flat(self, name: str) -> torch.Tensor:
        """A column as [T x B, ...], t-major."""
        return self.b[f"rollout_{name}"].flatten(0, 1)

    def shuffle(self, seed: int, update: torch.Tensor) -> None:
        """Draw an epoch's order of rows, a permutation by sorting Philox words, ties by row; update is its first."""
        rows = torch.arange(self.steps * self.accounts, device=update.device)
        words = philox.words(seed, "minibatch", update, rows, 1)[:, 0]
        self.b["epoch_order"].copy_(torch.argsort(words, stable=True))

    def minibatch(self, number: torch.Tensor, into: Sequence[torch.Tensor]) -> None:
        """Copy the rows of minibatch `number` (0-dim int64) of the epoch to [M, ...] tensors, ordered as LEARNED.

        Numbers go on over the epochs of a window; each epoch's minibatches are all of its order.
        """
        size = self.steps * self.accounts // self.minibatches
        (rows,) = self._order.take_run(number[None], size, size)
        self._learned.take(rows, into)
