"""The encoder's pieces against numbers computed outside the code, and its gradient against float64 differences."""

import math
from collections import Counter

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from foxhunt_assets.trainer import encoder
from foxhunt_assets.trainer.params import Layout, grads_into, param_table
from kernels import build
from tests.kernels import shim
from tests.trainer.fold_by_hand import tiny_config

F64 = torch.float64


def test_cfc_cell_by_hand():
    pre = torch.tensor([[0.5, -0.3, 0.8, -0.2]], dtype=F64)  # f1, f2, a, b of a one-unit cell
    p = {
        "cfc_w_in": torch.eye(4, dtype=F64),
        "cfc_b": torch.zeros(4, dtype=F64),
        "cfc_w_rec": torch.zeros(4, 1, dtype=F64),
    }
    h, gate = encoder.cfc_cell(p, pre, torch.zeros(1, 1, dtype=F64), torch.tensor([1.5], dtype=F64))
    assert float(gate) == pytest.approx(0.731058578630, abs=1e-12)
    assert float(h) == pytest.approx(-0.088684139283, abs=1e-12)


def test_attention_pool_by_hand():
    h = torch.tensor([[[1.0, 0], [0, 1], [1, 1]]], dtype=F64)
    account = torch.tensor([[7.0, -3.0, 2.0]], dtype=F64)
    weights, joined = encoder.attention_pool(torch.tensor([0.5, -0.5], dtype=F64), h, account)
    assert weights[0].tolist() == pytest.approx([0.455527490, 0.224606344, 0.319866166], abs=1e-9)
    assert joined[0].tolist() == pytest.approx([0.775393656, 0.544472510, 7, -3, 2], abs=1e-9)


def test_variable_selection_is_the_gate_times_the_width():
    p = {
        "vsn_w": torch.tensor([[0.2, 0.1, 0], [0, -0.3, 0.1], [0.1, 0, 0.4]], dtype=F64),
        "vsn_b": torch.zeros(3, dtype=F64),
    }
    mask, out = encoder.variable_selection(p, torch.tensor([[[0.5, -1.0, 2.0]]], dtype=F64))
    assert mask[0, 0].tolist() == pytest.approx([0.200466360, 0.330513152, 0.469020488], abs=1e-9)
    assert (out[0, 0] / 3).tolist() == pytest.approx([0.100233180, -0.330513152, 0.938040976], abs=1e-9)


def test_ssm_block_equals_a_plain_loop():
    p = _parameters()
    p["ln_b_gain"], p["ln_b_bias"] = torch.linspace(0.5, 2, 8, dtype=F64), torch.linspace(-1, 1, 8, dtype=F64)
    x = torch.randn(2, 6, 8, dtype=F64, generator=torch.Generator().manual_seed(2))
    out, total, decay, state, rstd = encoder.ssm_block(p, "mamba2_l2", "ln_b", x)
    name, rows, states = "mamba2_l2", [], []
    for r in range(2):
        s = torch.zeros(8, dtype=F64)
        for k in range(6):
            u = p[f"{name}_w_in"] @ x[r, k] + p[f"{name}_b_in"]
            a = 1 / (1 + torch.exp(-(p[f"{name}_w_a"] @ u + p[f"{name}_b_a"])))
            s = a * s + (1 - a) * (p[f"{name}_w_b"] @ u + p[f"{name}_b_b"])
            states.append(s)
            rows.append(u + p[f"{name}_w_out"] @ (s * p[f"{name}_w_c"]) + p[f"{name}_b_out"])
    assert torch.allclose(total.view(-1, 8), torch.stack(rows), atol=1e-12)
    assert torch.allclose(state.view(-1, 8), torch.stack(states), atol=1e-12)
    normal = torch.nn.functional.layer_norm(torch.stack(rows), (8,), p["ln_b_gain"], p["ln_b_bias"], 1e-5)
    assert torch.allclose(out.view(-1, 8), normal, atol=1e-12)
    assert torch.allclose(rstd, 1 / (total.var(-1, unbiased=False) + 1e-5).sqrt(), atol=1e-12)
    assert float(decay.mean()) == pytest.approx(1 / (1 + math.exp(-2)), abs=0.1)


def test_ssm_block_gradient_equals_differences():
    g = torch.Generator().manual_seed(4)
    p = {k: (v + 0.3 * torch.randn(v.shape, generator=g, dtype=F64)) for k, v in _parameters().items()}
    names = [k for k in p if k.startswith(("mamba2_l2", "ln_b"))]
    x = torch.randn(2, 3, 8, dtype=F64, generator=g)

    def block(x, *values):
        return encoder.ssm_block(dict(zip(names, values)), "mamba2_l2", "ln_b", x)[0]

    leaves = [x.requires_grad_(), *(p[k].requires_grad_() for k in names)]
    assert torch.autograd.gradcheck(block, leaves, check_undefined_grad=False)


def test_parameters_that_lie_together_are_taken_as_one_without_a_copy():
    layout = Layout(param_table(tiny_config(), 45, 11, 12))
    p = layout.leaves(torch.arange(float(layout.size)))
    for part in ("w", "b"):
        a, b = p[f"mamba2_l1_{part}_a"].detach(), p[f"mamba2_l1_{part}_b"].detach()
        both = encoder._stacked(a, b)
        assert torch.equal(both, torch.cat([a, b])) and both.data_ptr() == a.data_ptr()
        apart = encoder._stacked(b, a)
        assert torch.equal(apart, torch.cat([b, a])) and apart.data_ptr() not in (a.data_ptr(), b.data_ptr())


