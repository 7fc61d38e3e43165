#!/usr/bin/env python3
"""Measures gradients against the exponent p on frozen batches (runs/results/bench.md).

    python3 bench/frozen.py --onering ./onering --out DIR [--part I/N]     one JSON line per batch
    python3 bench/frozen.py --table DIR                                    the tables

A state is a policy theta_old, the 256 responses that it sampled, and the policy theta after
some passes over them on the task runs/bench/exponent.toml. For every response the gradient
of PMPO's ratio is computed in PyTorch, from the true parameters of the model, at each p of
a grid, with and without the log clip, and at the p of the published rule and of the
attainable target. Two batches per state: the responses that theta was trained on, and as
many that theta_old sampled to other problems.

The yardstick is the policy gradient T at theta itself, from 4,096 fresh responses of theta
to other problems. Of a batch gradient g it reports

    cos    <g, T> / (|g| |T|), with |T|^2 from two halves of the fresh responses, so that
           noise in T lowers no cos: how much a step of given length improves the reward
    snr    |E g|^2 / E|g - E g|^2 from the 32 groups, without the bias of |mean|^2

An exponent that is chosen by looking (the best one for the batch, for each sign of the
advantage, for each response) is chosen with one half of T and judged with the other.
Needs torch and numpy, and one thread: run several parts at a time.
"""
import argparse, collections, itertools, json, math, os, subprocess, sys

GRID = [0, 0.5, 1, 2]
STATES = [("first", 4, 2.5e-4), ("first", 2, 2.5e-4), ("later", 4, 2.5e-4), ("first", 4, 5e-4)]  # stage, passes, learning rate


def train(onering, out, model, **sets):
    """One `onering train` on runs/bench/exponent.toml, kept if it is there."""
    if not os.path.exists(f"{out}/done"):
        args = [onering, "train", "--config", "runs/bench/exponent.toml", "--quiet", "--report=false"]
        sets = {"output.dir": json.dumps(out), "model.path": json.dumps(model), "eval.suites": "[]", "train.eval_every": 0} | sets
        subprocess.run(args + [f"--set={k}={v}" for k, v in sets.items()], check=True, stdout=subprocess.DEVNULL)
        open(f"{out}/done", "w")
    last = sorted(os.listdir(f"{out}/checkpoints"))[-1]
    return f"{out}/checkpoints/{last}", f"{out}/rollouts/round-00001.jsonl"


def sample(onering, out, model, prompts, each, seed):
    """Responses of a model: a round that changes nothing."""
    sets = {"rollout.prompts_per_round": prompts, "rollout.samples_per_prompt": each, "train.rounds": 1, "train.epochs": 1}
    sets |= {"train.batch_size": prompts * each, "optimizer.learning_rate": 1e-30, "train.seed": seed, "data.seed": seed}
    return train(onering, out, model, **sets)[1]


def read(path):
    """The responses of a round, group by group, with centered advantages."""
    rows = [json.loads(l) for l in open(path)]
    groups = collections.defaultdict(list)
    for r in rows:
        groups[r["problem"]].append(r)
    for g in groups.values():
        mean = sum(r["reward"] for r in g) / len(g)
        for r in g:
            r["A"] = r["reward"] - mean
    return [r for g in groups.values() for r in g], len(groups)


