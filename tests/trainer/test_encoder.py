"""The encoder's pieces against numbers computed outside the code, and its gradient against float64 differences."""

import math
from collections import Counter

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from foxhunt_assets.trainer import encoder
from foxhunt_assets.trainer.params import Layout, param_table
from kernels import build
from tests.kernels import shim
from tests.trainer.fold_by_hand import tiny_config

F64 = torch.float64


def _parameters(seed=5, noise=0.0):
    """Parameters of a tiny encoder in float64, views of one flat buffer."""
    layout = Layout(param_table(tiny_config(), 45, 11, 12))
    flat = torch.zeros(layout.size)
    layout.initialise(flat, seed)
    return layout.views(flat.to(F64) + noise * torch.randn(layout.size, generator=_generator(seed), dtype=F64))


def _generator(seed):
    return torch.Generator().manual_seed(seed)


def _inputs(rows=2, dtype=F64):
    g = _generator(3)
    x, account, carry = (
        torch.randn(s, dtype=F64, generator=g).to(dtype) for s in ((rows, 8, 45), (rows, 12), (rows, 8))
    )
    return x, account, carry, (torch.rand(rows, dtype=F64, generator=g) + 0.5).to(dtype)


def _plain_block(p, name, norm, x):
    """(normalised output, l, states, decays) of a block as the formulas say it, a step at a time."""
    steps, states, decays, s = [], [], [], torch.zeros(len(x), 8, dtype=F64)
    for k in range(x.shape[1]):
        u = x[:, k] @ p[f"{name}_w_in"].T + p[f"{name}_b_in"]
        a = 1 / (1 + torch.exp(-(u @ p[f"{name}_w_a"].T + p[f"{name}_b_a"])))
        s = a * s + (1 - a) * (u @ p[f"{name}_w_b"].T + p[f"{name}_b_b"])
        steps.append(u + (s * p[f"{name}_w_c"]) @ p[f"{name}_w_out"].T + p[f"{name}_b_out"])
        states.append(s)
        decays.append(a)
    total = torch.stack(steps, 1)
    out = torch.nn.functional.layer_norm(total, (8,), p[f"{norm}_gain"], p[f"{norm}_bias"], 1e-5)
    return out, total, torch.stack(states, 1), torch.stack(decays, 1)


def _plain_encoder(p, x, account, carry, dt):
    """h of the published formulas in plain torch, for autograd."""
    gated = torch.softmax(x @ p["vsn_w"].T + p["vsn_b"], -1) * x.shape[-1] * x
    inner = _plain_block(p, "mamba2_l1", "ln_a", gated)[0]
    outer = _plain_block(p, "mamba2_l2", "ln_b", inner)[0]
    weights = torch.softmax(outer @ p["attn_q"] / math.sqrt(8), 1)
    joined = torch.cat([(weights[..., None] * outer).sum(1), account], 1)
    f1, f2, a, b = (joined @ p["cfc_w_in"].T + carry @ p["cfc_w_rec"].T + p["cfc_b"]).chunk(4, 1)
    gate = torch.sigmoid(a * dt[:, None] + b)
    return torch.tanh(f1) * (1 - gate) + torch.tanh(f2) * gate


def test_a_block_equals_the_plain_formulas():
    p = _parameters(noise=0.3)
    x = torch.randn(2, 6, 8, dtype=F64, generator=_generator(2))
    found = encoder.ssm_block(encoder.weights(p), "mamba2_l2", x)
    out, total, states, decays = _plain_block(p, "mamba2_l2", "ln_b", x)
    for got, exact in ((found.out, out), (found.total, total), (found.state, states), (found.decay, decays)):
        torch.testing.assert_close(got, exact, rtol=0, atol=1e-12)
    torch.testing.assert_close(found.rstd, 1 / (total.var(-1, unbiased=False) + 1e-5).sqrt(), rtol=0, atol=1e-12)


def test_the_encoder_and_its_gradient_equal_the_plain_formulas_under_autograd():
    p = _parameters(noise=0.3)
    x, account, carry, dt = _inputs()
    d_h = torch.randn(2, 8, dtype=F64, generator=_generator(9))
    names = [n for n in p if n.split("_")[0] in ("vsn", "mamba2", "ln", "attn", "cfc")]
    leaves = [carry.clone().requires_grad_(), *(p[n].clone().requires_grad_() for n in names)]
    h = _plain_encoder(dict(zip(names, leaves[1:])), x, account, leaves[0], dt)
    exact = dict(zip(["carry", *names], torch.autograd.grad((h * d_h).sum(), leaves)))
    w, grads = encoder.weights(p), _like(p, torch.nan)
    found = encoder.encode(w, x, account, carry, dt)
    d_carry = encoder.backward(w, found, x, carry, dt, d_h, grads)
    torch.testing.assert_close(found.h, h.detach(), rtol=0, atol=1e-12)
    for name, value in exact.items():
        torch.testing.assert_close(d_carry if name == "carry" else grads[name], value, rtol=1e-9, atol=1e-11, msg=name)
    untouched = [n for n in p if n not in names]
    assert untouched and all(grads[n].isnan().all() for n in untouched)


