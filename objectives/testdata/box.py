"""Makes box.json: what the objectives, advantages and masks beyond the paper's give for
two batches, in float64, independently of the Go code.

    python objectives/testdata/box.py objectives/testdata/box.json

It needs PyTorch and TRL (1.16.0 made the file). Where TRL has the method, it is TRL's
own trainer that computes the loss, called on given log-probs, and the weights are its
derivative by autograd ("from": "trl"). The rest is written here from the formulas, on
padded tensors or flat lists ("from": "formula").
"""

import json
import sys
from collections import defaultdict
from types import SimpleNamespace

import numpy as np
import torch
from trl.trainer.grpo_trainer import GRPOTrainer
from trl.trainer.rloo_trainer import RLOOTrainer

torch.set_default_dtype(torch.float64)


def draw(seed, groups, scale):
    """Groups of responses by length, with log-ratios that are mostly small."""
    r = np.random.default_rng(seed)
    rows = []
    for g, lengths in enumerate(groups):
        for n in lengths:
            old = -r.exponential(1.0, n)
            wild = r.random(n) < 0.25
            ratio = np.where(wild, 4, 1) * scale * r.standard_normal(n)
            rows.append({
                "group": g, "old": old, "new": np.minimum(old + ratio, -1e-3), "ref": old + 0.2 * r.standard_normal(n),
                "sampled": old + 0.3 * r.standard_normal(n), "entropy": r.exponential(1.0, n),
                "parts": {"right": float(r.integers(2)), "short": float(np.round(r.random(), 3))},
            })
    weights = {"right": 1.0, "short": -0.25}
    for row in rows:
        row["reward"] = sum(weights[k] * v for k, v in row["parts"].items())
    greedy = np.round(np.random.default_rng(seed + 100).random(len(groups)), 3)  # rewards of the greedy responses
    for row in rows:
        row["greedy"] = float(greedy[row["group"]])
    return rows, weights


def by_group(rows, f):
    """Applies f to the rows of each group."""
    out = []
    for g in sorted({row["group"] for row in rows}):
        out += list(f([row for row in rows if row["group"] == g]))
    return np.array(out)


def rewards(rows):
    return np.array([row["reward"] for row in rows])


def standardize(x, eps):
    x = np.asarray(x)
    return np.zeros(len(x)) if (x == x[0]).all() else (x - x.mean()) / (x.std(ddof=1) + eps)


def whiten(rows, x, eps):
    """verl's masked_whiten: mean and variance over tokens."""
    lengths = [len(row["old"]) for row in rows]
    flat = np.repeat(x, lengths)
    return (x - flat.mean()) / (flat.std(ddof=1) + eps)


def to_go(row):
    """verl's ReMax: the reward, given at the last token, summed from each token on, less the greedy one."""
    given = np.append(np.zeros(len(row["old"]) - 1), row["reward"])
    per_token = np.flip(np.cumsum(np.flip(given))) - row["greedy"]
    assert (per_token == per_token[0]).all()
    return per_token[0]


def advantages(rows, weights, eps):
    """The rules beyond centered and standardized, each with its eps."""
    centered = by_group(rows, lambda g: rewards(g) - rewards(g).mean())
    gdpo = by_group(rows, lambda g: sum(w * standardize([row["parts"][k] for row in g], eps) for k, w in weights.items()))
    lengths = lambda g: np.array([len(row["old"]) for row in g])
    return {
        "standardized": by_group(rows, lambda g: standardize(rewards(g), eps)),
        "rloo": by_group(rows, lambda g: [r - np.delete(rewards(g), i).mean() for i, r in enumerate(rewards(g))]),
        "opo": by_group(rows, lambda g: rewards(g) - (lengths(g) * rewards(g)).sum() / lengths(g).sum()),
        "maxrl": by_group(rows, lambda g: (rewards(g) - rewards(g).mean()) / rewards(g).mean() if rewards(g).mean() > 0 else 0 * rewards(g)),
        "round-std": centered / (rewards(rows).std(ddof=1) + eps),
        "gdpo": (gdpo - gdpo.mean()) / (gdpo.std(ddof=1) + eps),
        "remax": np.array([to_go(row) for row in rows]),
        "reinforce++": whiten(rows, rewards(rows), eps),
        "reinforce++-baseline": whiten(rows, centered, eps),
    }


def pad(rows, key):
    longest = max(len(row["old"]) for row in rows)
    return torch.tensor(np.array([np.pad(row[key], (0, longest - len(row[key]))) for row in rows]))


