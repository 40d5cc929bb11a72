"""Leaves of the acting batch, against the tape, the buffers they are made of and the contract's rules."""

import dataclasses
import math

import numpy as np
import pytest
import torch

from foxhunt_assets.contracts.diag import live_by_path
from foxhunt_assets.contracts.rules.base import Phase
from foxhunt_assets.contracts.rules.walk import RULES
from foxhunt_assets.market import features
from foxhunt_assets.simulator.actions import ACTIONS, HOLD
from foxhunt_assets.trainer import measure
from foxhunt_assets.trainer.assemble import Assembly, assemble
from foxhunt_assets.trainer.numbers import Row, finished
from foxhunt_assets.trainer.program import Flags
from kernels.ppo import reference as ppo
from tests.contracts.rule_cases import CONFIG
from tests.trainer.fold_by_hand import make_fold_on_disk, tiny_config

TICK = 0.25  # points, of the fold by hand


@pytest.fixture(scope="module")
def acted(tmp_path_factory) -> Assembly:
    """A run that has collected its first twelve rows, the last one not yet advanced from."""
    run = assemble(make_fold_on_disk(tmp_path_factory.mktemp("home"), tiny_config()))
    run.world.simulator.reset(0)
    for step in range(12):
        for name in ("collect", "measure", *(["advance"] if step < 11 else [])):
            run.program.run(name, Flags())
    return run


def leaves(run: Assembly) -> Row:
    """All leaves of the acting batch, measured once more: running histories move on."""
    row: Row = {}
    for group in measure.groups(run.world, run.collector, run.world.buffers):
        row |= finished(group)
    return row


def raw(run: Assembly, name: str) -> list[float]:
    return run.world.tape.raw[run.collector.anchor, features.index(name)].tolist()


def mean(values: list[float]) -> float:
    return math.fsum(values) / len(values)


def test_flow_and_microstructure_leaves_are_means_of_the_newest_raw_features(acted):
    found = leaves(acted)
    depth = raw(acted, "ofi_depth")
    want = {"features.ofi.depth_mean": mean(depth), "features.ofi.depth_abs_max": max(abs(v) for v in depth)}
    points = {"realized_variance": TICK**2, "intra_bar_momentum": TICK}
    for name in (f.name for f in features.FEATURES if f.group == "micro"):
        want[f"features.micro.{name}_mean"] = mean(raw(acted, name)) * points.get(name, 1)
    assert len(want) == 12 and all(live_by_path()[path].status == "live" for path in want)
    for path, value in want.items():
        assert found[path] == pytest.approx(value, rel=1e-12), path
    assert len({found[path] for path in want}) == 12


def test_group_masses_are_shares_of_the_mask(acted):
    found = leaves(acted)
    weights = acted.collector.encoded.vsn_mask.double().numpy().mean((0, 1))
    for group in features.GROUPS:
        members = [i for i, f in enumerate(features.FEATURES) if f.group == group]
        assert found[f"vsn.mask_{group}"] == pytest.approx(weights[members].sum(), rel=1e-12), group
    assert measure._group_mass(list(range(56)))["vsn.mask_flow"] == 55


def test_the_rule_on_group_masses_runs_on_them_and_can_fail(acted):
    found = leaves(acted)
    columns = {path: np.array([found[path]] * 2) for path in found if path.startswith("vsn.mask_")}
    (rule,) = (rule for rule in RULES if rule.name == "vsn_mass")
    assert set(rule.leaves) <= set(live_by_path())
    assert not rule.check(Phase("train", columns, CONFIG)).any()
    columns["vsn.mask_flow"] = columns["vsn.mask_flow"] + [0, 1e-3]
    assert rule.check(Phase("train", columns, CONFIG)).tolist() == [False, True]


def test_an_account_that_starts_an_episode_has_no_carry_to_leave_and_no_action_to_switch_from(tmp_path):
    run = assemble(make_fold_on_disk(tmp_path, tiny_config()))
    run.world.simulator.reset(0)
    run.program.run("collect", Flags())
    assert (run.collector.encoded.h != 0).any() and (run.collector.outcome.executed != HOLD).any()
    found = leaves(run)
    assert found["encoder.cfc_carry_delta_norm"] == found["actions.switch_frac"] == 0


def test_a_row_in_which_nobody_moves_leaves_the_look_ahead_moments_alone(acted, monkeypatch):
    b = acted.world.buffers
    before = b["diag_moments"].clone()
    still = acted.collector.outcome
    monkeypatch.setattr(acted.collector, "outcome", dataclasses.replace(still, next_row=acted.collector.anchor))
    leaves(acted)
    assert (before != 0).any() and torch.equal(b["diag_moments"], before)