def _like(p, value):
    """Views of another flat buffer, all of one value."""
    layout = Layout(param_table(tiny_config(), 45, 11, 12))
    some = next(iter(p.values()))
    return layout.views(torch.full((layout.size,), value, dtype=some.dtype))


def test_parameters_that_lie_together_are_taken_as_one_without_a_copy():
    layout = Layout(param_table(tiny_config(), 45, 11, 12))
    p = layout.views(torch.arange(float(layout.size)))
    for part in ("w", "b"):
        a, b = p[f"mamba2_l1_{part}_a"], p[f"mamba2_l1_{part}_b"]
        both = encoder._stacked(a, b)
        assert torch.equal(both, torch.cat([a, b])) and both.data_ptr() == a.data_ptr()
        for first, second in ((b, a), (a, b.clone())):
            with pytest.raises(ValueError, match="do not lie together"):
                encoder._stacked(first, second)


class _Operations(TorchDispatchMode):
    """Counts what would be a launch on a device: every operation but views and allocations."""

    def __init__(self):
        super().__init__()
        self.seen = Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        aliases = [r.alias_info for r in func._schema.returns]
        view = any(a is not None and not a.is_write for a in aliases)
        if not view and not any(word in func.name() for word in ("empty", "_unsafe_view")):
            self.seen[func.name().removeprefix("aten::")] += 1
        return func(*args, **(kwargs or {}))


def _through_sources(monkeypatch):
    """Kernels run from their sources in the shim; the list of those launched."""
    launched = []

    def launch(family, function, grid, block, *args):
        launched.append(function)
        shim.run(build.source_path(family), function, grid, block, args)

    monkeypatch.setattr(build, "launch", launch)
    monkeypatch.setattr(build, "on_gpu", lambda x: x.dtype == torch.float32)
    return launched


def _forward_and_backward(dtype):
    """({activation: value}, {input: gradient}, operations of each way) of one pass at small sizes."""
    layout = Layout(param_table(tiny_config(), 45, 11, 12))
    flat = torch.cat([v.flatten() for v in _parameters(noise=0.1).values()]).to(dtype)
    x, account, carry, dt = _inputs(5, dtype)
    d_h = torch.randn(5, 8, generator=_generator(8), dtype=F64).to(dtype)
    grads = _like({"": flat}, 0.0)
    with _Operations() as forward:
        w = encoder.weights(layout.views(flat))
        e = encoder.encode(w, x, account, carry, dt)
    with _Operations() as backward:
        d_carry = encoder.backward(w, e, x, carry, dt, d_h, grads)
    encoder_grads = {k: v for k, v in grads.items() if layout.slices[k].stop <= layout.encoder.stop}
    return vars(e), {"carry": d_carry, **encoder_grads}, (forward.seen, backward.seen)


def test_the_sources_compute_what_float64_does_in_few_launches(monkeypatch):
    exact = _forward_and_backward(F64)
    launched = _through_sources(monkeypatch)
    activations, grads, (forward, backward) = _forward_and_backward(torch.float32)
    for got, one in ((activations, exact[0]), (grads, exact[1])):
        for name, value in one.items():
            size = value.abs().max()
            torch.testing.assert_close(got[name].to(F64) / size, value / size, rtol=0, atol=1e-5, msg=name)
    block = ["scan_forward", "layernorm_forward"]
    composed = ["compose_weights", "compose_weights"]
    assert launched[:9] == [*composed, "vsn_forward", *block, *block, "attention_forward", "cfc_forward"]
    assert forward == {"addmm": 2, "mm": 5}
    assert backward == {"mm": 10, "mm.out": 3, "_foreach_copy_": 1}
    assert Counter(launched[9:]) == {
        "cfc_backward": 1, "attention_backward": 1, "layernorm_backward": 2, "scan_backward": 2, "vsn_backward": 1,
        "compose_gradients": 2, "reduce_parts": 7,
    }  # fmt: skip
