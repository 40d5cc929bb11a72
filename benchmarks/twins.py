"""The passes of a step against torch.compile: the same computation in plain torch and autograd, `reduce-overhead`.

    python -m benchmarks.twins                     acting and learning, each in a process of its own (needs a GPU; the
                                                   compiler takes a minute and a half of two and a quarter)
    python -m benchmarks.twins --row per_step      one of acting, learning, per_step; in this process

"passes" are a list's stages without those that move rows or weights: what acts has encoder and heads, what learns has
encoder, heads, losses and every gradient, of the windows that are given to the flat gradient. Ours are the stages of a
run, captured as a training captures them, statistics for the diagnostics included. The peer is what one would write
without kernels: pure functions of weights and batch (the twins' own losses where they are pure), one loss, autograd,
compiled whole in mode "reduce-overhead" with fixed addresses of all inputs, free to choose any algorithm. Both read the
same tensors. A row counts only if they agree: every output within TOLERANCE of its largest value, and the peer ran as
CUDA graphs. A peer that has not compiled within --limit seconds is killed and has no row. Times are medians over events
around ten calls, queued one behind the other.
"""

from __future__ import annotations

import argparse
import math
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional as F

from benchmarks.step import Bench, filled, replay_ms
from foxhunt_assets.simulator.actions import N_ACTIONS
from foxhunt_assets.trainer import slots
from foxhunt_assets.trainer.assemble import Assembly
from foxhunt_assets.trainer.learn import Learner
from foxhunt_assets.trainer.program import Flags
from foxhunt_assets.trainer.rollout import WINDOW_STATS
from kernels.c51 import reference as c51
from kernels.ppo import reference as ppo

TOLERANCE = 1e-4  # of an output's largest value: float32 sums over 65,536 rows in two orders
CALLS = 10
NOT_COMPARED = 2  # exit code; 1: compared, and it does not count
ROWS = ("acting", "learning", "per_step")
MOVES = ("gather", "optimise", "target", "priorities")  # of the learning list: rows in, weights and priorities out
Params = Mapping[str, torch.Tensor]
Outputs = dict[str, torch.Tensor]


# --- the peer: plain torch ------------------------------------------------------------------------


def encode(p: Params, x: torch.Tensor, account: torch.Tensor, carry: torch.Tensor, dt: torch.Tensor) -> torch.Tensor:
    """h [R, H]; arguments as trainer.encoder.encode has them."""
    gated = torch.softmax(F.linear(x, p["vsn_w"], p["vsn_b"]), -1) * x * x.shape[-1]
    y = _block(p, "mamba2_l2", "ln_b", _block(p, "mamba2_l1", "ln_a", gated))
    weights = torch.softmax((y @ p["attn_q"]) / math.sqrt(y.shape[-1]), dim=1)
    joined = torch.cat([(weights[:, :, None] * y).sum(1), account], 1)
    f1, f2, a, b = (F.linear(joined, p["cfc_w_in"], p["cfc_b"]) + F.linear(carry, p["cfc_w_rec"])).chunk(4, 1)
    gate = torch.sigmoid(a * dt[:, None] + b)
    return torch.tanh(f1) * (1.0 - gate) + torch.tanh(f2) * gate


def _block(p: Params, name: str, norm: str, x: torch.Tensor) -> torch.Tensor:
    w_in, b_in, w_a, w_b, b_a, b_b, w_c, w_out, b_out = (
        p[f"{name}_{part}"] for part in ("w_in", "b_in", "w_a", "w_b", "b_a", "b_b", "w_c", "w_out", "b_out")
    )
    u = F.linear(x, w_in, b_in)
    decay, drive = F.linear(u, torch.cat([w_a, w_b]), torch.cat([b_a, b_b])).chunk(2, -1)
    total = u + F.linear(_scan(torch.sigmoid(decay), drive) * w_c, w_out, b_out)
    return F.layer_norm(total, total.shape[-1:], p[f"{norm}_gain"], p[f"{norm}_bias"], 1e-5)