def test_input_and_encoder_leaves_are_what_their_tensors_say(acted):
    found, e = leaves(acted), acted.collector.encoded
    x, h = acted.world.buffers["x"].double(), e.h.double()
    unit = h / h.norm(dim=1, keepdim=True)
    covariance = torch.cov(h.T, correction=0)
    want = {
        "features.shift_abs_mean": x.mean((0, 1)).abs().mean(), "features.shift_abs_max": x.mean((0, 1)).abs().max(),
        "features.std_min": x.std((0, 1), unbiased=False).min(), "features.input_mean": x.mean(),
        "features.input_std": x.std(unbiased=False), "features.input_abs_max": x.abs().max(),
        "features.clipped_frac": (x.abs() >= 8).double().mean(),
        "encoder.mamba2_l1_abs_mean": e.l1.double().abs().mean(), "encoder.ln_b_abs_max": e.ln_b.abs().max(),
        "encoder.attn_context_abs_mean": e.context.double().abs().mean(),
        "encoder.ln_a_rstd_max": e.ln_a_rstd.max(), "encoder.attn_newest_weight": e.attn[:, -1].double().mean(),
        "encoder.attn_entropy": ppo.entropy(e.attn.double()).mean(),
        "encoder.mamba2_l2_decay_mean": e.l2_decay.double().mean(), "encoder.cfc_gate_mean": e.gate.double().mean(),
        "vsn.mask_entropy": ppo.entropy(e.vsn_mask.double()).mean(),
        "vsn.mask_max": e.vsn_mask.double().mean((0, 1)).max(),
        "vsn.mask_row_std": e.vsn_mask.double().std((0, 1), unbiased=False).mean(),
        "encoder.h_t_batch_cosine": ((unit @ unit.T).sum() - len(h)) / (len(h) * (len(h) - 1)),
        "encoder.h_t_participation_ratio": covariance.trace() ** 2 / (covariance @ covariance).trace(),
        "encoder.h_t_unit_std_min": h.std(0, unbiased=False).min(),
        "numerics.scan_state_abs_max": torch.maximum(e.l1_state.abs().max(), e.l2_state.abs().max()),
    }  # fmt: skip
    for path, value in want.items():
        assert found[path] == pytest.approx(float(value), rel=1e-9), path


def test_book_leaves_are_those_of_the_rows_the_accounts_stand_on(acted):
    found, market, o = leaves(acted), acted.world.tape.market, acted.collector.outcome
    rows = list(zip(acted.collector.anchor.tolist(), o.next_row.tolist()))
    books = torch.cat([market.bid_px, market.ask_px, market.bid_sz, market.ask_sz], dim=1).tolist()
    mids = ((market.bid_px[:, 0] + market.ask_px[:, 0]).double() / 2).tolist()
    moved = [mids[after] - mids[now] for now, after in rows]
    rms = math.sqrt(mean([m * m for m in moved]))
    assert rms > 0 and acted.world.tape.sigma_step > 0
    assert found["data.unchanged_book_frac"] == mean([float(books[now] == books[max(0, now - 1)]) for now, _ in rows])
    assert found["data.mid_price_mean"] == pytest.approx(mean([mids[now] for now, _ in rows]) * TICK, rel=1e-12)
    assert found["data.mid_return_abs_mean"] == pytest.approx(mean([abs(m) for m in moved]) * TICK, rel=1e-12)
    assert found["data.mid_rms_over_sigma"] == pytest.approx(rms / acted.world.tape.sigma_step, rel=1e-12)