def test_gradients_of_the_other_parts_equal_differences():
    g = torch.Generator().manual_seed(6)
    x, w, b = (torch.randn(shape, dtype=F64, generator=g, requires_grad=True) for shape in ((2, 3, 5), (5, 5), (5,)))
    q, carry = (torch.randn(shape, dtype=F64, generator=g, requires_grad=True) for shape in ((5,), (2, 4)))
    w_in, w_rec, c = (
        torch.randn(shape, dtype=F64, generator=g, requires_grad=True) for shape in ((16, 7), (16, 4), 16)
    )
    account, dt = torch.randn(2, 2, dtype=F64, generator=g), torch.tensor([0.7, 2.0], dtype=F64)

    def selection(w, b):
        return encoder.variable_selection({"vsn_w": w, "vsn_b": b}, x)[1]

    def pool(q, x):
        return encoder.attention_pool(q, x, account)[1]

    def cell(x, carry, w_in, w_rec, b):
        return encoder.cfc_cell({"cfc_w_in": w_in, "cfc_w_rec": w_rec, "cfc_b": b}, x, carry, dt)[0]

    joined = pool(q, x).detach().requires_grad_()
    for part, leaves in ((selection, (w, b)), (pool, (q, x)), (cell, (joined, carry, w_in, w_rec, c))):
        assert torch.autograd.gradcheck(part, leaves, check_undefined_grad=False)


def test_gradient_equals_central_differences():
    p = {k: v.clone().requires_grad_() for k, v in _parameters().items()}
    g = torch.Generator().manual_seed(3)
    x, account = torch.randn(2, 8, 45, dtype=F64, generator=g), torch.randn(2, 12, dtype=F64, generator=g)
    carry, dt = torch.randn(2, 8, dtype=F64, generator=g), torch.tensor([1.0, 2.0], dtype=F64)

    def total() -> torch.Tensor:
        return (encoder.encode(p, x, account, carry, dt).h ** 2).sum()

    names = ["vsn_w", "mamba2_l1_w_a", "mamba2_l2_w_c", "ln_a_gain", "attn_q", "cfc_w_rec"]
    grads = torch.autograd.grad(total(), [p[n] for n in names])
    for name, grad in zip(names, grads):
        flat = p[name].data.view(-1)
        at = flat.numel() // 3
        old, step = float(flat[at]), 1e-6
        flat[at] = old + step
        up = total().item()
        flat[at] = old - step
        down = total().item()
        flat[at] = old
        assert (up - down) / (2 * step) == pytest.approx(float(grad.reshape(-1)[at]), rel=1e-5, abs=1e-8)


def test_named_gradients_land_in_their_places_and_nowhere_else():
    layout = Layout(param_table(tiny_config(), 45, 11, 12))
    flat, g = torch.full((layout.size,), -7.0), torch.Generator().manual_seed(0)
    grads = {name: torch.randn(x.shape, generator=g) for name, x in layout.views(flat).items() if name != "attn_q"}
    grads_into(flat, layout, grads)
    for name, where in layout.slices.items():
        expected = grads[name].flatten() if name in grads else torch.full((8,), -7.0)
        assert torch.equal(flat[where], expected)


class _Operations(TorchDispatchMode):
    """Counts what would be a launch on a device: every operation but views and allocations."""

    def __init__(self):
        super().__init__()
        self.seen = Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        aliases = [r.alias_info for r in func._schema.returns]
        view = any(a is not None and not a.is_write for a in aliases)
        if not view and "empty" not in func.name():
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
    layout, g = Layout(param_table(tiny_config(), 45, 11, 12)), torch.Generator().manual_seed(7)
    flat = torch.zeros(layout.size)
    layout.initialise(flat, 5)
    flat += 0.1 * torch.randn(layout.size, generator=g)
    p = layout.leaves(flat.to(dtype))
    x, account, carry = (torch.randn(shape, generator=g).to(dtype) for shape in ((5, 8, 45), (5, 12), (5, 8)))
    dt, d_h = torch.rand(5, generator=g).to(dtype) + 0.5, torch.randn(5, 8, generator=g).to(dtype)
    leaves = {
        "carry": carry.requires_grad_(),
        **{k: v for k, v in p.items() if layout.slices[k].stop <= layout.encoder.stop},
    }
    with _Operations() as forward:
        e = encoder.encode(p, x, account, carry, dt)
    with _Operations() as backward:
        grads = dict(zip(leaves, torch.autograd.grad(e.h, list(leaves.values()), d_h)))
    return {k: v.detach() for k, v in vars(e).items()}, grads, (forward.seen, backward.seen)


def test_the_sources_compute_what_float64_does_in_few_launches(monkeypatch):
    exact = _forward_and_backward(F64)
    launched = _through_sources(monkeypatch)
    activations, grads, (forward, backward) = _forward_and_backward(torch.float32)
    for got, one in ((activations, exact[0]), (grads, exact[1])):
        for name, value in one.items():
            size = value.abs().max()
            torch.testing.assert_close(got[name].to(F64) / size, value / size, rtol=0, atol=1e-5, msg=name)
    block = ["scan_forward", "layernorm_forward"]
    assert launched[:7] == ["vsn_forward", *block, *block, "attention_forward", "cfc_forward"]
    assert forward == {"addmm": 8, "mm": 1}
    assert backward == {"mm": 15, "addmm_": 2, "addmv": 2}
    assert Counter(launched[7:]) == {
        "cfc_backward": 1, "attention_backward": 1, "layernorm_backward": 2, "scan_backward": 2, "vsn_backward": 1,
        "reduce_parts": 7,
    }  # fmt: skip


def _parameters() -> dict[str, torch.Tensor]:
    layout = Layout(param_table(tiny_config(), 45, 11, 12))
    flat = torch.zeros(layout.size)
    layout.initialise(flat, 5)
    return {name: view.to(F64) for name, view in layout.views(flat).items()}