def _scan(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """s_k = a_k s_{k-1} + (1 - a_k) b_k along the second axis, unrolled: the compiler fuses it to one kernel."""
    decays, drives = a.unbind(1), ((1.0 - a) * b).unbind(1)
    states = [drives[0]]
    for decay, drive in zip(decays[1:], drives[1:]):
        states.append(decay * states[-1] + drive)
    return torch.stack(states, 1)


@dataclass(frozen=True)
class Limits:
    """What the losses take of the configuration."""

    clip: float
    value_clip: float
    entropy: float
    floor: float
    gamma: float
    horizons: int


def loss(p: Params, target: Params, roll: Params, past: Params, both: Params, limits: Limits) -> torch.Tensor:
    """PPO and forward-return losses of rollout rows, double Q of replay rows, added up."""
    h = encode(p, both["x"], both["account"], both["carry"], both["dt"])
    rows = roll["action"].numel()
    return (
        _ppo(p, h[:rows], roll, limits) + _frd(p, h[:rows], roll, limits) + _double_q(p, target, h[rows:], past, limits)
    )


def _ppo(p: Params, h: torch.Tensor, row: Params, c: Limits) -> torch.Tensor:
    pi = ppo.masked_softmax(F.linear(h, p["pi_out_w"], p["pi_out_b"]), row["legal"])
    v = F.linear(h, p["v_out_w"], p["v_out_b"])[:, 0]
    taken = (pi * F.one_hot(row["action"], N_ACTIONS)).sum(1)  # a mask: gathers of two losses were compiled wrong
    log_pi = torch.log((1.0 - c.floor * row["legal"].sum(1)) * taken + c.floor)
    ratio = torch.exp(log_pi - row["log_pi"])
    advantage = (row["advantage"] - row["mean"]) / row["spread"].clamp_min(1e-8)
    values = ppo.clipped_value(v, row["value"], row["return"], c.value_clip)
    acted = ppo.surrogate(ratio, advantage, 1 - c.clip, 1 + c.clip)
    return (acted + values - c.entropy * ppo.entropy(pi)).mean()


def _frd(p: Params, h: torch.Tensor, row: Params, c: Limits) -> torch.Tensor:
    hidden = torch.relu(F.linear(h, p["frd_w1"], p["frd_b1"]))
    log_p = torch.log_softmax(F.linear(hidden, p["frd_w2"], p["frd_b2"]).view(len(h), c.horizons, -1), -1)
    there = row["labels"] >= 0
    lost = -log_p.gather(2, row["labels"].clamp_min(0)[..., None])[..., 0]
    return torch.where(there, lost, 0.0).sum() / there.sum().clamp_min(1)


def _double_q(p: Params, target: Params, h: torch.Tensor, row: Params, c: Limits) -> torch.Tensor:
    with torch.no_grad():
        after = encode(p, row["x_next"], row["acct_next"], row["carry_next"], row["dt_next"])
        online, fixed = (_q(of, after) for of in (p, target))
        discount = c.gamma * (~(row["trade_closed"] | row["terminated"])).to(h.dtype)
        rewards = row["reward_raw"] * row["reward_scale"]
        wanted = c51.target(online, fixed, row["legal_next"], rewards, discount, row["v_min"], row["v_max"]).mass
    taken = (_q(p, h) * F.one_hot(row["action"], N_ACTIONS)[..., None]).sum(1)
    return -(row["weights"] * (wanted * torch.log_softmax(taken, 1)).sum(1)).mean()


def _q(p: Params, h: torch.Tensor) -> torch.Tensor:
    return F.linear(h, p["q_out_w"], p["q_out_b"]).view(len(h), N_ACTIONS, -1)


def act(p: Params, both: Params, horizons: int) -> tuple[torch.Tensor, ...]:
    """h_t, C51 logits, E[Q], policy logits, V and forward-return logits of an acting batch."""
    h = encode(p, both["x"], both["account"], both["carry"], both["dt"])
    q = _q(p, h)
    hidden = torch.relu(F.linear(h, p["frd_w1"], p["frd_b1"]))
    frd = F.linear(hidden, p["frd_w2"], p["frd_b2"]).view(len(h), horizons, -1)
    v = F.linear(h, p["v_out_w"], p["v_out_b"])[:, 0]
    return h, q, (torch.softmax(q, -1) * both["support"]).sum(-1), F.linear(h, p["pi_out_w"], p["pi_out_b"]), v, frd


# --- both sides of a row --------------------------------------------------------------------------


@dataclass
class Sides:
    """ours and peer: each a call that computes everything. compile: the peer's function, replaced where compiled."""

    ours: Callable[[], object]
    outputs: Callable[[], Outputs]  # of our last call
    function: Callable[..., Any]
    peer: Callable[[Callable[..., Any]], Outputs]
    fixed: Sequence[torch.Tensor]  # what the peer reads


def acting(run: Assembly) -> Sides:
    """Encoder and heads of the row that a run stands before."""
    w, b = run.world, run.world.buffers
    stages = {s.name: s for s in run.program.lists["collect"]}
    stages["gather"].run(Flags())
    p = w.layout.views(b["weights"])
    both = {
        "x": b["x"], "account": b["acct_obs"], "carry": b["carry"].clone(), "dt": w.tape.dt[w.walk.anchor],
        "support": w.support(),
    }  # fmt: skip
    names = ("h_t", "q_logits", "q_values", "pi_logits", "v_t", "frd_logits")

    def ours() -> None:
        stages["encode"].run(Flags())
        stages["heads"].run(Flags())

    def peer(function: Callable[..., Any]) -> Outputs:
        with torch.no_grad():
            return dict(zip(names, function(p, both, len(w.config.labels.horizons))))

    return Sides(ours, lambda: {name: b[name] for name in names}, act, peer, [*p.values(), *both.values()])


def learning(run: Assembly) -> Sides:
    """A minibatch's passes, from gathered windows to the gradient of every parameter and of the carry."""
    w, b, c = run.world, run.world.buffers, run.world.config
    learner: Learner = run.program.lists["learn"][0].run.__self__  # type: ignore[attr-defined]
    stages = [s for s in run.program.lists["learn"] if s.name not in MOVES]
    run.program.run("learn", Flags())  # once whole, so that weights are no longer those the window was acted with
    run.program.lists["learn"][0].run(Flags())
    p = {name: x.clone().requires_grad_() for name, x in w.layout.views(b["weights"]).items()}
    target = w.layout.views(b["target_q"].clone(), "q")
    carry, dt, isv = learner.carry.clone().requires_grad_(), w.tape.dt, b["isv_full"]
    both = {"x": b["learn_x"], "account": learner.account, "carry": carry, "dt": dt[learner.anchors]}
    mean, spread = b[WINDOW_STATS.buffer][:2].float()
    acted = ("action", "legal", "log_pi", "advantage", "value", "return")
    roll = {name: learner.rollout[name] for name in acted}
    roll |= {"mean": mean, "spread": spread, "labels": w.tape.labels[learner.rollout["anchor"]]}
    stored = ("action", "legal_next", "reward_raw", "trade_closed", "terminated", "acct_next", "carry_next")
    past = {name: learner.replay[name] for name in stored}
    past |= {"x_next": b["learn_x_next"], "dt_next": dt[learner.anchors_next], "weights": learner.drawn.weights}
    past |= {"v_min": isv[slots.V_MIN].clone(), "v_max": isv[slots.V_MAX].clone()}
    past |= {"reward_scale": w.reward_scale.clone()}
    k = c.learning
    limits = Limits(k.clip_eps, k.value_clip, k.entropy_coef, w.pi_floor, k.gamma, len(c.labels.horizons))
    leaves = {**p, "carry": carry}

    def ours() -> None:
        for stage in stages:
            stage.run(Flags())

    def outputs() -> Outputs:
        return w.layout.views(b["grads"])

    def peer(function: Callable[..., Any]) -> Outputs:
        total = function(p, target, roll, past, both, limits)
        return dict(zip(leaves, torch.autograd.grad(total, list(leaves.values()))))

    fixed = [*leaves.values(), *target.values(), *roll.values(), *past.values(), *both.values()]
    return Sides(ours, outputs, loss, peer, fixed)


def apart(ours: Outputs, theirs: Outputs) -> tuple[float, str]:
    """The largest difference of an output, over its largest value, and the output's name."""
    found = [
        (float((x.double() - theirs[name].double()).abs().max() / x.double().abs().max().clamp_min(1e-30)), name)
        for name, x in ours.items()
    ]
    return max((math.inf, name) if math.isnan(far) else (far, name) for far, name in found)


# --- measuring ------------------------------------------------------------------------------------


def measure(row: str, bench: Bench) -> None:
    """One row, in this process; SystemExit where it does not count."""
    small = {"mode": "per_step", "replay_rows": 128} if row == "per_step" else {}
    run = filled(bench.run(bench.config(128, **small)))
    sides = acting(run) if row == "acting" else learning(run)
    name = {"acting": "acting, 128 rows", "per_step": "update a row, 128 + 128 rows",
            "learning": "learning minibatch, 1,024 + 1,024 rows"}[row]  # fmt: skip
    with torch.autograd.set_multithreading_enabled(False):  # a second thread's launches would not be captured
        sides.ours()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            sides.ours()
    graph.replay()
    captured = replay_ms(graph.replay, CALLS)
    print(f"{name}, passes, ours, captured: {captured:.4f} ms", flush=True)
    torch.set_deterministic_debug_mode("default")  # the peer may take what is fastest
    for x in sides.fixed:
        torch._dynamo.mark_static_address(x)
    compiled = torch.compile(sides.function, mode="reduce-overhead", fullgraph=True, dynamic=False)

    def call() -> Outputs:
        torch.compiler.cudagraph_mark_step_begin()
        return sides.peer(compiled)

    begin = time.perf_counter()
    call()
    torch.cuda.synchronize()
    seconds = time.perf_counter() - begin
    theirs = replay_ms(call, CALLS)
    far, where = apart(sides.outputs(), call())
    skipped = torch._dynamo.utils.counters["inductor"]["cudagraph_skips"]
    print(f"  compiled in {seconds:.0f} s; largest difference {far:.1e} of the largest value ({where})")
    if far > TOLERANCE or skipped:
        raise SystemExit(f"{name}: the row does not count ({skipped} graphs skipped, difference {far:.1e} at {where})")
    print(f"{name}, passes, torch.compile reduce-overhead: {theirs:.4f} ms, {theirs / captured:.2f} x ours", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--row", choices=ROWS, help="measure one row in this process")
    parser.add_argument("--limit", type=int, default=120, help="seconds a row may take, compilation included")
    args = parser.parse_args()
    if not torch.cuda.is_available():
        print("no NVIDIA GPU: nothing was compared")
        return NOT_COMPARED
    if args.row:
        with tempfile.TemporaryDirectory() as home:
            measure(args.row, Bench(Path(home)))
        return 0
    worst = 0
    for row in ROWS[:2]:
        try:
            done = subprocess.run([sys.executable, "-m", "benchmarks.twins", "--row", row], timeout=args.limit)
            worst = max(worst, done.returncode)
        except subprocess.TimeoutExpired:
            print(f"{row}: torch.compile had not finished after {args.limit} s: no row")
            worst = max(worst, NOT_COMPARED)
    return worst


if __name__ == "__main__":
    sys.exit(main())
