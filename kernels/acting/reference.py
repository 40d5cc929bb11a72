"""Quantities of each account and their folds over the batch, in plain torch and float64.

B accounts, A actions, N atoms of the value distribution, M horizons of L atoms. `quantities` are float64 [B] each, in
the order of the kernel's table; `entries` says which fold of which of them is a number that leaves the device.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import torch

SUM, SQUARES, LEAST, LARGEST, COUNT = range(5)  # folds; SQUARES: about the mean, COUNT: of accounts at `operand`


class Heads(NamedTuple):
    """What the heads said."""

    q_logits: torch.Tensor  # float32 [B, A, N]
    q_values: torch.Tensor  # float32 [B, A], their expectation
    v_min: torch.Tensor  # float32 0-dim, least atom
    v_max: torch.Tensor  # float32 0-dim, greatest atom
    v: torch.Tensor  # float32 [B]
    pi_logits: torch.Tensor  # float32 [B, A]
    pi: torch.Tensor  # float32 [B, A], floored probabilities
    legal: torch.Tensor  # bool [B, A], at least one a row
    frd_logits: torch.Tensor  # float32 [B, M, L]
    frd_atoms: torch.Tensor  # float64 [L]


class Acted(NamedTuple):
    """What was done. labels: of every row of the tape, -1 where there is none; anchor: row of each account."""

    sampled: torch.Tensor  # int64 [B]
    draw: torch.Tensor  # int64 [B], the uint32 word it was sampled with
    executed: torch.Tensor  # int64 [B]
    starts: torch.Tensor  # bool [B], the account starts an episode
    anchor: torch.Tensor  # int64 [B]
    labels: torch.Tensor  # int64 [rows, M]


class Paid(NamedTuple):
    """What it brought."""

    raw: torch.Tensor  # float32 [B], points a lot
    scaled: torch.Tensor  # float32 [B]
    final: torch.Tensor  # float32 [B], whitened
    core_cents: torch.Tensor  # int64 [B]
    fee_cents: torch.Tensor  # int64 [B]
    closed: torch.Tensor  # bool [B], a trade closed


class History(NamedTuple):
    """State kept from row to row; `acting` moves it on by a row, in place."""

    shares: torch.Tensor  # float64 [B, A], running share of each executed action
    last_action: torch.Tensor  # int64 [B]
    counts: torch.Tensor  # int64 [W, A], executed actions of the last W rows, a ring
    rows: torch.Tensor  # int64 [1], rows before this one
    closed_raw: torch.Tensor  # float64 [1], raw rewards of closes so far


class Scale(NamedTuple):
    """Numbers the quantities are measured by."""

    floor: float  # probability under which a legal action counts as floored
    kept: float  # floor of the behaviour policy
    near_tie: float  # probability by which the first action must lead
    point_lot_cents: float
    tail: float  # whitened reward beyond which a reward is in the tail
    rate: float  # of the running shares


VALUES = ("taken", "top", "gap", "spread", "entropy", "std", "edge_lo", "edge_hi", "agree", "argmax", "v")
POLICY = (
    "entropy", "max", "logit", "taken", "log_kept", "floored", "draw", "near_tie", "switched", "account_entropy",
    "sampled", "executed",
)  # fmt: skip
HORIZON = ("entropy", "argmax", "nll", "hit", "valid", "expected", "hi", "lo")
REWARD = (
    "final", "raw", "raw_abs", "nonzero", "closed_abs", "closed_raw", "core", "fees", "residual", "gap", "scaled_abs",
    "tail",
)  # fmt: skip
_FOLDS = {
    "q.v": (SUM, SQUARES), "pi.entropy": (SUM, LEAST), "pi.logit": (LARGEST,), "pi.account_entropy": (SUM, LEAST),
    "reward.final": (SUM, SQUARES, LEAST, LARGEST), "reward.residual": (LARGEST,),
}  # fmt: skip
_COUNTED = ("q.argmax", "pi.sampled", "pi.executed")
_SUFFIX = {SUM: "", SQUARES: ".squares", LEAST: ".least", LARGEST: ".largest"}


def order(actions: int, horizons: int) -> tuple[str, ...]:
    """Names of the quantities."""
    return (
        *(f"q.{name}" for name in VALUES), *(f"q.{a}" for a in range(actions)),
        *(f"pi.{name}" for name in POLICY), *(f"pi.{a}" for a in range(actions)),
        *(f"frd.{m}.{name}" for m in range(horizons) for name in HORIZON),
        *(f"reward.{name}" for name in REWARD),
    )  # fmt: skip


@cache
def entries(actions: int, horizons: int) -> tuple[tuple[str, int, int, int], ...]:
    """(name, quantity, fold, operand) of every fold."""
    found: list[tuple[str, int, int, int]] = []
    each = [f"q.{a}" for a in range(actions)]
    for i, name in enumerate(order(actions, horizons)):
        if name in _COUNTED:
            found += [(f"{name}.{a}", i, COUNT, a) for a in range(actions)]
        else:
            folds = (SUM, SQUARES) if name in each else _FOLDS.get(name, (SUM,))
            found += [(name + _SUFFIX[fold], i, fold, 0) for fold in folds]
    return tuple(found)


@cache
def names(actions: int, horizons: int) -> tuple[str, ...]:
    """Names of the numbers: the folds, then what is made of the history."""
    history = (*(f"window.{a}" for a in range(actions)), "window_rows", "closed_raw")
    return (*(name for name, *_ in entries(actions, horizons)), *history)


def acting(h: Heads, a: Acted, p: Paid, history: History, scale: Scale) -> torch.Tensor:
    """float64 [len(names)]."""
    actions, horizons = h.legal.shape[1], h.frd_logits.shape[1]
    found = _values(h, a.executed) | _policy(h, a, history, scale) | _horizons(h, a) | _rewards(p, scale)
    each = [found[name] for name in order(actions, horizons)]
    folds = [_fold(each[i], fold, operand) for _, i, fold, operand in entries(actions, horizons)]
    history.counts[history.rows % len(history.counts)] = _counts(a.executed, actions)[None]
    history.closed_raw.add_(found["reward.closed_raw"].sum())
    history.rows.add_(1)
    window_rows = history.rows.clamp_max(len(history.counts))
    return torch.cat([torch.stack(folds), history.counts.sum(0).double(), window_rows.double(), history.closed_raw])


def _fold(x: torch.Tensor, fold: int, operand: int) -> torch.Tensor:
    if fold == SQUARES:
        return ((x - x.mean()) ** 2).sum()
    if fold == COUNT:
        return (x == operand).double().sum()
    return x.sum() if fold == SUM else x.amin() if fold == LEAST else x.amax()


def _counts(x: torch.Tensor, actions: int) -> torch.Tensor:
    return (x[:, None] == torch.arange(actions, device=x.device)).sum(0)


def _softmax(logits: torch.Tensor, legal: torch.Tensor | None = None) -> tuple[torch.Tensor, torch.Tensor]:
    """(probabilities, entropy) over the last axis: ln sum e^d - sum p d, d the distance from the largest logit."""
    x = logits.double()
    if legal is not None:
        x = x.masked_fill(~legal, float("-inf"))
    off = x - x.amax(-1, keepdim=True)
    e = off.exp()
    total = e.sum(-1, keepdim=True)
    weighted = (e * off.masked_fill(e == 0, 0.0)).sum(-1) / total[..., 0]
    return e / total, total[..., 0].log() - weighted


def _values(h: Heads, executed: torch.Tensor) -> dict[str, torch.Tensor]:
    taken, q, atoms = executed[:, None], h.q_values.double(), h.q_logits.shape[2]
    steps = torch.arange(atoms, dtype=torch.float32, device=q.device) / (atoms - 1)
    support = (h.v_min + (h.v_max - h.v_min) * steps).double()
    p, entropy = _softmax(h.q_logits.gather(1, taken[:, :, None].expand(-1, 1, atoms))[:, 0])
    mean = (p * support).sum(1, keepdim=True)
    top = q.topk(2, dim=1).values
    best, chosen = (x.masked_fill(~h.legal, float("-inf")).argmax(1) for x in (h.q_values, h.pi_logits))
    found = (
        q.gather(1, taken)[:, 0], top[:, 0], top[:, 0] - top[:, 1], top[:, 0] - q.amin(1), entropy,
        (p * (support - mean) ** 2).sum(1).sqrt(), p[:, 0], p[:, -1], (best == chosen).double(),
        q.argmax(1).double(), h.v.double(),
    )  # fmt: skip
    return {f"q.{name}": x for name, x in zip(VALUES, found)} | {f"q.{i}": x for i, x in enumerate(q.unbind(1))}


def _policy(h: Heads, a: Acted, history: History, scale: Scale) -> dict[str, torch.Tensor]:
    p, entropy = _softmax(h.pi_logits, h.legal)
    top = h.pi.double().topk(2, dim=1).values
    taken = p.gather(1, a.sampled[:, None])[:, 0]
    legal = h.legal.double()
    kept = (1.0 - scale.kept * legal.sum(1)) * taken + scale.kept * legal.gather(1, a.sampled[:, None])[:, 0]
    switched = (a.executed != history.last_action) & ~a.starts
    history.last_action.copy_(a.executed)
    now = (a.executed[:, None] == torch.arange(p.shape[1], device=p.device)).double()
    shares = torch.where(history.rows > 0, history.shares + scale.rate * (now - history.shares), now)
    history.shares.copy_(shares)
    found = (
        entropy, p.amax(1), h.pi_logits.double().abs().amax(1), taken, kept.log().clamp_max(0),
        ((p < scale.floor) & h.legal).sum(1).double(), (a.draw >> 8).double() * 2.0**-24,
        (top[:, 0] - top[:, 1] < scale.near_tie).double(), switched.double(),
        -torch.special.xlogy(shares, shares).sum(1), a.sampled.double(), a.executed.double(),
    )  # fmt: skip
    return {f"pi.{name}": x for name, x in zip(POLICY, found)} | {f"pi.{i}": x for i, x in enumerate(p.unbind(1))}


def _horizons(h: Heads, a: Acted) -> dict[str, torch.Tensor]:
    p, entropy = _softmax(h.frd_logits)
    labels = a.labels[a.anchor]
    valid = labels >= 0
    nll = -torch.log_softmax(h.frd_logits.double(), -1).gather(-1, labels.clamp_min(0)[..., None])[..., 0]
    argmax = h.frd_logits.argmax(-1)
    found = (
        entropy, argmax, torch.where(valid, nll, 0.0), (argmax == labels) & valid, valid, (p * h.frd_atoms).sum(-1),
        p[..., -1], p[..., 0],
    )  # fmt: skip
    return {f"frd.{m}.{name}": x[:, m].double() for name, x in zip(HORIZON, found) for m in range(labels.shape[1])}


def _rewards(p: Paid, scale: Scale) -> dict[str, torch.Tensor]:
    raw, scaled, final = p.raw.double(), p.scaled.double(), p.final.double()
    core, fees = p.core_cents.double() / scale.point_lot_cents, -p.fee_cents.double() / scale.point_lot_cents
    found = (
        final, raw, raw.abs(), raw != 0, raw.abs() * p.closed, raw * p.closed, core, fees, (raw - (core + fees)).abs(),
        (final - scaled).abs(), scaled.abs(), final.abs() > scale.tail,
    )  # fmt: skip
    return {f"reward.{name}": x.double() for name, x in zip(REWARD, found)}