def trl(rows, a, trainer=GRPOTrainer, sampled=False, **settings):
    """The loss and its derivatives, as a TRL trainer computes them."""
    logp = pad(rows, "new").requires_grad_()
    mask = pad([{**row, "one": np.ones(len(row["old"]))} for row in rows], "one")
    same = lambda x, **_: x
    args = SimpleNamespace(
        delta=None, use_bias_correction_kl=False, sapo_temperature_pos=1.0, sapo_temperature_neg=1.05,
        vespo_k_pos=2.0, vespo_lambda_pos=3.0, vespo_k_neg=3.0, vespo_lambda_neg=2.0)
    state = dict(
        args=args, loss_type="grpo", importance_sampling_level="token", beta=0.0, epsilon_low=0.2, epsilon_high=0.2,
        top_entropy_quantile=1.0, off_policy_mask_threshold=None, use_vllm=sampled, vllm_importance_sampling_correction=False,
        aux_loss_enabled=False, _entropy_bonus_enabled=False, current_gradient_accumulation_steps=1,
        model=SimpleNamespace(training=True), _metrics=defaultdict(lambda: defaultdict(list)), num_generations=1,
        accelerator=SimpleNamespace(gather=same, reduce=same, pad_across_processes=same, gather_for_metrics=same, num_processes=1))
    cap = settings.pop("cap", None)
    args.steps_per_generation = 1
    state.update(settings)
    self = SimpleNamespace(**state)
    self._get_per_token_logps_and_entropies = lambda *_, **__: (logp, pad(rows, "entropy"), None)
    for name in ("get_high_entropy_mask",):
        setattr(self, name, getattr(trainer, name).__get__(self) if hasattr(trainer, name) else None)
    for name in ("get_off_policy_mask", "get_gamma_weights"):
        setattr(self, name, getattr(trainer, name, None))
    ids = torch.zeros(mask.shape, dtype=torch.long)
    inputs = dict(
        prompt_ids=ids[:, :1], prompt_mask=ids[:, :1], completion_ids=ids, completion_mask=mask, advantages=torch.tensor(a),
        old_per_token_logps=pad(rows, "old"), ref_per_token_logps=pad(rows, "ref"), num_items_in_batch=mask.sum(),
        old_logps=(pad(rows, "old") * mask).sum(1))
    if sampled:
        inputs["sampling_per_token_logps"] = pad(rows, "sampled")
    if cap is not None:
        self.vllm_importance_sampling_correction = True
        inputs["importance_sampling_ratio"] = torch.clamp(torch.exp(pad(rows, "old") - pad(rows, "sampled")), max=cap)
    loss = trainer._compute_loss(self, SimpleNamespace(training=True), inputs)
    loss.backward()
    w = [g[: len(row["old"])].tolist() for g, row in zip(logp.grad.numpy(), rows)]
    return {"from": "trl", "loss": loss.item(), "w": w}


def formula(rows, a, per_token):
    """The mean over all tokens of per_token(new, old, ref, entropy, A), flat tensors."""
    new = torch.tensor(np.concatenate([row["new"] for row in rows]), requires_grad=True)
    flat = lambda key: torch.tensor(np.concatenate([row[key] for row in rows]))
    lengths = [len(row["old"]) for row in rows]
    loss = per_token(new, flat("old"), flat("ref"), torch.tensor(np.repeat(a, lengths))).mean()
    loss.backward()
    w, at = [], 0
    for n in lengths:
        w.append(new.grad[at : at + n].tolist())
        at += n
    return {"from": "formula", "loss": loss.item(), "w": w}


def dppo(drift):
    def loss(new, old, ref, a):
        moved = new.exp() - old.exp()
        keep = torch.where(a > 0, moved <= 0.2, moved >= -0.2)
        ratio = (new - old).exp().clamp(max=20)
        live = (a != 0).double()
        return -(keep * ratio * a).detach() * new + drift * live * (new - old) ** 2

    return loss


def dispo(bounds):
    def loss(new, old, ref, a):
        low = torch.where(a >= 0, bounds[0], bounds[2])
        high = torch.where(a >= 0, bounds[1], bounds[3])
        return -((new - old).exp().clamp(1 - low, 1 + high) * a).detach() * new

    return loss


def opd(drift):
    def loss(new, old, ref, a):
        keep = (new.exp() - old.exp() >= -0.2).double().detach()
        return -keep * (ref - new).detach() * (new - old).exp() + drift * (new - old) ** 2

    return loss


def m2po(budget):
    def loss(new, old, ref, a):
        d = (new - old).detach()
        keep = torch.ones_like(d)
        rest = [j for j in range(len(d)) if (a[j] * d[j]).item() > 0]
        while rest and np.mean([d[j].item() ** 2 for j in rest]) > budget:  # Algorithm 1, one token at a time
            worst = max(rest, key=lambda j: abs(d[j].item()))
            keep[worst] = 0
            rest.remove(worst)
        return -keep * (new - old).exp() * a

    return loss


def dispersed(low, high):
    """PPO's surrogate with a mean over tokens."""
    def loss(new, old, ref, a):
        r = (new - old).exp()
        return -torch.minimum(r * a, r.clamp(1 - low, 1 + high) * a)

    return loss


def kl_cov(share, beta):
    def loss(new, old, ref, a):
        covariance = ((a - a.mean()) * (new - new.mean())).detach()
        chosen = torch.zeros_like(a)
        chosen[torch.topk(covariance, max(1, int(len(a) * share))).indices] = 1
        return dispersed(0.2, 0.2)(new, old, ref, a) + chosen * beta * (new - old).abs()

    return loss


