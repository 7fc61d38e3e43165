#!/usr/bin/env python3
"""Trains a model in Python with the graphs that `onering export` writes.

    pip install numpy onnxruntime
    onering export --model MODEL --out GRAPHS
    python3 bench/drive.py --graphs GRAPHS --model MODEL --rounds 10 problems.jsonl

Lines of problems.jsonl are {"prompt_ids", "answer_ids"}: the reward of a response is the
share of its tokens that are the answer's. Each round samples groups of responses, scores
them, and takes optimizer steps of GRPO with AdamW. docs/models.md describes the graphs.
--adapter DIR trains a LoRA adapter (PEFT's folder) with graphs exported for it. --trace
DIR writes what every step saw and made, with which `onering generate`, `score`,
`weights` and `step` can be compared. All is float32, on the CPU.
"""
import argparse, glob, json, os
import numpy as np
import onnxruntime as ort

LOWEST = np.finfo(np.float32).min
ELEMENTS = {"F32": np.float32, "I64": np.int64, "I32": np.int32}


def read_safetensors(folder):
    """Returns the tensors of a folder as float32."""
    tensors = {}
    for path in glob.glob(os.path.join(folder, "*.safetensors")):
        raw = open(path, "rb").read()
        data = 8 + int.from_bytes(raw[:8], "little")
        for name, t in json.loads(raw[8:data]).items():
            if name != "__metadata__":
                x = np.frombuffer(raw[data + t["data_offsets"][0]:data + t["data_offsets"][1]], {"F32": "f4", "F16": "f2", "BF16": "u2"}[t["dtype"]])
                x = (x.astype("u4") << 16).view("f4") if t["dtype"] == "BF16" else x
                tensors[name] = x.astype("f4").reshape(t["shape"])
    return tensors


def write_safetensors(path, tensors):
    header, at = {}, 0
    for name, x in tensors.items():
        header[name] = {"dtype": "F32", "shape": x.shape, "data_offsets": [at, at + x.nbytes]}
        at += x.nbytes
    text = json.dumps(header).encode()
    with open(path, "wb") as f:
        f.write(len(text).to_bytes(8, "little") + text)
        for x in tensors.values():
            f.write(x.tobytes())


class Arena:
    """Tensors one behind the other in one array: fused weights and their parts share memory."""

    def __init__(self, weights, prefix="", files=None):
        self.flat = np.zeros(sum(int(np.prod(w["shape"])) for w in weights), np.float32)
        self.parts, self.tensors, at = {}, {}, 0
        for w in weights:
            self.tensors[w["name"].removeprefix(prefix)] = self.flat[at:at + int(np.prod(w["shape"]))].reshape(w["shape"])
            for p in w["parts"]:
                x = self.flat[at:at + int(np.prod(p["shape"]))].reshape(p["shape"])
                self.tensors[p["name"].removeprefix(prefix)] = x
                at += x.size
            for t in [w] if w.get("whole") else w["parts"]:  # the tensors of the file
                self.parts[t["name"]] = x = self.tensors[t["name"].removeprefix(prefix)]
                if files:
                    x[:] = files[t["name"]]


def of_kind(k):
    """Returns what the names of ports and graphs for a kind of layers end with."""
    return f".kind{k}" if k else ""


