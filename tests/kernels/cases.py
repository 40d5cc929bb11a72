"""The same calls for every backend: CPU twin, the sources in the shim, a CUDA device, a captured graph.

`ulps` bounds the distance to the twin, in units in the last place of the largest value of the output compared; 0 is
bit for bit. The twin itself is held to worked numbers in the family's own test file.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from foxhunt_assets.simulator import measure
from foxhunt_assets.simulator.config import EnvConfig
from foxhunt_assets.simulator.market_view import MarketView
from foxhunt_assets.simulator.outcome import StepOutcome
from foxhunt_assets.simulator.simulator import Simulator
from foxhunt_assets.simulator.state import specs
from foxhunt_assets.simulator.walk import TrainWalk, session_end_rows
from kernels.acting import op as acting
from kernels.adamw import op as adamw
from kernels.attention import op as attention
from kernels.c51 import op as c51
from kernels.cfc import op as cfc
from kernels.digest import op as digest
from kernels.distances import op as distances
from kernels.events import op as events
from kernels.frd import op as frd
from kernels.gae import op as gae
from kernels.gather import op as gather
from kernels.geometry import op as geometry
from kernels.heads import op as heads
from kernels.layernorm import op as layernorm
from kernels.lob import op as lob
from kernels.moves import op as moves
from kernels.norms import op as norms
from kernels.pack import op as pack
from kernels.philox import op as philox
from kernels.policy import op as policy
from kernels.ppo import op as ppo
from kernels.reduce import op as reduce
from kernels.reward import op as reward
from kernels.ring import op as ring
from kernels.scan import op as scan
from kernels.spectral import op as spectral
from kernels.statistics import op as statistics
from kernels.sumtree import op as sumtree
from kernels.td import op as td
from kernels.vsn import op as vsn
from kernels.window import op as window
from tests.simulator import tapes

Inputs = dict[str, torch.Tensor]


@dataclass(frozen=True)
class Case:
    inputs: Callable[[torch.Generator], Inputs]
    call: Callable[[Inputs], tuple[torch.Tensor, ...]]
    kernels: frozenset[str]
    ulps: int = 0
    captured: bool = True  # False where the call makes tables, or a Python number


CASES: dict[str, Case] = {}


def case(*kernels: str, ulps: int = 0, captured: bool = True) -> Callable[[type], type]:
    """Register a class of two functions, inputs(generator) and call(inputs)."""

    def register(of: type) -> type:
        CASES[of.__name__] = Case(of.inputs, of.call, frozenset(kernels), ulps, captured)
        return of

    return register


def made(name: str, seed: int = 0) -> Inputs:
    """Inputs drawn on the host, so that every device gets the same."""
    return CASES[name].inputs(torch.Generator().manual_seed(seed))


def ulps_apart(got: torch.Tensor, twin: torch.Tensor) -> float:
    """Largest distance in units in the last place of the twin's largest value; infinite where NaN meets a number."""
    if not twin.is_floating_point():
        return 0.0 if torch.equal(got, twin) else float("inf")
    unit = torch.finfo(twin.dtype).eps * twin.abs().amax().clamp_min(torch.finfo(twin.dtype).tiny)
    return float(((got - twin).abs() / unit).nan_to_num(nan=float("inf")).amax())


@case("philox_words", "philox_uniforms")
class philox_words:
    def inputs(g):
        edges = torch.tensor([0, 1, 2**31, 2**32 - 1])
        return {"rows": torch.cat([edges, torch.randint(0, 2**32, (37,), generator=g)]), "step": torch.tensor(41)}

    def call(x):
        by_number = philox.words(2**63 + 7, "action", 3, x["rows"], 5)
        by_step = philox.words(7, "replay", x["step"], x["rows"], 1)
        uniforms = [philox.uniforms(7, "replay", step, x["rows"]) for step in (x["step"], 41)]
        return by_number, by_step, philox.uniform(by_number), *uniforms


@case("digest_sums", "digest_finish", captured=False)
class digests:
    def inputs(g):
        raw = torch.randint(-128, 128, (66_000,), generator=g, dtype=torch.int8)
        return {
            "none": raw[:0], "byte": raw[:1], "odd": raw[1:302], "off": raw[3:27], "flags": raw[:77] > 0,
            "floats": torch.randn(33, 7, generator=g), "one_chunk": raw[:32_768].view(torch.int64),
            "three_chunks": raw.view(torch.int64),
        }  # fmt: skip

    def call(x):
        found = [*(digest.digest64(tensor) for tensor in x.values()), digest.digest64(x["odd"], 5 - 2**63)]
        return (torch.tensor([d - 2**64 if d >= 2**63 else d for d in found]),)


