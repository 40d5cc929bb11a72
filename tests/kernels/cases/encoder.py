"""The layers of the encoder, forward and backward, and the heads of an acting batch."""

import torch

from kernels.attention import op as attention
from kernels.cfc import op as cfc
from kernels.heads import op as heads
from kernels.layernorm import op as layernorm
from kernels.scan import op as scan
from kernels.vsn import op as vsn
from tests.kernels.cases.registry import case


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
