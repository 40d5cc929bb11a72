"""What a run measures of itself."""

import torch

from kernels.acting import op as acting
from kernels.distances import op as distances
from kernels.events import op as events
from kernels.geometry import op as geometry
from kernels.lob import op as lob
from kernels.moves import op as moves
from kernels.norms import op as norms
from kernels.spectral import op as spectral
from kernels.statistics import op as statistics
from kernels.window import op as window
from tests.kernels.cases.registry import case


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