@case("digest_sums", "digest_finish", captured=False)
class digests_of_lists:
    def inputs(g):
        raw = torch.randint(-128, 128, (33_000,), generator=g, dtype=torch.int8)
        return {"odd": raw[1:302], "half": raw[4:1204].view(torch.float32), "long": raw, "seed": torch.tensor([-9])}

    def call(x):
        seed = x["seed"].clone()
        parts = [[x["odd"], x["half"], x["long"]], x["half"], x["half"], [x["half"], x["odd"]]]
        found = digest.Digests(parts, [3, seed, 0, 0], narrow=[2, 3])
        return found.run(), found.run(), seed


@case("scan_forward", "scan_backward", "reduce_parts", ulps=8)
class gated_scan:
    def inputs(g):
        shape = (10, 17, 40)
        return {
            "pre": torch.randn(*shape[:2], 80, generator=g) * 2, "w": torch.randn(40, generator=g),
            "dy": torch.randn(shape, generator=g),
        }  # fmt: skip

    def call(x):
        a, s, y = scan.scan(x["pre"], x["w"])
        return a, s, y, *scan.scan_backward(a, s, x["w"], x["dy"])


@case("scan_forward", "scan_backward", "reduce_parts", ulps=8)
class one_step_scan:
    def inputs(g):
        return {
            "pre": torch.randn(3, 1, 10, generator=g), "w": torch.randn(5, generator=g),
            "dy": torch.randn(3, 1, 5, generator=g),
        }  # fmt: skip

    call = gated_scan.call


@case("layernorm_forward", "layernorm_backward", "reduce_parts", ulps=16)
class normalised_sum:
    def inputs(g):
        x, z, dy = torch.randn(3, 37, 70, generator=g)
        gain, bias = torch.randn(2, 70, generator=g)
        return {"x": x, "z": 3 * z + 1, "gain": gain, "bias": bias, "dy": dy}

    def call(x):
        out, total, mean, rstd = layernorm.normalise(x["x"], x["z"], x["gain"], x["bias"], 1e-5)
        return out, total, mean, rstd, *layernorm.normalise_backward(total, mean, rstd, x["gain"], x["dy"])


@case("vsn_forward", "vsn_backward", "reduce_parts", ulps=16)
class selected_features:
    def inputs(g):
        logits, x, dy = torch.randn(3, 37, 70, generator=g)
        return {"logits": logits, "x": x, "dy": dy}

    def call(x):
        mask, out = vsn.select(x["logits"], x["x"])
        return mask, out, *vsn.select_backward(mask, x["x"], x["dy"])


@case("attention_forward", "attention_backward", "reduce_parts", ulps=16)
class attention_pools:
    def inputs(g):
        return {
            "q": torch.randn(40, generator=g) * 3, "x": torch.randn(3, 11, 40, generator=g),
            "beside": torch.randn(3, 5, generator=g), "dy": torch.randn(3, 45, generator=g),
        }  # fmt: skip

    def call(x):
        weights, out = attention.pool(x["q"], x["x"], x["beside"])
        return weights, out, *attention.pool_backward(x["q"], x["x"], weights, x["dy"])


@case("cfc_forward", "cfc_backward", "reduce_parts", ulps=16)
class cfc_cells:
    def inputs(g):
        x, z = torch.randn(2, 11, 160, generator=g)
        return {"x": x, "z": z, "dt": torch.rand(11, generator=g) * 3, "dh": torch.randn(11, 40, generator=g)}

    def call(x):
        h, gate = cfc.cell(x["x"], x["z"], x["dt"])
        return h, gate, *cfc.cell_backward(x["x"], x["z"], x["dt"], gate, x["dh"])


@case("heads_acting", ulps=16)
class acting_heads:
    def inputs(g):
        sizes = {"q": (33, 20), "pi": (11, 20), "v": (1, 20), "frd1": (18, 20), "frd2": (15, 18)}
        weights = {f"{name}_w": torch.randn(shape, generator=g) for name, shape in sizes.items()}
        biases = {f"{name}_b": torch.randn(rows, generator=g) for name, (rows, _) in sizes.items()}
        atoms = {"support": torch.linspace(-1, 1, 3), "frd_atoms": torch.linspace(-3, 3, 5).double()}
        return {"h": torch.randn(7, 20, generator=g), **weights, **biases, **atoms}

    def call(x):
        w = heads.Weights(*(x[f"{name}_{part}"] for name in ("q", "pi", "v", "frd1", "frd2") for part in "wb"))
        shapes = ((7, 11, 3), (7, 11), (7, 11), (7,), (7, 3, 5))
        floats = [torch.empty(shape, device=x["h"].device) for shape in shapes]
        into = heads.Outputs(*floats, torch.empty(7, 3, device=x["h"].device, dtype=torch.int8))
        heads.acting(x["h"], w, x["support"], x["frd_atoms"], into)
        return tuple(into)


