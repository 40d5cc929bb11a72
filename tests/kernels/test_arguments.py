"""A wrong argument is refused by name, whichever op it is given to."""

import pytest
import torch

from kernels.acting import op as acting
from kernels.adamw import op as adamw
from kernels.digest import op as digest
from kernels.frd import op as frd
from kernels.gae import op as gae
from kernels.gather import op as gather
from kernels.geometry import op as geometry
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
from kernels.window import op as window
from tests.kernels import cases
from tests.kernels.cases import acting_parts, made
from tests.kernels.cases.market import new_memory

F, I64, I32, FLAG = torch.zeros(2, 3), torch.zeros(2).long(), torch.zeros(2, 3).int(), torch.zeros(2, 3).bool()
NO = torch.zeros(2).bool()
SPAN = (-1.0, 1.0)
WRONG = {
    "pre has two dimensions": ("pre", lambda: scan.scan(F, F[0, :2])),
    "bias is an integer": ("bias", lambda: scan.scan(torch.zeros(1, 2, 6), I32[0])),
    "pre has no step": ("pre", lambda: scan.scan(torch.zeros(1, 0, 6), F[0, :2])),
    "s is transposed": ("s", lambda: scan.scan_backward(F[None], F.T[None], F[None], F[None])),
    "values are transposed": ("values", lambda: gae.gae(F, F.T, F, FLAG, FLAG, 0.9, 0.9)),
    "flags are floats": ("truncated", lambda: gae.gae(F, F, F, FLAG, F, 0.9, 0.9)),
    "gamma a vector": ("gamma", lambda: gae.gae(F, F, F, FLAG, FLAG, torch.ones(2), 0.9)),
    "an empty rollout": ("rewards", lambda: gae.gae(F[:0], F[:0], F[:0], FLAG[:0], FLAG[:0], 0.9, 0.9)),
    "a tree of 6 words": ("tree", lambda: sumtree.rebuild(torch.zeros(6))),
    "a tree in float64": ("tree", lambda: sumtree.sample(torch.zeros(8).double(), torch.zeros(1))),
    "indices in int32": ("indices", lambda: sumtree.update(torch.zeros(8), I32[0], torch.zeros(3))),
    "no index": ("indices", lambda: sumtree.update(torch.zeros(8), I64[:0], torch.zeros(0))),
    "a value too few": ("values", lambda: sumtree.update(torch.zeros(8), I64, torch.zeros(1))),
    "prices as floats": ("px", lambda: lob.fill(I64, I64, F, I32, NO)),
    "no level": ("px", lambda: lob.fill(I64, I64, I32[:, :0], I32[:, :0], NO)),
    "lots in int32": ("lots", lambda: lob.fill(I64, I64.int(), I32, I32, NO)),
    "force as int": ("force", lambda: lob.fill(I64, I64, I32, I32, I64)),
    "ask for another batch": ("ask0", lambda: lob.mid_half_ticks(I32[:, 0], I32[:1, 0])),
    "memory of other accounts": ("taken_px", lambda: lob.available(new_memory(3, 3), I32, I32)),
    "a table of flags": ("table", lambda: gather.windows(FLAG, I64, I64, 1)),
    "anchors in int32": ("anchors", lambda: gather.windows(F, I64, I32[0], 2)),
    "a start a row too many": ("segment_start", lambda: gather.windows(F, I64[:1], I64, 2)),
    "no step": ("steps", lambda: gather.windows(F, I64, I64, 0)),
    "legal as floats": ("legal", lambda: policy.sample(F, F, I64, 0.1)),
    "a draw too few": ("draws", lambda: policy.sample(F, FLAG, I64[:1], 0.1)),
    "a floor a row": ("floor", lambda: policy.sample(F, FLAG, I64, torch.zeros(2))),
    "a number in half": (r"sources\[1\]", lambda: pack.words([F, F.half()], I64)),
    "room for fewer numbers": ("out", lambda: pack.words([F], I64)),
    "a sum of flags": ("x", lambda: reduce.sum_rows(FLAG)),
    "no matrix": ("matrices", lambda: statistics.summary({}, 1.0)),
    "a matrix of flags": ("seen", lambda: statistics.summary({"seen": FLAG}, 1.0)),
    "a matrix without rows": ("seen", lambda: statistics.summary({"seen": F[:0]}, 1.0)),
    "shares of no matrix": ("shares", lambda: statistics.summary({"seen": F}, 1.0, {"other"})),
    "rows by number in int32": ("at", lambda: statistics.summary({"seen": F}, 1.0, at=I32[0])),
    "carry of other units": ("before", lambda: geometry.geometry(F, F.T, NO)),
    "starts as numbers": ("left_out", lambda: geometry.geometry(F, F, I64)),
    "moments in float32": ("moments", lambda: moves.moves(F[None], [I32] * 4, I64[:1], I64[:1], 0.1, F)),
    "an ask a level": ("ask_px", lambda: moves.moves(F[None], [I32, I32[0], I32, I32], I64[:1], I64[:1], 0.1, F)),
    "a float for an action": ("executed", lambda: _acting(executed=torch.zeros(150))),
    "labels of another horizon": ("labels", lambda: _acting(labels=torch.zeros(40, 3).long())),
    "one action": ("q_logits", lambda: _acting(**_of_one_action())),
    "a count without its axis": ("count", lambda: sumtree.append(torch.zeros(8), I64[0], 1)),
    "more rows than leaves": ("rows", lambda: sumtree.append(torch.zeros(8), I64[:1], 5)),
    "draws of another tree": ("draws", lambda: sumtree.moments(torch.zeros(8), I32[0], I64[:1])),
    "counts in int64": ("counts", lambda: ring.tally(I64, I64)),
    "a row by number in int32": ("at", lambda: ring.Ring([F]).take(I32[0])),
    "room of another type": (r"into\[0\]", lambda: ring.Ring([F]).take(I64, [FLAG])),
    "a chain of two seeds": (r"seeds\[0\]", lambda: digest.Digests([F], [I64])),
    "buffers a column": ("buffers", lambda: digest.Digests([F[:, 0]])),
    "labels a row": ("labels", lambda: frd.gradient(F[None], I64, I64[:1])),
    "a total of another size": ("total", lambda: norms.norms([F], F[0], F[0, :1], torch.zeros(2).double())),
    "statistics in float32": ("stats", lambda: _ppo(torch.zeros(16))),
    "a window of three": ("window", lambda: _ppo(torch.zeros(16).double(), window=torch.zeros(3).double())),
    "weights too few": ("weights", lambda: _double_q(drawn=torch.rand(3, 36))),
    "a span with an axis": ("v_min", lambda: _double_q(v_min=torch.zeros(1))),
    "a row as a number": ("t", lambda: window.arrive(F[0], I64[0], FLAG, FLAG, F)),
    "entries in int32": (
        "entries",
        lambda: window.moments(F, F, F, F, FLAG, FLAG, I32, torch.zeros(10).double()),
    ),
    "cents in float": ("core_cents", lambda: _whiten(F[0])),
    "places of fewer events": ("places", lambda: _events(torch.arange(4))),
    "a vector too long": (r"vectors\[0\]", lambda: spectral.Powers([F], [F[0]])),
    "rows of numbers": ("rows", lambda: philox.uniforms(1, "replay", 0, F[0])),
    "a gate of two": ("gate", lambda: _adamw(gate=F[0, :2])),
    "a fill of other levels": ("per_level", lambda: lob.take(new_memory(2, 3), torch.zeros(2, 4).long())),
}


