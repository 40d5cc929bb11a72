"""The layers of the encoder, forward and backward, and the heads of an acting batch."""

import torch

from kernels.attention import op as attention
from kernels.cfc import op as cfc
from kernels.compose import op as compose
from kernels.heads import op as heads
from kernels.layernorm import op as layernorm
from kernels.scan import op as scan
from kernels.vsn import op as vsn
from tests.kernels.cases.registry import case


@case("scan_forward", "scan_backward", "reduce_parts", ulps=8)
class gated_scan:
    def inputs(g):
        return {
            "pre": torch.randn(10, 17, 120, generator=g) * 2, "bias": torch.randn(80, generator=g),
            "ds": torch.randn(10, 17, 40, generator=g), "into": torch.zeros(10, 17, 120),
        }  # fmt: skip

    def call(x):
        a, s = scan.scan(x["pre"], x["bias"])
        into = x["into"].clone()
        return a, s, scan.scan_backward(a, s, x["ds"], into), into


@case("scan_forward", "scan_backward", "reduce_parts", ulps=8)
class one_step_scan:
    def inputs(g):
        return {
            "pre": torch.randn(3, 1, 10, generator=g), "bias": torch.randn(10, generator=g),
            "ds": torch.randn(3, 1, 5, generator=g), "into": torch.zeros(3, 1, 10),
        }  # fmt: skip

    call = gated_scan.call


@case("compose_weights", "compose_gradients", ulps=16)
class composed_weights:
    def inputs(g):
        h, n = 3, 37
        shapes = zip(compose.Block._fields, ((h, n), (h,), (2 * h, h), (2 * h,), (h,), (h, h), (h,)))
        d_shapes = zip(compose.Composed._fields, ((3 * h, n), (2 * h,), (h, h), (h,)))
        made = {name: torch.randn(shape, generator=g) for name, shape in shapes}
        return made | {f"d_{name}": torch.randn(shape, generator=g) for name, shape in d_shapes}

    def call(x):
        block = compose.Block(*(x[name] for name in compose.Block._fields))
        d = compose.Composed(*(x[f"d_{name}"] for name in compose.Composed._fields))
        into = compose.Block(*(torch.empty_like(part) for part in block))
        compose.compose_backward(block, d, into)
        return (*compose.compose(block), *into)


@case("layernorm_forward", "layernorm_backward", "reduce_parts", ulps=16)
class normalised_sum:
    def inputs(g):
        z, dy = torch.randn(2, 37, 70, generator=g)
        shift, gain, bias = torch.randn(3, 70, generator=g)
        x, into = torch.randn(37, 90, generator=g), torch.zeros(37, 90)
        return {"x": x, "z": 3 * z + 1, "shift": shift, "gain": gain, "bias": bias, "dy": dy, "into": into}

    def call(x):
        found = layernorm.normalise(x["x"], x["z"], x["shift"], x["gain"], x["bias"], 1e-5)
        into = x["into"].clone()
        return *found, *layernorm.normalise_backward(*found[1:], x["gain"], x["dy"], into), into


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
