"""From a policy's choice to an update of the weights: rewards, advantages, losses' gradients, the optimiser."""

import torch

from kernels.adamw import op as adamw
from kernels.c51 import op as c51
from kernels.frd import op as frd
from kernels.gae import op as gae
from kernels.outer import op as outer
from kernels.policy import op as policy
from kernels.ppo import op as ppo
from kernels.reward import op as reward
from tests.kernels.cases.registry import case


@case("outer_parts", "reduce_parts", ulps=8)
class layer_gradients:
    def inputs(g):
        return {
            "slope": torch.randn(150, 11, generator=g), "x": torch.randn(150, 40, generator=g),
            "into": torch.zeros(11 * 41),
        }  # fmt: skip

    def call(x):
        into = x["into"].clone()
        outer.weight_gradient(x["slope"], x["x"], into)
        return into.split((11 * 40, 11))


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


@case("c51_rows", "c51_keep", ulps=8)
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
        stats = torch.zeros(len(c51.NAMES), dtype=torch.float64, device=x["action"].device)
        scale = c51.Scale(x["v_min"], x["v_max"], x["scale"], x["now"])
        drawn = c51.Drawn(x["indices"], *x["drawn"])
        update = c51.DoubleQ(0.97, 1e-3, 0.6)
        found = update.gradients(*x["logits"], c51.Transitions(*columns), drawn, scale, stats)
        stats[c51.NAMES.index("mass_err_max")] += 1  # the mass, that is: its error is rounding alone
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