@case("gae_backwards")
class advantages:
    def inputs(g):
        return {
            "rollout": torch.randn(3, 70, 35, generator=g), "flags": torch.rand(2, 70, 35, generator=g) < 0.2,
            "gamma": torch.tensor(0.99), "lam": torch.tensor(0.95),
        }  # fmt: skip

    def call(x):
        on_device = gae.gae(*x["rollout"], *x["flags"], x["gamma"], x["lam"])
        return *gae.gae(*x["rollout"], *x["flags"], 0.99, 0.95), *on_device


@case("c51_shifted_atoms", "c51_project_atoms", "c51_cross_entropy", "c51_cross_entropy_backward", ulps=8)
class categorical:
    def inputs(g):
        discounts = torch.full((37,), 0.97)
        discounts[::5] = 0
        return {
            "logits": torch.randn(37, 21, generator=g) * 3, "next": torch.randn(37, 21, generator=g).softmax(1),
            "r": torch.randn(37, generator=g), "discounts": discounts, "v_max": torch.tensor(1.5),
        }  # fmt: skip

    def call(x):
        m = c51.project(x["next"], x["r"], x["discounts"], -x["v_max"], x["v_max"])
        by_number = c51.project(x["next"], x["r"], x["discounts"], -1.5, 1.5)
        logits = x["logits"].clone().requires_grad_()
        loss = c51.cross_entropy(logits, m)
        return m, by_number, loss.detach(), torch.autograd.grad((loss * x["r"]).sum(), logits)[0]


def _tree_inputs(capacity, draws, g):
    leaves = torch.rand(capacity, generator=g) * (torch.rand(capacity, generator=g) < 0.5)
    return {
        "tree": torch.cat([torch.zeros(capacity), leaves]), "u": torch.rand(draws, generator=g),
        "rows": torch.randint(0, capacity, (draws,), generator=g), "count": torch.tensor([capacity - 1]),
    }  # fmt: skip