class Model:
    """The embedded model (Qwen2) in plain PyTorch."""

    def __init__(self, path):
        import torch
        from safetensors.torch import load_file

        self.c = json.load(open(f"{path}/config.json"))
        self.w = {k: v.float().to(torch.get_default_device()) for k, v in load_file(f"{path}/model.safetensors").items() if k != "lm_head.weight"}

    def logp(self, w, ids, prompt=8):
        """Log-probs [T-prompt] of the tokens after the prompt, for one row of ids [T]."""
        import torch
        from torch.nn.functional import silu

        c, n = self.c, ids.shape[0] - 1
        heads, kv = c["num_attention_heads"], c["num_key_value_heads"]
        size = c["hidden_size"] // heads
        norm = lambda x, g: x * torch.rsqrt((x * x).mean(-1, keepdim=True) + c["rms_norm_eps"]) * g
        angle = torch.arange(n)[:, None] * c["rope_theta"] ** (-torch.arange(0, size, 2) / size)
        cos, sin = torch.cat([angle.cos()] * 2, -1), torch.cat([angle.sin()] * 2, -1)
        rope = lambda x: x * cos + torch.cat([-x[..., size // 2 :], x[..., : size // 2]], -1) * sin
        causal = torch.full((n, n), -math.inf).triu(1)
        x = w["model.embed_tokens.weight"][ids[:-1]]
        for l in range(c["num_hidden_layers"]):
            p = lambda name: w[f"model.layers.{l}.{name}"]
            h = norm(x, p("input_layernorm.weight"))
            q, k, v = (h @ p(f"self_attn.{y}_proj.weight").T + p(f"self_attn.{y}_proj.bias") for y in "qkv")
            split = lambda y, m: y.reshape(n, m, size).transpose(0, 1)
            q, k, v = rope(split(q, heads)), rope(split(k, kv)), split(v, kv)
            k, v = k.repeat_interleave(heads // kv, 0), v.repeat_interleave(heads // kv, 0)
            a = torch.softmax(q @ k.transpose(1, 2) / math.sqrt(size) + causal, -1) @ v
            x = x + a.transpose(0, 1).reshape(n, -1) @ p("self_attn.o_proj.weight").T
            h = norm(x, p("post_attention_layernorm.weight"))
            x = x + (silu(h @ p("mlp.gate_proj.weight").T) * (h @ p("mlp.up_proj.weight").T)) @ p("mlp.down_proj.weight").T
        logits = norm(x, w["model.norm.weight"]) @ w["model.embed_tokens.weight"].T
        all = torch.log_softmax(logits[prompt - 1 :], -1)
        return all.gather(1, ids[prompt:, None])[:, 0]


def tensors(rows):
    """Padded ids [B,T], log-probs of the sampler and a mask [B,T-prompt]."""
    import torch

    prompt = len(rows[0]["prompt_ids"])
    assert all(len(r["prompt_ids"]) == prompt for r in rows)
    longest = max(len(r["ids"]) for r in rows)
    ids = torch.zeros(len(rows), prompt + longest, dtype=torch.long)
    old, mask = torch.zeros(len(rows), longest), torch.zeros(len(rows), longest)
    for i, r in enumerate(rows):
        n = len(r["ids"])
        ids[i, : prompt + n] = torch.tensor(r["prompt_ids"] + r["ids"])
        old[i, :n], mask[i, :n] = torch.tensor(r["logp"]), 1
    return ids, old, mask, prompt


def policy_gradient(model, path):
    """The halves of T: the sums of A grad log-prob over half of the problems each, per problem."""
    import torch

    rows, groups = read(path)
    each = len(rows) // groups
    halves = []
    for rows in (rows[: groups // 2 * each], rows[groups // 2 * each :]):
        w = {k: v.clone().requires_grad_() for k, v in model.w.items()}
        for at in range(0, len(rows), 64):
            part = rows[at : at + 64]
            ids, _, mask, prompt = tensors(part)
            logp = torch.vmap(lambda x: model.logp(w, x, prompt))(ids)
            ((logp * mask).sum(1) * torch.tensor([r["A"] for r in part])).sum().backward()
        halves.append(torch.cat([w[k].grad.flatten() for k in sorted(w)]).detach() / (len(rows) / each * (each - 1)))
    return halves


def weights(d, A, clip):
    """The rows of a matrix of weights dr/dlogp for one response, by name, and the rules' p."""
    import numpy as np

    z = d if clip is None else (np.minimum(d, clip) if A >= 0 else np.maximum(d, -clip))
    open_ = z == d
    n = len(d)

    def mean(p):
        if p == 0:
            return np.exp(z.mean()) * np.full(n, 1 / n) * open_
        e = p * z - (p * z).max()
        log = (p * z).max() + math.log(np.exp(e).mean())
        return np.exp(log / p) * np.exp(e) / np.exp(e).sum() * open_

    def ess(p):
        e = np.exp(p * z - (p * z).max())
        return e.sum() ** 2 / (e * e).sum() / n

    def solve(target):
        low, high = 0.01, 0.99
        if ess(high) >= target:
            return high
        if ess(low) <= target:
            return low
        for _ in range(30):
            middle = (low + high) / 2
            low, high = (middle, high) if ess(middle) >= target else (low, middle)
        return (low + high) / 2

    f = (abs(d) > 0.1).mean()
    rule = {"paper": solve(1 / n + f * (1 - 1 / n)), "attainable": solve(ess(0.99) + f * (ess(0.01) - ess(0.99)))}
    rows = {f"p={p}": mean(p) for p in GRID} | {k: mean(p) for k, p in rule.items()}
    if clip is None:
        rows["no ratio"] = np.full(n, 1 / n)
        rows["sequence ratio"] = np.full(n, math.exp(min(d.sum(), 20)))
        rows["two-sided"] = np.exp(np.minimum(d, 1)) / n * (abs(d) <= 0.4)
        k, l = (2, 3) if A >= 0 else (3, 2)
        rows["vespo"] = np.full(n, math.exp(l + k * d.sum() - l * math.exp(min(d.sum(), 20))))
    return rows, rule


def batch(model, path, only=None):
    """Gradients of the responses of a batch: name to [N,D], and the batch's figures. only
    are the names to compute, all of them by default."""
    import numpy as np, torch

    rows, groups = read(path)
    ids, old, mask, prompt = tensors(rows)
    logp = torch.vmap(lambda x: model.logp(model.w, x, prompt))(ids)
    delta = ((logp - old) * mask).cpu().numpy()
    lengths = mask.sum(1).int().cpu().numpy()
    names, W, rules, f = None, [], [], []
    for i, r in enumerate(rows):
        n = lengths[i]
        d = delta[i, :n].astype(float)
        row = {}
        for clip in (None, 0.4):
            one, rule = weights(d, r["A"], clip)
            row |= {f"{k}{'' if clip is None else ' clip'}": v for k, v in one.items()}
            rules.append(rule | {"clip": clip is not None})
        row = {k: v for k, v in row.items() if only is None or k in only}
        names = names or list(row)
        f.append((abs(d) > 0.1).mean())
        m = np.zeros((len(names), mask.shape[1]), np.float32)
        for k, v in enumerate(row.values()):
            m[k, :n] = v * r["A"]
        W.append(m)
    W = torch.tensor(np.stack(W))
    keys = sorted(model.w)

    def one(x, cotangents):
        _, back = torch.func.vjp(lambda w: model.logp(w, x, prompt), model.w)
        g = torch.vmap(lambda c: back(c)[0])(cotangents)
        return torch.cat([g[k].flatten(1) for k in keys], 1)

    live = [i for i, r in enumerate(rows) if r["A"] != 0]
    G = torch.zeros(len(names), len(rows), sum(v.numel() for v in model.w.values()))
    for at in range(0, len(live), 4):
        part = live[at : at + 4]
        G[:, part] = torch.vmap(one)(ids[part], W[part]).transpose(0, 1)
    all = np.concatenate([delta[i, : lengths[i]] for i in range(len(rows))])
    mean = lambda k, c: float(np.mean([x[k] for x in rules if x["clip"] == c]))
    figures = {"std": float(all.std()), "f": float(np.mean(f)), "reward": float(np.mean([r["reward"] for r in rows]))}
    figures |= {"p paper": mean("paper", False), "p paper clip": mean("paper", True), "p attainable": mean("attainable", False)}
    return dict(zip(names, G)), [r["A"] for r in rows], groups, figures


def best_each(G, T, sweeps=4):
    """The exponent of each response that maximizes <g, T>/|g|, by coordinate ascent from
    p = 1. G is [K,N,D]. Returns the sum g."""
    import torch

    s = G @ T  # [K,N]
    chosen = [GRID.index(1)] * G.shape[1]
    g, dot = G[chosen[0]].sum(0), float(s[chosen[0]].sum())
    for _ in range(sweeps):
        moved = False
        for i in range(G.shape[1]):
            others = g - G[chosen[i], i]
            norms = (others @ others + 2 * (G[:, i] @ others) + (G[:, i] ** 2).sum(1)).sqrt()
            score = (dot - s[chosen[i], i] + s[:, i]) / norms
            k = int(score.argmax())
            if k != chosen[i]:
                dot += float(s[k, i] - s[chosen[i], i])
                g, chosen[i], moved = others + G[k, i], k, True
        if not moved:
            break
    return g


def measure(G, A, groups, T):
    """All figures of one batch."""
    import torch

    truth = float(T[0] @ T[1])
    length = math.sqrt(max(truth, 1e-12))
    cos = lambda g, t: float(g @ t / (g.norm() * length))
    both = (T[0] + T[1]) / 2
    out = {"T2": truth, "rules": {}}
    sign = torch.tensor(A) > 0
    for name, g in G.items():
        total = g.sum(0)
        parts = g.reshape(groups, -1, g.shape[1]).sum(1)
        noise = float(((parts - total / groups) ** 2).sum()) * groups / (groups - 1)  # of the sum
        out["rules"][name] = {"cos": cos(total, both), "snr": (float(total @ total) - noise) / noise, "norm": float(total.norm())}
    for clip in ("", " clip") if len(G) > 1 else ():
        sums = {p: G[f"p={p}{clip}"].sum(0) for p in GRID}
        plus = {p: G[f"p={p}{clip}"][sign].sum(0) for p in GRID}
        minus = {p: G[f"p={p}{clip}"][~sign].sum(0) for p in GRID}
        single, signs, each = [], [], []
        stack = torch.stack([G[f"p={p}{clip}"] for p in GRID])
        for a, b in ((0, 1), (1, 0)):  # choose with one half, judge with the other
            p = max(GRID, key=lambda p: cos(sums[p], T[a]))
            single.append((p, cos(sums[p], T[b])))
            pair = max(itertools.product(GRID, GRID), key=lambda x: cos(plus[x[0]] + minus[x[1]], T[a]))
            signs.append((pair, cos(plus[pair[0]] + minus[pair[1]], T[b])))
            each.append(cos(best_each(stack, T[a]), T[b]))
        average = lambda l: sum(l) / 2
        out[f"best{clip}"] = {"p": [p for p, _ in single], "cos": average([c for _, c in single])}
        out[f"best by sign{clip}"] = {"p": [p for p, _ in signs], "cos": average([c for _, c in signs])}
        out[f"best by response{clip}"] = {"cos": average(each)}
        out[f"signs{clip}"] = {f"{p},{q}": cos(plus[p] + minus[q], both) for p in GRID for q in GRID}
    return out


def run(o):
    import torch

    torch.set_num_threads(1)
    torch.set_default_device(o.device)
    part, parts = map(int, o.part.split("/"))
    jobs = [(s, seed) for seed in range(1, o.seeds + 1) for s in STATES]
    for (stage, epochs, rate), seed in jobs[part - 1 :: parts]:
        name = f"{stage}-{epochs}-{rate:g}-{seed}"
        path = f"{o.out}/{name}"
        if os.path.exists(f"{path}.jsonl"):
            continue
        begin = "runs/out/bench/scratch"
        seeds = {"train.seed": seed, "data.seed": seed, "train.save_every": 0}
        if stage == "later":  # two rounds of learning with the clip
            begin, _ = train(o.onering, f"{path}/begin", begin, **seeds | {"train.rounds": 3, "train.epochs": 2, "optimizer.learning_rate": 2.5e-4})
        seeds = {k: v if k == "train.save_every" else 50 + v for k, v in seeds.items()}
        theta, trained = train(o.onering, f"{path}/round", begin, **seeds | {"train.rounds": 1, "train.epochs": epochs, "optimizer.learning_rate": rate, "objective.clip_mode": '"none"'})
        fresh = sample(o.onering, f"{path}/fresh", theta, 512, 8, 1000 + seed)
        other = sample(o.onering, f"{path}/other", begin, 32, 8, 2000 + seed)
        now = sample(o.onering, f"{path}/now", theta, 32, 8, 3000 + seed)
        model = Model(theta)
        T = policy_gradient(model, fresh)
        lines = []
        for kind, rollouts in (("trained", trained), ("other", other), ("on policy", now)):
            G, A, groups, figures = batch(model, rollouts, ["p=1"] if kind == "on policy" else None)
            lines.append({"stage": stage, "epochs": epochs, "rate": rate, "seed": seed, "batch": kind} | figures | measure(G, A, groups, T))
            del G
        with open(f"{path}.jsonl", "w") as f:
            f.writelines(json.dumps(l) + "\n" for l in lines)
        print(name, flush=True)


def table(folder):
    """Prints the means over states, with standard errors, as Markdown."""
    import glob, statistics

    rows = [json.loads(l) for f in sorted(glob.glob(f"{folder}/*.jsonl")) for l in open(f)]

    def cell(values):
        error = statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else math.nan
        return f"{statistics.mean(values):.2f} ± {error:.2f}"

    kinds = [(kind, clip) for kind in ("other", "trained") for clip in ("", " clip")]
    heads = [f"{kind}{', clip' if clip else ''}: {what}" for kind, clip in kinds for what in ("cos", "snr")]
    print("| | " + " | ".join(heads) + " |\n|---" + "|--:" * len(heads) + "|")
    rules = [k for k in rows[0]["rules"] if not k.endswith(" clip")]
    for name in rules + ["best", "best by sign", "best by response"]:
        cells = []
        for kind, clip in kinds:
            batches = [r for r in rows if r["batch"] == kind]
            if name + clip in batches[0]["rules"]:
                figures = [r["rules"][name + clip] for r in batches]
                cells += [cell([x["cos"] for x in figures]), f"{statistics.median(x['snr'] for x in figures):.1f}"]
            elif name + clip in batches[0]:
                cells += [cell([r[name + clip]["cos"] for r in batches]), ""]
            else:
                cells += ["", ""]
        print(f"| {name} | " + " | ".join(cells) + " |")
    now = [r["rules"]["p=1"] for r in rows if r["batch"] == "on policy"]
    print(f"\non policy: cos {cell([x['cos'] for x in now])}, snr {statistics.median(x['snr'] for x in now):.1f}; {len(now)} states")
    for clip in ("", " clip"):
        print(f"\np for A > 0, p for A < 0{clip}, other | trained:")
        for pair in rows[0][f"signs{clip}"]:
            print(pair, " | ".join(cell([r[f"signs{clip}"][pair] for r in rows if r["batch"] == kind]) for kind in ("other", "trained")))


def check(o):
    """Compares the log-probs of this file's model with those of the sampler."""
    import torch

    path = o.check
    model = Model("runs/out/bench/scratch")
    rows, _ = read(path)
    ids, old, mask, prompt = tensors(rows[:32])
    logp = torch.vmap(lambda x: model.logp(model.w, x, prompt))(ids)
    print("largest difference of the log-probs:", float(((logp - old) * mask).abs().max()))


if __name__ == "__main__":
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("--onering")
    a.add_argument("--out")
    a.add_argument("--part", default="1/1")
    a.add_argument("--device", default="cpu")
    a.add_argument("--seeds", type=int, default=3)
    a.add_argument("--table")
    a.add_argument("--check")
    o = a.parse_args()
    if o.check:
        check(o)
    elif o.table:
        table(o.table)
    else:
        os.makedirs(o.out, exist_ok=True)
        run(o)