class Model:
    def __init__(self, graphs, model, adapter=None):
        self.dir, self.manifest = graphs, json.load(open(os.path.join(graphs, "manifest.json")))
        m = self.manifest
        if m["dtype"] != "F32" or m["device"] != "cpu" or ("adapter" in m) != bool(adapter):
            raise SystemExit("drive.py: want graphs of float32 for the cpu, exported with --adapter if and only if there is one here")
        self.graphs = {g["file"].removesuffix(".onnx"): g for g in m["graphs"]}
        self.shape, self.sessions = m["shape"], {}
        self.weights = Arena(m["weights"], files=read_safetensors(model))
        self.tensors, self.trained = dict(self.weights.tensors), self.weights
        if adapter:
            a = m["adapter"]
            self.trained = Arena(a["weights"], a["prefix"], read_safetensors(adapter))
            self.tensors.update(self.trained.tensors)
        made = (a["weights"], a["prefix"]) if adapter else (m["weights"],)
        self.grads, self.moments, self.updates = Arena(*made), (np.zeros_like(self.trained.flat), np.zeros_like(self.trained.flat)), 0

    def run(self, file, layer=None, **fed):
        """Runs a graph. Weights, gradients and caches are bound by their roles, and outputs
        onto inputs where the manifest allows it. Returns the other outputs by name."""
        g = self.graphs[file]
        if file not in self.sessions:
            options = ort.SessionOptions()
            for key, value in g.get("options", {}).items():
                options.add_session_config_entry(key, value)
            self.sessions[file] = ort.InferenceSession(os.path.join(self.dir, g["file"]), options, providers=["CPUExecutionProvider"])
        binding = self.sessions[file].io_binding()
        prefix = "" if layer is None else self.manifest["layer_prefix"].replace("0", str(layer))
        bound = {}
        for p in g["inputs"]:
            role, name = p.get("role"), p["name"]
            x = self.tensors[prefix + name] if role == "weight" else self.grads.tensors[prefix + p["of"]] if role == "gradient" else fed[name]
            bound[name] = x = np.asarray(x, ELEMENTS[p["dtype"]], order="C")
            binding.bind_input(name, "cpu", 0, x.dtype, x.shape, x.ctypes.data)
        for p in g["outputs"]:
            onto = bound.get(g.get("alias", {}).get(p["name"]))
            if onto is None:
                binding.bind_output(p["name"])
            else:
                binding.bind_output(p["name"], "cpu", 0, onto.dtype, onto.shape, onto.ctypes.data)
        self.sessions[file].run_with_iobinding(binding)
        names = [p["name"] for p in g["outputs"]]
        return {n: o.numpy() for n, o in zip(names, binding.get_outputs()) if n not in g.get("alias", {})}

    def kinds(self):
        return self.shape.get("layer_kinds", [dict(rope_frequencies=self.shape["rope_frequencies"], rope_scale=1, window=0, program=0)])

    def angles(self, n):
        """Returns the angles of every kind of layers by the names of their ports."""
        fed = {}
        for k, kind in enumerate(self.kinds()):
            a = (np.arange(n, dtype=np.float32)[:, None] * np.array(kind["rope_frequencies"], np.float32)).astype(np.float64)
            fed["cos" + of_kind(k)], fed["sin" + of_kind(k)] = np.cos(a) * kind["rope_scale"], np.sin(a) * kind["rope_scale"]
        return fed

    def window(self):
        return max(k["window"] for k in self.kinds())

    # Rollout.

    def sample(self, prompts, uniforms, temperature, stop):
        """Samples a response for each row of uniforms, which belong to the prompts in equal
        groups. Returns ids and log-probs."""
        s, each = self.shape, len(uniforms) // len(prompts)
        T, B = max(map(len, prompts)), len(uniforms)
        S, G = T + uniforms.shape[1], s["num_key_value_heads"]
        lengths = np.array([len(p) for p in prompts])
        cache = {p["name"]: np.zeros((len(prompts), G, S, s["cache_width"]), np.float32)
                 for p in self.graphs["prefill"]["inputs"] if p.get("role") in ("keys", "values")}
        taps = next((int(p["shape"][1]) for p in self.graphs["prefill"]["inputs"] if p["name"] == "window"), 0)
        ids = np.array([p + [0] * (T - len(p)) for p in prompts])
        out = self.run("prefill", ids=ids, seqlens=lengths - 1, total=T, last=np.arange(len(prompts)) * T + lengths - 1,
                       pos=np.tile(np.arange(T), len(prompts))[:, None], valid=(np.arange(T) < lengths[:, None])[:, :, None],
                       window=lengths[:, None] + np.arange(taps), **self.angles(S), **cache)
        cache.update({k.replace("present", "past"): x for k, x in out.items() if k.startswith("present")})  # states of one size
        hidden = out["hidden"].repeat(each, 0)  # a prompt is computed once
        cache = {k: x.repeat(each, 0) for k, x in cache.items()}
        pos, responses, logps, live = lengths.repeat(each), [[] for _ in range(B)], [[] for _ in range(B)], np.ones(B, bool)
        for step in range(uniforms.shape[1]):
            out = self.run("sample.draw", hidden=hidden, inv_temperature=1 / temperature, uniforms=uniforms[:, step])
            for b in np.flatnonzero(live):
                responses[b].append(int(out["next"][b]))
                logps[b].append(float(out["logp"][b]))
            live &= ~np.isin(out["next"], stop)
            if not live.any() or step + 1 == uniforms.shape[1]:
                break
            hidden = self.run("decode", ids=out["next"][:, None], pos=pos[:, None], seqlens=pos, total=pos.max() + 1, active=np.ones((B, 1)), **self.angles(S), **cache)["hidden"]
            pos = pos + 1
        return responses, logps

    # Scores and gradients of a micro-batch.

    def pack(self, sequences):
        """Lays sequences (prompt, response) out one behind the other, without their last token."""
        x = argparse.Namespace(ids=[], pos=[], tokens=[], places=[], targets=[])
        T = max(len(p) + len(r) for p, r in sequences) - 1
        rows, valid = np.zeros((len(sequences), T), np.int64), np.zeros((len(sequences), T, 1), np.float32)
        for b, (prompt, response) in enumerate(sequences):
            start, n = len(x.ids), len(prompt) + len(response) - 1
            rows[b, :n], valid[b, :n] = start + np.arange(n), 1
            x.ids += (prompt + response)[:-1]
            x.pos += range(n)
            x.tokens += range(b * T, b * T + n)
            x.places += range(start + len(prompt) - 1, start + n)  # what predicts a response token
            x.targets += response
        x.fed = dict(pos=np.array(x.pos)[:, None], mask=np.triu(np.full((T, T), LOWEST, np.float32), 1), rows=rows, valid=valid, tokens=x.tokens,
                     copies=np.array(x.tokens[:1])[:, None], copied=np.ones((1, 1, 1), np.float32))
        x.fed["band"] = np.where(np.tri(T, k=-self.window(), dtype=bool), LOWEST, x.fed["mask"])
        x.turn = self.angles(T)
        return x

    def attention(self, x, i):
        turned, k = self.shape.get("no_rope_layers"), self.shape.get("kind_of_layers", [0] * (i + 1))[i]
        angles = {name: x.turn[name + of_kind(k)] for name in ("cos", "sin")}
        if turned and not turned[i]:
            angles = {name: np.full_like(a, name == "cos") for name, a in angles.items()}
        return {**x.fed, **angles}

    def layer(self, way, i, **fed):
        """Runs a layer's graph, of which kinds of layers may have one of their own."""
        kind = self.kinds()[self.shape.get("kind_of_layers", [0] * (i + 1))[i]]
        return self.run(f"layer.{way}{of_kind(kind['program'])}.stash2", i, **fed)

    def slices(self, rows=8192):
        return [slice(v, min(v + rows, self.shape["vocab_size"])) for v in range(0, self.shape["vocab_size"], rows)]

    def forward(self, sequences, temperature):
        """Returns the packed micro-batch with the log-probs and entropies of its response tokens."""
        x, head = self.pack(sequences), self.tensors[self.shape["head"]]
        E = self.tensors[self.shape["embedding"]]
        stream, x.kept = self.run("rows.embed", X=E, ids=x.ids)["y"] if "rows.embed" in self.graphs else E[x.ids], []
        for i in range(self.shape["num_hidden_layers"]):
            out = self.layer("forward", i, x=stream, **self.attention(x, i))
            x.kept.append({**out, "x": stream})
            stream = x.kept[-1].pop("y")
        x.norm = dict(x=stream[x.places], inv_temperature=1 / temperature)
        x.h = self.run("norm.forward", **x.norm)["h"]
        x.z, u = np.full((len(x.places), 1), -1e30, np.float32), np.zeros((len(x.places), 1), np.float32)
        for v in self.slices():
            out = self.run("head.forward", h=x.h, E=head[v], z=x.z, u=u, inv_temperature=1 / temperature)
            x.z, u = out["z_out"], out["u_out"]
        x.logp = (self.run("head.target", h=x.h, E=head, y=x.targets, inv_temperature=1 / temperature)["logit"].reshape(-1, 1) - x.z)[:, 0].astype(float)
        x.entropy = (x.z - u)[:, 0].astype(float)
        return x

    def backward(self, x, w):
        """Adds the gradients of sum_t w_t logp_t to the running ones."""
        head, w, y = self.tensors[self.shape["head"]], np.array(w, np.float32), np.array(x.targets)
        dE = self.grads.tensors.get(self.shape["head"])  # none with an adapter
        dh = np.zeros_like(x.h)
        for v in self.slices():
            here = (v.start <= y) & (y < v.stop)
            self.run("head.backward", h=x.h, E=head[v], z=x.z, inv_temperature=x.norm["inv_temperature"], w=w[:, None], dh=dh, dE=None if dE is None else dE[v],
                     at=np.stack([np.arange(len(y)), np.where(here, y - v.start, 0)], 1), dlogit=np.where(here, w, 0))
        dy = np.zeros((len(x.ids), self.shape["hidden_size"]), np.float32)
        dy[x.places] = self.run("norm.backward", dh=dh, **x.norm)["dx"]
        for i in reversed(range(self.shape["num_hidden_layers"])):
            dy = self.layer("backward", i, dy=dy, **self.attention(x, i), **x.kept[i])["dx"]
        if dE is not None and "rows.learn" in self.graphs:
            self.run("rows.learn", X=self.grads.tensors[self.shape["embedding"]], ids=x.ids, rows=dy)
        elif dE is not None:
            np.add.at(self.grads.tensors[self.shape["embedding"]], x.ids, dy)

    def update(self, lr, max_norm=1.0, beta1=0.9, beta2=0.95, eps=1e-8, decay=0.0):
        """Takes a step of AdamW, clears the gradients and returns their norm."""
        norm = float(np.sqrt(self.run("norm2", g=self.grads.flat)["sum"]))
        self.updates += 1
        self.run("adamw", p=self.trained.flat, g=self.grads.flat, m=self.moments[0], v=self.moments[1],
                 clip=min(1, max_norm / (norm or 1)), beta1=beta1, beta2=beta2, rest1=1 - beta1, rest2=1 - beta2, eps=eps,
                 rate=lr / (1 - beta1**self.updates), root=(1 - beta2**self.updates)**-0.5, keep=1 - lr * decay)
        self.grads.flat[:] = 0
        return norm