def methods(rows, rules):
    a, keys = rules["standardized"], {}
    flat = lambda name, f, rule="standardized", **s: {"objective": name, "settings": s, **formula(rows, rules[rule], f)}
    ours = lambda name, **s: {"objective": name, "settings": s}
    keys["cispo"] = ours("cispo") | trl(rows, a, loss_type="cispo", epsilon_high=5.0)
    keys["cispo, cap 1.5, KL"] = ours("cispo", cap=1.5, kl_beta=0.05) | trl(rows, a, loss_type="cispo", epsilon_high=1.5, beta=0.05)
    keys["sapo"] = ours("sapo") | trl(rows, a, loss_type="sapo")
    keys["luspo"] = ours("luspo") | trl(rows, a, loss_type="luspo", importance_sampling_level="sequence", epsilon_low=2e-3, epsilon_high=2.5e-3)
    keys["luspo, wide"] = ours("luspo", clip_low=0.5, clip_high=0.5) | trl(
        rows, a, loss_type="luspo", importance_sampling_level="sequence", epsilon_low=0.5, epsilon_high=0.5)
    keys["vespo"] = ours("vespo") | trl(rows, a, loss_type="vespo")
    keys["rloo"] = ours("rloo") | trl(rows, rules["rloo"], RLOOTrainer)
    keys["rloo, wide"] = ours("rloo", clip_low=0.9, clip_high=5.0) | trl(rows, rules["rloo"], RLOOTrainer, epsilon_low=0.9, epsilon_high=5.0)
    # Masks: TRL leaves masked tokens out of the loss, too, so that only weights compare.
    # Its quantile is in float32: no share may make it fall on a token.
    for name, mine, theirs in [
        ("mask_off_policy", {"mask_off_policy": 0.05}, {"off_policy_mask_threshold": 0.05, "sampled": True}),
        ("top_entropy", {"top_entropy": 0.2}, {"top_entropy_quantile": 0.2}),
        ("importance_cap", {"importance_cap": 1.2}, {"cap": 1.2, "sampled": True}),
        ("all masks", {"mask_off_policy": 0.05, "top_entropy": 0.57, "importance_cap": 1.2},
         {"off_policy_mask_threshold": 0.05, "top_entropy_quantile": 0.57, "cap": 1.2, "sampled": True}),
    ]:
        for kl in (0.0, 0.05):
            key = f"grpo, {name}, KL {kl}"
            keys[key] = ours("grpo", kl_beta=kl, **mine) | trl(rows, a, beta=kl, **theirs) | {"loss": None}
        keys[f"sapo, {name}"] = ours("sapo", **mine) | trl(rows, a, loss_type="sapo", **theirs) | {"loss": None}
    keys["dppo"] = flat("dppo", dppo(0))
    keys["dppo, drift"] = flat("dppo", dppo(1e-3), drift=1e-3)
    keys["dispo"] = flat("dispo", dispo((0.2, 10, 1, 100)))
    narrow = dict(low_positive=0.1, high_positive=0.2, low_negative=0.3, high_negative=0.05)
    keys["dispo, narrow"] = flat("dispo", dispo(list(narrow.values())), **narrow)
    keys["opd"] = flat("opd", opd(1e-3))
    keys["opd, drift"] = flat("opd", opd(0.5), drift=0.5)
    keys["m2po"] = flat("m2po", m2po(0.04))
    keys["m2po, wide"] = flat("m2po", m2po(0.5), m2=0.5)
    keys["reinforcepp"] = flat("reinforcepp", dispersed(0.2, 0.2), "reinforce++")
    keys["reinforcepp, baseline"] = flat("reinforcepp", dispersed(0.2, 0.2), "reinforce++-baseline", advantage="reinforce++-baseline")
    keys["opo"] = flat("opo", dispersed(0.2, 0.2), "opo")
    keys["maxrl"] = flat("maxrl", dispersed(0.2, 0.2), "maxrl")
    keys["remax"] = flat("remax", dispersed(0.2, 0.2), "remax")
    keys["gdpo"] = ours("gdpo") | trl(rows, rules["gdpo"])
    keys["kl_cov"] = flat("grpo", kl_cov(0.1, 0.5), aggregate="token-mean", kl_cov=0.1, kl_cov_beta=0.5)
    return keys


def main(out):
    batches = []
    for seed, groups, scale in [(1, [[9, 14, 6, 11], [5, 8, 12, 1]], 0.15), (2, [[20, 7, 13], [4, 31, 2]], 0.6)]:
        rows, weights = draw(seed, groups, scale)
        rules = advantages(rows, weights, 1e-8)
        batches.append({
            "rows": [{k: v.tolist() if isinstance(v, np.ndarray) else v for k, v in row.items()} for row in rows],
            "weights": weights,
            "advantages": {k: v.tolist() for k, v in rules.items()},
            "methods": methods(rows, rules),
        })
    with open(out, "w") as f:
        json.dump(batches, f, separators=(",", ":"))
        f.write("\n")


main(sys.argv[1])