def _acting(**wrong):
    return acting.acting(*acting_parts(made("acting_batch") | wrong))


def _ppo(stats, **wrong):
    x = made("ppo_minibatches")
    update, columns = ppo.PPO(0.2, 0.5, 0.01, 0.02, 1.0), x["rows"]
    batch = (x["logits"], columns[0], x["legal"], x["actions"], *columns[1:], wrong.get("window", x["window"]))
    update.keep(update.gradients(*batch)[2], 150, I64[0], stats, torch.ones(1), I64[:1])


def _double_q(**wrong):
    cases.CASES["double_q"].call(made("double_q") | wrong)


def _whiten(cents):
    x, into = torch.zeros(5), reward.Rewards(*torch.zeros(3, 3))
    reward.whiten(cents, cents, 1, True, 1e-6, reward.Slots(*x), torch.zeros(6).double(), into)


def _events(places):
    cases.CASES["events_of_steps"].call(made("events_of_steps") | {"places": places})


def _adamw(gate):
    adam = adamw.AdamW({"all": slice(0, 3)}, F[0], beta1=0.9, beta2=0.9, eps=1.0, weight_decay=0.0, clip=1.0)
    adam.step(*[F[0].clone() for _ in range(4)], I64[:1], gate, torch.zeros(len(adam.names)).double())


def _of_one_action():
    narrow = ("q_logits", "q_values", "pi_logits", "pi", "legal", "shares", "counts")
    return {name: x[:, :1] for name, x in made("acting_batch").items() if name in narrow}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_argument_is_named(case):
    name, call = WRONG[case]
    with pytest.raises(ValueError, match=rf"^{name}: "):
        call()