def advantages(rewards):
    """Returns each reward less the group's mean, over its standard deviation."""
    a = np.array(rewards, float) - np.mean(rewards)
    return a / (a.std(ddof=1) + 1e-8) if a.any() else a


def token_weights(advantage, logp, old, responses, low=0.2, high=0.2):
    """Returns dL/dlogp of GRPO, -A r / (N n), and 0 where the clip cuts."""
    r = np.exp(logp - np.array(old))
    cut = r > 1 + high if advantage > 0 else r < 1 - low
    return np.where(cut, 0, -advantage * r / (responses * len(old)))


def train(model, problems, o):
    rng = np.random.default_rng(o.seed)
    for number in range(o.rounds):
        chosen = [problems[i] for i in rng.choice(len(problems), o.prompts, replace=len(problems) < o.prompts)]
        uniforms = rng.random((o.prompts * o.samples, o.max_tokens), np.float32)
        responses, sampled = model.sample([p["prompt_ids"] for p in chosen], uniforms, o.temperature, o.stop)
        rollouts = []
        for i, (ids, logp) in enumerate(zip(responses, sampled)):
            p = chosen[i // o.samples]
            rollouts.append(dict(prompt_ids=p["prompt_ids"], response_ids=ids, old_logp=logp, uniforms=uniforms[i].tolist(),
                                 reward=sum(map(int.__eq__, ids, p["answer_ids"])) / max(len(ids), len(p["answer_ids"]))))
        for i in range(0, len(rollouts), o.samples):
            for x, a in zip(rollouts[i:i + o.samples], advantages([x["reward"] for x in rollouts[i:i + o.samples]])):
                x["advantage"] = float(a)
        for _ in range(o.steps):
            for i in range(0, len(rollouts), o.micro):
                micro = rollouts[i:i + o.micro]
                x, at, w = model.forward([(r["prompt_ids"], r["response_ids"]) for r in micro], o.temperature), 0, []
                for r in micro:
                    mine = slice(at, at + len(r["response_ids"]))
                    r["logp"], r["entropy"], at = x.logp[mine].tolist(), x.entropy[mine].tolist(), mine.stop
                    r["weights"] = token_weights(r["advantage"], x.logp[mine], r["old_logp"], len(rollouts)).tolist()
                    w += r["weights"]
                model.backward(x, w)
            step = os.path.join(o.trace or "", f"step-{model.updates + 1}")
            if o.trace:
                os.makedirs(step)
                write_safetensors(step + "/grads.safetensors", model.grads.parts)
                with open(step + "/batch.jsonl", "w") as f:
                    f.writelines(json.dumps(r) + "\n" for r in rollouts)
            norm = model.update(o.lr)
            if o.trace:
                write_safetensors(step + "/trained.safetensors", model.trained.parts)
        print(json.dumps({"round": number + 1, "reward": np.mean([r["reward"] for r in rollouts]), "grad_norm": norm}), flush=True)


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("problems")
    for name in ("graphs", "model"):
        a.add_argument("--" + name, required=True)
    for name in ("adapter", "trace", "out"):
        a.add_argument("--" + name)
    for name, value in (("rounds", 10), ("prompts", 8), ("samples", 8), ("max_tokens", 32), ("micro", 16), ("steps", 2), ("seed", 1),
                        ("temperature", 1.0), ("lr", 3e-4)):
        a.add_argument("--" + name.replace("_", "-"), type=type(value), default=value)
    o = a.parse_args()
    eos = json.load(open(os.path.join(o.model, "config.json"))).get("eos_token_id", [])
    o.stop = eos if isinstance(eos, list) else [eos]
    model = Model(o.graphs, o.model, o.adapter)
    train(model, [json.loads(line) for line in open(o.problems)], o)
    if o.out:
        write_safetensors(o.out, model.trained.parts)


if __name__ == "__main__":
    main()
