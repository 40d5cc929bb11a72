"""Numbers of the acting batch against a plain loop over the accounts in Python's own arithmetic."""

import math

import pytest
import torch

from kernels.acting import op, reference
from tests.kernels.cases import acting_parts, made

NAMES = op.names(5, 2)


def _softmax(logits, legal=None):
    e = [math.exp(x) if legal is None or legal[k] else 0.0 for k, x in enumerate(logits)]
    return [x / math.fsum(e) for x in e]


def _entropy(p):
    return -math.fsum(x * math.log(x) for x in p if x > 0)


def _account(x, i, scale):
    """{quantity: value} of account i; the formulas as the contract of the leaves tells them."""
    row = {name: value[i].tolist() for name, value in x.items() if value.shape[:1] == x["v"].shape}
    q, executed, sampled, legal = row["q_values"], row["executed"], row["sampled"], row["legal"]
    low, high = float(x["v_min"]), float(x["v_max"])
    atoms = [low + (high - low) * k / 8 for k in range(9)]  # exact in float32
    p = _softmax(row["q_logits"][executed])
    mean = math.fsum(a * b for a, b in zip(p, atoms))
    allowed = [a for a in range(5) if legal[a]]
    ranked = sorted(q, reverse=True)
    found = {
        "q.taken": q[executed], "q.top": max(q), "q.gap": ranked[0] - ranked[1], "q.spread": max(q) - min(q),
        "q.entropy": _entropy(p), "q.std": math.sqrt(math.fsum(a * (b - mean) ** 2 for a, b in zip(p, atoms))),
        "q.edge_lo": p[0], "q.edge_hi": p[-1], "q.argmax": q.index(max(q)), "q.v": row["v"],
        "q.agree": max(allowed, key=q.__getitem__) == max(allowed, key=row["pi_logits"].__getitem__),
        **{f"q.{a}": q[a] for a in range(5)},
    }  # fmt: skip
    pi, ranked = _softmax(row["pi_logits"], legal), sorted(row["pi"], reverse=True)
    found |= {
        "pi.entropy": _entropy(pi), "pi.max": max(pi), "pi.logit": max(map(abs, row["pi_logits"])),
        "pi.taken": pi[sampled], "pi.floored": sum(pi[a] < scale.floor for a in allowed),
        "pi.log_kept": math.log((1 - scale.kept * len(allowed)) * pi[sampled] + scale.kept),
        "pi.draw": row["draw"] // 256 / 2**24, "pi.near_tie": ranked[0] - ranked[1] < scale.near_tie,
        "pi.switched": executed != row["last_action"] and not row["starts"], "pi.sampled": sampled,
        "pi.account_entropy": _entropy(_shares(row, scale)), "pi.executed": executed,
        **{f"pi.{a}": pi[a] for a in range(5)},
    }  # fmt: skip
    for m in range(2):
        p, label = _softmax(row["frd_logits"][m]), x["labels"][row["anchor"], m].item()
        expected = math.fsum(a * b for a, b in zip(p, x["frd_atoms"].tolist()))
        now = (_entropy(p), p.index(max(p)), -math.log(p[label]) if label >= 0 else 0.0, p.index(max(p)) == label)
        now += (label >= 0, expected, p[-1], p[0])
        found |= {f"frd.{m}.{name}": value for name, value in zip(reference.HORIZON, now)}
    raw, scaled, final = row["raw"], row["scaled"], row["final"]
    core, fees = row["core_cents"] / scale.point_lot_cents, -row["fee_cents"] / scale.point_lot_cents
    now = (final, raw, abs(raw), raw != 0, abs(raw) * row["closed"], raw * row["closed"], core, fees)
    now += (abs(raw - core - fees), abs(final - scaled), abs(scaled), abs(final) > scale.tail)
    return found | {f"reward.{name}": value for name, value in zip(reference.REWARD, now)}


def _shares(row, scale):
    now = [float(row["executed"] == a) for a in range(5)]
    return [s + scale.rate * (n - s) for s, n in zip(row["shares"], now)]


def _folded(fold, values):
    if fold == "squares":
        mean = math.fsum(values) / len(values)
        return math.fsum((v - mean) ** 2 for v in values)
    return min(values) if fold == "least" else max(values)


def _oracle(x, parts):
    each = [_account(x, i, parts[-1]) for i in range(len(x["v"]))]
    found = {}
    for name in NAMES[: -5 - 2]:
        base, _, last = name.rpartition(".")
        if base in ("q.argmax", "pi.sampled", "pi.executed"):
            found[name] = sum(e[base] == int(last) for e in each)
        elif last in ("squares", "least", "largest"):
            found[name] = _folded(last, [e[base] for e in each])
        else:
            found[name] = math.fsum(e[name] for e in each)
    return found


@pytest.mark.parametrize("seed", range(3))
def test_every_number_is_that_of_a_loop_over_the_accounts(seed):
    x = made("acting_batch", seed)
    parts = acting_parts(x)
    want = _oracle(x, parts)
    got = dict(zip(NAMES, op.acting(*parts).tolist(), strict=True))
    assert len(want) == 84
    for name, value in want.items():
        assert got[name] == pytest.approx(value, rel=1e-12, abs=1e-12), name


def test_the_history_moves_on_by_a_row():
    x = made("acting_batch")
    parts = acting_parts(x)
    got = dict(zip(NAMES, op.acting(*parts).tolist()))
    history, rows = parts[3], int(x["rows"])
    counts = x["counts"].clone()
    counts[rows % 4] = torch.bincount(x["executed"], minlength=5)
    assert torch.equal(history.counts, counts) and torch.equal(history.last_action, x["executed"])
    assert [got[f"window.{a}"] for a in range(5)] == counts.sum(0).tolist()
    assert got["window_rows"] == min(rows + 1, 4)
    closed = math.fsum(x["raw"][x["closed"]].tolist())
    assert got["closed_raw"] == pytest.approx(float(x["closed_raw"]) + closed) == float(history.closed_raw)
    row = {name: x[name][2].tolist() for name in ("executed", "shares")}
    assert history.shares[2].tolist() == pytest.approx(_shares(row, parts[-1]), rel=1e-15)
    assert int(history.rows) == rows + 1


def test_in_the_first_row_an_account_s_shares_are_what_it_does():
    x = made("acting_batch") | {"rows": torch.tensor([0])}
    parts = acting_parts(x)
    got = dict(zip(NAMES, op.acting(*parts).tolist()))
    assert torch.equal(parts[3].shares, torch.nn.functional.one_hot(x["executed"], 5).double())
    assert got["pi.account_entropy"] == got["pi.account_entropy.least"] == 0.0


def test_what_is_not_a_number_shows():
    x = made("acting_batch")
    for name in ("pi_logits", "final", "v"):
        x[name][3] = math.nan
    got = dict(zip(NAMES, op.acting(*acting_parts(x)).tolist()))
    seen = (
        "pi.logit.largest",
        "pi.entropy",
        "pi.entropy.least",
        "reward.final",
        "reward.final.least",
        "reward.final.largest",
    )
    assert all(math.isnan(got[name]) for name in (*seen, "q.v", "q.v.squares", "pi.taken"))