def test_value_and_policy_leaves_are_what_their_tensors_say(acted):
    found, b, o = leaves(acted), acted.world.buffers, acted.collector.outcome
    q, n = b["q_values"].double(), len(b["v_t"])
    p = ppo.masked_softmax(b["pi_logits"].double(), b["legal"])
    taken = torch.softmax(b["q_logits"].double(), -1)[range(n), o.executed]
    executed = torch.bincount(o.executed, minlength=len(ACTIONS)).double()
    support = acted.world.support().double()
    spread = (taken * (support - (taken * support).sum(1, keepdim=True)) ** 2).sum(1).sqrt()
    want = {
        "q.q_std": q.std(unbiased=False), "q.taken_mean": q[range(n), o.executed].mean(),
        "q.q_spread": (q.amax(1) - q.amin(1)).mean(), "q.dist_std_mean": spread.mean(),
        "q.argmax_entropy": ppo.entropy(torch.bincount(q.argmax(1)).double() / n),
        "q.mean_by_action.a6_long_large": q[:, 6].mean(), "c51.edge_mass_hi": taken[:, -1].mean(),
        "v.pred_mean": b["v_t"].double().mean(), "v.pred_std": b["v_t"].double().std(unbiased=False),
        "v.td_abs_mean": acted.collector.td_abs, "pi.entropy_mean": ppo.entropy(p).mean(),
        "pi.entropy_min": ppo.entropy(p).min(), "pi.hold_prob_mean": p[:, HOLD].mean(),
        "pi.long_minus_short_prob": (p[:, 5] + p[:, 6] - p[:, 0] - p[:, 1]).mean(),
        "pi.logit_abs_max": b["pi_logits"].abs().max(), "pi.log_pi_old_mean": b["log_pi"].double().mean(),
        "gates.conf_mean": p[range(n), b["action"]].mean(), "sac.action_entropy_step": ppo.entropy(executed / n),
        "sac.exec_policy_kl": sum(k / n * math.log(k / n / m) for k, m in zip(executed, p.mean(0)) if k),
        "act_hist.a2_hold": executed[HOLD], "pregate_act_hist.a5_long_small": (b["action"] == 5).sum(),
    }  # fmt: skip
    for path, value in want.items():
        assert found[path] == pytest.approx(float(value), rel=1e-6 if path == "pi.log_pi_old_mean" else 1e-9), path


def test_forward_return_and_reward_leaves_are_what_their_tensors_say(acted):
    found, b, c = leaves(acted), acted.world.buffers, acted.collector
    log_p, labels = torch.log_softmax(b["frd_logits"].double(), -1), acted.world.tape.labels[c.anchor]
    labelled = [(-log_p[i, m, k], m) for i, row in enumerate(labels.tolist()) for m, k in enumerate(row) if k >= 0]
    third = [float(nll) for nll, m in labelled if m == 2]
    raw, scaled, final = (b[name].double() for name in ("reward_raw", "reward_scaled", "reward"))
    gap, size = (final - scaled).abs().mean(), scaled.abs().mean()
    want = {
        "frd.h3.loss": mean(third), "loss.frd": mean([float(nll) for nll, _ in labelled]),
        "frd.h3.label_valid_frac": len(third) / len(labels),
        "frd.h2.upper_tail_mass": log_p[:, 1, -1].exp().mean(), "frd.h1.lower_tail_mass": log_p[:, 0, 0].exp().mean(),
        "frd.h2.argmax_mean": log_p[:, 1].argmax(-1).double().mean(),
        "frd.h1.expected_sigma": (log_p[:, 0].exp() * (torch.arange(21) - 10) * 0.3).sum(-1).mean(),
        "rewards.sum": final.sum(), "rewards.std": final.std(unbiased=False), "rewards.min": final.min(),
        "rewards.raw_abs_mean": raw.abs().mean(), "reward_contrib.popart": gap / (gap + size),
        "reward_terms.core_pnl": c.outcome.core_cents.double().mean() / c.point_lot_cents,
        "reward_terms.tx_cost": -c.outcome.fee_cents.double().mean() / c.point_lot_cents,
        "popart.tail_frac": (final.abs() > 5).double().mean(), "trading.raw_reward_sum": raw.sum(),
    }  # fmt: skip
    assert third and raw.abs().sum() > 0
    for path, value in want.items():
        assert found[path] == pytest.approx(float(value), rel=1e-9, abs=1e-15), path


def test_windowed_shares_and_account_shares_run_over_the_rows(acted):
    b, executed = acted.world.buffers, acted.collector.outcome.executed
    rows, n = int(b["diag_rows"]), len(executed)
    before, shares = b["diag_history"].clone(), b["diag_account_shares"].clone()
    found = leaves(acted)
    before[rows % measure.HISTORY] = torch.bincount(executed, minlength=len(ACTIONS))
    for i, name in enumerate(ACTIONS):
        assert found[f"windowed_act_hist.{name}"] == pytest.approx(before[:, i].sum().item() / (n * (rows + 1)))
    now = torch.nn.functional.one_hot(executed, len(ACTIONS))
    want = ppo.entropy(shares + (now - shares) / 64)
    assert found["sac.account_entropy_mean"] == pytest.approx(want.mean().item())
    assert found["sac.account_entropy_min"] == pytest.approx(want.min().item())