def _tree_call(x):
    tree = x["tree"].clone()
    empty = torch.zeros_like(tree)
    sumtree.rebuild(tree)
    drawn, none = sumtree.sample(tree, x["u"]), sumtree.sample(empty, x["u"])
    sumtree.update(tree, x["rows"], x["u"])
    weights = sumtree.weigh(tree, drawn, x["count"], 0.4)
    updated = tree.clone()
    sumtree.append(tree, x["count"], min(5, tree.numel() // 2))
    times = torch.zeros(tree.numel() // 2, dtype=torch.int32, device=tree.device)
    times[:3] = 1
    moments = sumtree.moments(tree, times, x["count"]).split(1)
    return drawn, none, updated, *weights, tree, *sumtree.weigh(empty, x["rows"], x["count"], 0.0), *moments


_TREE = (
    "sumtree_rebuild", "sumtree_sample", "sumtree_set_leaves", "sumtree_largest", "sumtree_append", "sumtree_weigh",
    "sumtree_moments", "sumtree_moments_finish",
)  # fmt: skip


@case(*_TREE, ulps=2)
class sum_tree:
    def inputs(g):
        return _tree_inputs(64, 50, g)  # 50 rows on 64 leaves: duplicates

    call = _tree_call


@case(*_TREE, ulps=2)
class sum_tree_of_several_blocks:
    def inputs(g):
        return _tree_inputs(4096, 33, g)

    call = _tree_call


@case(*_TREE[1:], ulps=2)
class sum_tree_of_one_leaf:
    def inputs(g):
        return {
            "tree": torch.tensor([0.0, 2.0]), "u": torch.rand(2, generator=g), "rows": torch.zeros(2).long(),
            "count": torch.tensor([9]),
        }  # fmt: skip

    call = _tree_call


@case("lob_fill", "lob_available", "lob_take")
class orders:
    def inputs(g):
        b = 70
        px = torch.arange(10, dtype=torch.int32).repeat(b, 1) + torch.randint(-5, 5, (b, 1), generator=g)
        return {
            "px": torch.where(torch.arange(10) < torch.randint(0, 11, (b, 1), generator=g), px, lob.ABSENT).int(),
            "sz": torch.randint(1, 9, (b, 10), generator=g, dtype=torch.int32),
            "side": torch.randint(-1, 2, (b,), generator=g),
            "lots": torch.randint(-3, 90, (b,), generator=g),
            "force": torch.rand(b, generator=g) < 0.5,
            "moved": torch.randint(-1, 2, (b, 1), generator=g, dtype=torch.int32),
        }  # fmt: skip

    def call(x):
        sz = torch.where(x["px"] == lob.ABSENT, 0, x["sz"])
        avail, memory = lob.available(lob.new_memory(*sz.shape, sz.device), x["px"], sz)
        got = lob.fill(x["side"], x["lots"], x["px"], avail, x["force"])
        memory = lob.take(memory, got.per_level)
        moved = torch.where(x["px"] == lob.ABSENT, x["px"], x["px"] + x["moved"])
        left, after = lob.available(memory, moved, sz)
        narrow = lob.fill(x["side"].to(torch.int8), x["lots"], x["px"], avail, x["force"])
        return *got, left, *after, *narrow, *lob.mid_half_ticks(x["px"][:, 0], x["px"][:, 1])


@case("gather_windows", "gather_wide_windows", "gather_rows")
class tape_rows:
    def inputs(g):
        return {
            "features": torch.randn(100, 8, generator=g), "odd": torch.randn(100, 7, generator=g),
            "labels": torch.randint(-1, 21, (100, 3), generator=g),
            "start": torch.tensor([0, 40, 41, 90]).repeat_interleave(torch.tensor([40, 1, 49, 10])),
            "anchors": torch.cat([torch.tensor([0, 3, 40, 90, 99]), torch.randint(0, 100, (9,), generator=g)]),
        }  # fmt: skip

    def call(x):
        where = (x["start"], x["anchors"])
        windows = (gather.windows(x["features"], *where, 12), gather.windows(x["odd"], *where, 12))
        return *windows, gather.rows(x["labels"], x["anchors"]), gather.windows(x["labels"], *where, 1)


@case("policy_sample", ulps=8)
class policy_probabilities:
    def inputs(g):
        legal = torch.rand(80, 11, generator=g) < 0.6
        legal[:, 2] = True  # holding always is
        draws = torch.randint(0, 2**32, (80,), generator=g)
        draws[:2] = torch.tensor([0, 2**32 - 1])
        return {
            "logits": torch.randn(80, 11, generator=g) * 4, "legal": legal, "draws": draws,
            "floor": torch.tensor(0.01),
        }  # fmt: skip

    def call(x):
        pi, _, log_pi = policy.sample(x["logits"], x["legal"], x["draws"], x["floor"])
        unfloored, _, _ = policy.sample(x["logits"], x["legal"], x["draws"], 0.0)
        return pi, log_pi, unfloored


@case("reduce_parts")
class row_sums:
    def inputs(g):
        return {f"x{rows}": torch.randn(rows, 33, generator=g) for rows in (1, 7, 256, 300, 700)}

    def call(x):
        return tuple(reduce.sum_rows(rows) for rows in x.values())


@case("pack_numbers", captured=False)
class packed_numbers:
    def inputs(g):
        x = torch.randn(150, generator=g)
        exact = torch.tensor([2**53 - 1, -7])
        parts = {"f32": x, "f64": x[:5].double() * 1e-300, "i32": (x[:4] * 1e6).int(), "i64": exact}
        return {**parts, "i8": (x[:9] * 30).to(torch.int8), "u8": exact.to(torch.uint8), "flag": x[:6] > 0}

    def call(x):
        return (pack.Pack(list(x.values())).run(),)


@case("ring_put", "ring_take", "ring_tally", captured=False)
class ring_rows:
    def inputs(g):
        n = 9  # an odd width, a wide one, a scalar, flags, words of four, and what starts off a boundary
        shapes = {"odd": (7,), "wide": (12,), "scalar": (), "words": (3,)}
        rows = {name: torch.randn(n, *shape, generator=g) for name, shape in shapes.items()}
        raw = torch.randint(0, 99, (8 * n + 1,), generator=g, dtype=torch.uint8)
        return {
            **rows, "whole": torch.randint(-(2**62), 2**62, (1,), generator=g), "flags": rows["odd"] > 0, "raw": raw,
            "start": torch.tensor([17]), "at": torch.randint(0, 21, (30,), generator=g),
        }  # fmt: skip

    def call(x):
        sources = [x["odd"], x["wide"], x["scalar"], x["words"], x["whole"], x["flags"], x["raw"][1:].view(9, 8), None]
        kinds = [torch.zeros(1, dtype=torch.int32, device=x["at"].device) if s is None else s[:1] for s in sources]
        columns = [torch.ones(21, *k.shape[1:], dtype=k.dtype, device=k.device) for k in kinds]
        tally = torch.zeros(21, dtype=torch.int32, device=x["at"].device)
        rows = ring.Ring(columns)
        rows.put(sources, x["start"], 9)  # wraps
        rows.put(sources, x["start"], 9, scale=2, offset=-40)  # slots -6 .. 2
        ring.tally(x["at"], tally)
        ring.tally(x["at"][:7], tally)
        return *columns, *rows.take(x["at"]), *rows.take_run(x["start"], 9, scale=2, offset=-40), tally


@case("adamw_norms", "adamw_step", "adamw_finish", ulps=4, captured=False)
class adamw_updates:
    def inputs(g):
        grads = torch.randn(3, 1300, generator=g) * torch.tensor([[1e-3], [1.0], [1e-2]])
        grads[:, 5:9] = 0
        return {
            "weights": torch.randn(1300, generator=g), "grads": grads, "rates": torch.rand(1300, generator=g) / 100,
            "gates": torch.tensor([[1.0], [1], [0]]),
        }  # fmt: skip

    def call(x):
        parts = {"narrow": slice(0, 7), "wide": slice(7, 1200), "last": slice(1200, 1300)}
        adam = adamw.AdamW(parts, x["rates"], beta1=0.9, beta2=0.99, eps=1e-8, weight_decay=0.01, clip=0.5)
        weights, m, v = x["weights"].clone(), torch.zeros_like(x["rates"]), torch.zeros_like(x["rates"])
        t = torch.zeros_like(x["grads"][0, :1], dtype=torch.int64)
        stats = torch.zeros(len(adam.names), dtype=torch.float64, device=t.device)
        out = []
        for grads, gate in zip(x["grads"], x["gates"]):
            adam.step(weights, grads, m, v, t, gate, stats)
            out += [weights.clone(), m.clone(), v.clone(), t.clone()]
            out += stats.float().split(1)  # sums of float32 steps, whose roundings they carry
        return tuple(out)


@case("statistics_parts", "statistics_merge", ulps=16)
class statistics_of_matrices:
    def inputs(g):
        wide = torch.randn(300, 70, generator=g) * 10 + 3
        return {
            "table": torch.randn(50, 56, generator=g), "at": torch.randint(0, 50, (9,), generator=g), "wide": wide,
            "shares": torch.randn(129, 33, generator=g).softmax(1), "one": torch.randn(1, 1, generator=g),
        }  # fmt: skip

    def call(x):
        matrices = {name: x[name] for name in ("table", "wide", "shares", "one")}
        matrices |= {"some columns": x["wide"][:, 5:39], "turned": x["wide"][:40].T}
        found = statistics.summary(matrices, 5.0, {"shares"}, x["at"])
        return *found.whole.T.contiguous(), *found.by_column


@case("geometry_parts", "geometry_merge", ulps=16)
class geometry_of_rows:
    def inputs(g):
        h = torch.randn(70, 35, generator=g) + 2
        return {"h": h, "before": torch.randn(70, 35, generator=g), "left_out": torch.rand(70, generator=g) < 0.3}

    def call(x):
        return geometry.geometry(**x).split(1)


def acting_parts(x):
    """Arguments of acting.acting, its state copied."""
    parts = [kind(*(x[name] for name in kind._fields)) for kind in (acting.Heads, acting.Acted, acting.Paid)]
    history = acting.History(*(x[name].clone() for name in acting.History._fields))
    return (*parts, history, acting.Scale(0.02, 0.01, 0.3, 5000.0, 1.5, 1 / 64))


@case("acting_quantities", "acting_folds", ulps=64)  # of single sums, whose terms cancel
class acting_batch:
    def inputs(g):
        b = 150

        def whole(low, high, *shape):
            return torch.randint(low, high, shape or (b,), generator=g)

        legal = torch.rand(b, 5, generator=g) < 0.6
        legal[:, 2] = True
        pi_logits, shares = torch.randn(b, 5, generator=g), torch.rand(b, 5, generator=g)
        pi = pi_logits.masked_fill(~legal, float("-inf")).softmax(1)
        return {
            "q_logits": torch.randn(b, 5, 9, generator=g) * 3, "q_values": torch.randn(b, 5, generator=g),
            "v_min": torch.tensor(-1.5), "v_max": torch.tensor(2.0), "v": torch.randn(b, generator=g),
            "pi_logits": pi_logits, "pi": pi, "legal": legal, "frd_logits": torch.randn(b, 2, 6, generator=g) * 2,
            "frd_atoms": torch.linspace(-3, 3, 6).double(), "sampled": pi.multinomial(1, generator=g)[:, 0],
            "draw": whole(0, 2**32), "executed": whole(0, 5), "starts": torch.rand(b, generator=g) < 0.1,
            "anchor": whole(0, 40), "labels": whole(-1, 6, 40, 2), "raw": torch.randn(b, generator=g).relu(),
            "scaled": torch.randn(b, generator=g), "final": torch.randn(b, generator=g),
            "core_cents": whole(-9000, 9000), "fee_cents": whole(0, 900), "closed": torch.rand(b, generator=g) < 0.3,
            "shares": shares / shares.sum(1, keepdim=True).double(), "last_action": whole(0, 5),
            "counts": whole(0, 99, 4, 5), "rows": torch.tensor([6]), "closed_raw": torch.tensor([2.5]).double(),
        }  # fmt: skip

    def call(x):
        parts = acting_parts(x)
        found = acting.acting(*parts)
        return *found.split(1), *parts[3]


@case("ppo_rows", "ppo_keep", ulps=8)
class ppo_minibatches:
    def inputs(g):
        n = 150
        legal = torch.rand(n, 11, generator=g) < 0.6
        legal[:, 2] = True
        legal[0] = torch.arange(11) == 2
        actions = torch.multinomial(legal.float(), 1, generator=g)[:, 0]
        return {
            "logits": torch.randn(n, 11, generator=g) * 3, "legal": legal, "actions": actions,
            "rows": torch.randn(5, n, generator=g) * torch.tensor([[1.0], [0.3], [2], [1], [1]]),
            "window": torch.tensor([0.3, 1.7], dtype=torch.float64), "numbers": torch.arange(4),
        }  # fmt: skip

    def call(x):
        values, noise, advantages, old, returns = x["rows"]
        log_pi = torch.log_softmax(x["logits"].masked_fill(~x["legal"], -1e9), 1).gather(1, x["actions"][:, None])[:, 0]
        stats = torch.zeros(len(ppo.NAMES), dtype=torch.float64, device=values.device)
        gate, stops = torch.zeros_like(values[:1]), torch.zeros_like(x["actions"][:1])
        out = []
        for part, kl_stop in enumerate((99.0, 99.0, 1e-9, 99.0)):  # the third is left out, and closes the gate
            update = ppo.PPO(0.2, 0.5, 0.01, 0.02, kl_stop)
            batch = (values, x["legal"], x["actions"], log_pi + noise, advantages, old, returns, x["window"])
            *grads, sums = update.gradients(x["logits"] * (1 + part), *batch)
            update.keep(sums, values.numel(), x["numbers"][part], stats, gate, stops)
            out += [*grads, gate.clone(), stops.clone(), *stats.float().split(1)]
        return tuple(out)


def _market_inputs(g):
    tape, _, _ = tapes.random_tape(np.random.default_rng(0), rows=60)
    drawn = {
        "actions": torch.randint(0, 11, (5, 40), generator=g),
        "signs": torch.randint(-1, 2, (5, 40, 3), generator=g, dtype=torch.int8),
    }
    return drawn | {k: v for k, v in vars(tapes.view(tape)).items() if isinstance(v, torch.Tensor)}


def _simulator(x):
    env = EnvConfig(min_hold_steps=0, episode_length=3, latency_steps=2, lots_large=3, trail_initial_mult=1.0)
    market = MarketView(**{k: v for k, v in x.items() if k not in ("actions", "signs")}, tick_cents=1250)
    needed = (*specs(40, env), *measure.specs())
    buffers = {s.name: torch.ones(s.shape, dtype=getattr(torch, s.dtype)).to(market.device) for s in needed}
    ends = session_end_rows(60, [(20, "session"), (35, "gap"), (60, "file")])
    walk = TrainWalk(market, [(0, 20), (20, 30), (42, 60)], ends, buffers, 3, 2)
    sim = Simulator(env, market, walk, buffers, 40, 2)
    sim.reset(0)
    return sim


@case("account_step", "account_advance", "account_observe", "philox_words", captured=False)
class accounts:
    """The twin is the torch simulator: what it is held to in tests/simulator/test_kernel.py, under every schedule."""

    inputs = _market_inputs

    def call(x):
        sim = _simulator(x)
        seen = [sim.observe().clone(), sim.legal_mask().clone()]
        for step in range(5):
            out = sim.step(x["actions"][step], step, x["signs"][step], phase_end=step == 4)
            words = {name: getattr(out, name) for name in StepOutcome.__dataclass_fields__}
            mask = out.trade_mask[:, :, None]
            seen += [(value * mask if name == "trades" else value.clone()) for name, value in words.items()]
            sim.advance(step)
            seen += [sim.observe().clone(), sim.legal_mask().clone()]
        return *seen, *sim.buffers.values()


@case("account_step", "account_advance", "tally_accounts", "tally_finish", "philox_words", captured=False, ulps=64)
class tallies:
    inputs = _market_inputs

    def call(x):
        sim = _simulator(x)
        counters = measure.Counters(sim.env, 40, 1250, sim.buffers)
        counters.reset()
        for step in range(3):
            counters.update(sim, sim.step(x["actions"][step], step, x["signs"][step], phase_end=step == 2))
            sim.advance(step)
        return tuple(sim.buffers[s.name] for s in measure.specs())


@case("moves_measure", ulps=64)  # variances are differences of means
class moves_of_the_mid:
    def inputs(g):
        px = torch.randint(100, 130, (60, 2), generator=g, dtype=torch.int32)
        px[7] = lob.ABSENT
        now, sz = torch.randint(0, 50, (37,), generator=g), torch.ones_like(px)
        return {
            "x": torch.randn(37, 3, 40, generator=g), "bid_px": px, "ask_px": px + 1, "bid_sz": sz, "ask_sz": sz,
            "now": now, "after": now + torch.randint(0, 4, (37,), generator=g),
            "started": torch.rand(40, 5, generator=g).double() + 1,
        }  # fmt: skip

    def call(x):
        book = tuple(x[name] for name in ("bid_px", "ask_px", "bid_sz", "ask_sz"))
        fresh, started = torch.zeros_like(x["started"]), x["started"].clone()
        found = [moves.moves(x["x"], book, x["now"], x["after"], 0.01, moments) for moments in (fresh, started)]
        return *found[0], *found[1], fresh, started


@case("td_rows", "td_keep", ulps=8)
class double_q:
    def inputs(g):
        n = 37
        legal = torch.rand(n, 11, generator=g) < 0.6
        legal[:, 2] = True
        return {
            "logits": torch.randn(3, n, 11, 21, generator=g) * 2, "action": torch.randint(0, 11, (n,), generator=g),
            "legal": legal, "reward": torch.randn(n, generator=g), "closed": torch.rand(n, generator=g) < 0.2,
            "terminated": torch.rand(n, generator=g) < 0.1, "step": torch.randint(0, 99, (n,), generator=g),
            "indices": torch.randint(0, 20, (n,), generator=g).sort().values, "drawn": torch.rand(3, n, generator=g),
            "v_min": torch.tensor(-1.5), "v_max": torch.tensor(1.25), "scale": torch.tensor(0.5),
            "now": torch.tensor(99),
        }  # fmt: skip

    def call(x):
        columns = (x["action"], x["legal"], x["reward"], x["closed"], x["terminated"], x["step"])
        stats = torch.zeros(len(td.NAMES), dtype=torch.float64, device=x["action"].device)
        scale = td.Scale(x["v_min"], x["v_max"], x["scale"], x["now"])
        drawn = td.Drawn(x["indices"], *x["drawn"])
        update = td.DoubleQ(0.97, 1e-3, 0.6)
        found = update.gradients(*x["logits"], td.Transitions(*columns), drawn, scale, stats)
        stats[td.NAMES.index("mass_err_max")] += 1  # the mass, that is: its error is rounding alone
        return *found, *stats.float().split(1)


@case("frd_gradient", ulps=4)
class forward_returns:
    def inputs(g):
        return {
            "logits": torch.randn(60, 3, 21, generator=g) * 2, "labels": torch.randint(-4, 21, (90, 3), generator=g),
            "anchors": torch.randint(0, 90, (60,), generator=g),
        }  # fmt: skip

    def call(x):
        missing = torch.full_like(x["labels"], -1)
        return frd.gradient(**x), frd.gradient(x["logits"], missing, x["anchors"])


@case("norms_squares", "norms_finish", ulps=4)
class norms_of_parts:
    def inputs(g):
        return {"parts": torch.randn(3, 50, 33, generator=g), "gates": torch.tensor([[1.0], [0.0]])}

    def call(x):
        parts, (is_open, closed) = x["parts"], x["gates"]
        total, found = torch.zeros_like(parts[0]), torch.zeros(2, 4, dtype=torch.float64, device=parts.device)
        norms.norms(list(parts), total, is_open, found[0])
        norms.norms([parts[1]], None, is_open, found[1, :1])
        norms.norms([parts[2]], None, closed, found[1, 1:2])
        return total, *found.view(-1).split(1)


@case("distances_parts", "distances_finish", ulps=4, captured=False)
class distances_of_pairs:
    def inputs(g):
        return {"a": torch.randn(5000, generator=g), "b": torch.randn(5000, generator=g)}

    def call(x):
        pairs = [(x["a"], None), (x["a"][7:70], x["b"][7:70]), (x["a"], x["b"])]
        return tuple(distances.Distances(pairs).run().view(-1).split(1))


@case("spectral_step", ulps=16, captured=False)
class power_iterations:
    def inputs(g):
        return {
            "tall": torch.randn(70, 9, generator=g), "wide": torch.randn(3, 150, generator=g),
            "u_tall": torch.randn(70, generator=g), "u_wide": torch.randn(3, generator=g),
        }  # fmt: skip

    def call(x):
        vectors = [x["u_tall"].clone(), x["u_wide"].clone()]
        powers = spectral.Powers([x["tall"], x["wide"]], vectors)
        return powers.step(), *vectors, powers.step()


@case("window_moments", "window_arrive", ulps=8)
class window_of_rows:
    def inputs(g):
        flags = torch.rand(2, 40, 17, generator=g) < 0.2
        return {
            "columns": torch.randn(4, 40, 17, generator=g), "terminated": flags[0], "truncated": flags[1],
            "entries": torch.randint(-1, 2, (40, 17), generator=g, dtype=torch.int8), "t": torch.tensor([0, 7, 39]),
        }  # fmt: skip

    def call(x):
        out = torch.zeros(2, len(window.NAMES), dtype=torch.float64, device=x["entries"].device)
        flags = (x["terminated"], x["truncated"])
        window.moments(*x["columns"], *flags, x["entries"], out[0])
        window.moments(*x["columns"], *flags, torch.zeros_like(x["entries"]), out[1])
        arrived = x["columns"][3].clone()
        for t in x["t"].split(1):
            window.arrive(x["columns"][0, 0], t, *flags, arrived)
        return *out.view(-1).split(1), arrived


@case("reward_whiten", "reward_error", ulps=4)
class rewards:
    def inputs(g):
        return {
            "cents": torch.randint(-90_000, 90_000, (2, 150), generator=g),
            "fees": torch.randint(0, 900, (150,), generator=g),
            "slots": torch.tensor([0.01, 0.125, 0.0, 1.0, 0.0]), "flags": torch.rand(4, 150, generator=g) < 0.3,
            "values": torch.randn(4, 150, generator=g),
        }  # fmt: skip

    def call(x):
        slots, state = x["slots"].clone(), torch.zeros(6, dtype=torch.float64, device=x["slots"].device)
        into = reward.Rewards(*(torch.empty_like(x["values"][0]) for _ in range(3)))
        out = []
        for core, learn in ((x["fees"], True), (x["cents"][0], True), (x["cents"][1], True), (x["cents"][0], False)):
            reward.whiten(core, x["fees"], 5_000, learn, 1e-6, reward.Slots(*slots.unbind()), state, into)
            out += [slots.clone(), *state.float().split(1), *(r.clone() for r in into)]
        before = reward.Previous(x["values"][2].clone(), x["values"][3].clone(), *x["flags"][:3].clone())
        ended = x["flags"][2:]
        errors = [reward.error(x["values"][i], x["values"][1], *ended, 0.9, i == 0, before) for i in (0, 1, 0)]
        return *out, *(e.float() for e in errors), *before


@case("events_mark")
class events_of_steps:
    def inputs(g):
        def whole(high, *shape):
            return torch.randint(0, high, shape, generator=g)

        return {
            "closed": whole(2, 9) > 0, "trades": whole(4, 9, 5, 3), "mask": whole(2, 9, 5) > 0,
            "end_reason": whole(5, 9), "executed": whole(4, 9), "counts": torch.tensor([[3], [0], [2]]),
            "places": torch.tensor([4, 2, 9, 0, 1, 7, 3, 5, 8]),
        }  # fmt: skip

    def call(x):
        seen = torch.zeros(3, 10, dtype=torch.bool, device=x["mask"].device)
        actions = torch.zeros(4, dtype=torch.bool, device=x["mask"].device)
        step = events.Step(x["closed"], x["trades"], x["mask"], x["end_reason"])
        learned = events.Learned(x["executed"], *x["counts"], actions, 3, 3)
        events.mark(step, events.Codes(1, 2, 1, 3, 4), learned, x["places"], seen[0])
        events.mark(step, events.Codes(1, 9, 9, 9, 9), learned, x["places"], seen[1])
        events.mark(step, events.Codes(0, 3, 1, 3, 4), None, x["places"], seen[2])
        return seen, actions
