#!/usr/bin/env python3
"""Runs exported graphs in Python: log-probs, gradients and a greedy response.

    exported.py GRAPHS MODEL < batch.jsonl

GRAPHS is what `onering export` wrote, MODEL the folder it was exported from,
each line of the batch {"prompt_ids", "response_ids", "weights"}, as for
`onering step`. Checks every graph with the ONNX checker and prints one JSON
object: logp and entropy per line, the gradient of sum_t w_t logp_t by tensor
name as [norm, first elements], and 8 greedy tokens after the first prompt.
Needs onnx, onnxruntime, numpy and safetensors.
"""
import json, os, sys
import numpy as np, onnx, onnxruntime as ort
from safetensors.numpy import load_file

graphs, model = sys.argv[1:3]
manifest = json.load(open(os.path.join(graphs, "manifest.json")))
shape = manifest["shape"]
D, L, K, V = shape["hidden_size"], shape["num_hidden_layers"], shape["head_dim"], shape["vocab_size"]
G, H = shape["num_key_value_heads"], shape["num_attention_heads"]
for g in manifest["graphs"]:
    onnx.checker.check_model(onnx.load(os.path.join(graphs, g["file"])), full_check=True)

tensors = {k: v.astype(np.float32) for k, v in load_file(os.path.join(model, "model.safetensors")).items()}
for w in manifest["weights"]:  # a fused weight is its parts, one below the other
    tensors[w["name"]] = np.concatenate([tensors[p["name"]] for p in w["parts"]])

sessions = {}


def run(file, **values):
    """Runs a graph on the values it has inputs for; returns outputs by name."""
    if file not in sessions:
        sessions[file] = ort.InferenceSession(os.path.join(graphs, file + ".onnx"), providers=["CPUExecutionProvider"])
    s = sessions[file]
    feed = {i.name: values[i.name] for i in s.get_inputs()}
    return dict(zip([o.name for o in s.get_outputs()], s.run(None, feed)))


def layer(i):
    prefix = f"model.layers.{i}."
    return {k[len(prefix):]: v for k, v in tensors.items() if k.startswith(prefix)}


def angles(n):
    freq = (1 / shape["rope_theta"] ** (np.arange(0, K, 2) / K)).astype(np.float32)
    a = np.arange(n, dtype=np.float32)[:, None] * freq
    return np.cos(a).astype(np.float32), np.sin(a).astype(np.float32)


# Pack the sequences: all tokens but the last of each, one row of the attention
# for each sequence.
batch = [json.loads(line) for line in sys.stdin]
ids = [np.array(b["prompt_ids"] + b["response_ids"], np.int64) for b in batch]
lengths = [len(x) - 1 for x in ids]
N, T = sum(lengths), max(lengths)
pos = np.concatenate([np.arange(n) for n in lengths])[:, None]
rows = np.zeros((len(ids), T), np.int64)
valid = np.zeros((len(ids), T, 1), np.float32)
tokens, at, y, w, start = [], [], [], [], 0
for b, (x, n) in enumerate(zip(ids, lengths)):
    rows[b, :n] = start + np.arange(n)
    valid[b, :n] = 1
    tokens += [b * T + t for t in range(n)]
    p = len(batch[b]["prompt_ids"])
    at += [start + t for t in range(p - 1, n)]
    y += list(x[p:])
    w += batch[b]["weights"]
    start += n
cos, sin = angles(T)
mask = np.triu(np.full((T, T), np.finfo(np.float32).min, np.float32), 1)
common = dict(pos=pos, cos=cos, sin=sin, mask=mask, rows=rows, tokens=np.array(tokens), valid=valid)
fed = np.concatenate([x[:-1] for x in ids])
x = [tensors[shape["embedding"]][fed]]
for i in range(L):
    x.append(run("layer.forward.stash0", x=x[i], **common, **layer(i))["y"])

# The head, in two slices of the vocabulary.
one = np.array(1, np.float32)
xr = x[L][at]
norm = {shape["norm"]: tensors[shape["norm"]]}
h = run("norm.forward", x=xr, inv_temperature=one, **norm)["h"]
head = tensors[shape["head"]]
cut = [slice(0, V // 2), slice(V // 2, V)]
z, u = np.full((len(at), 1), -1e30, np.float32), np.zeros((len(at), 1), np.float32)
for c in cut:
    out = run("head.forward", h=h, E=head[c], z=z, u=u)
    z, u = out["z_out"], out["u_out"]
logp = (run("head.target", h=h, E=head, y=np.array(y))["logit"] - z)[:, 0]
entropy = (z - u)[:, 0]

# Backward.
w = np.array(w, np.float32)[:, None]
grads = {k: np.zeros_like(v) for k, v in tensors.items() if "qkv_proj" not in k and "gate_up_proj" not in k}
dh = w * head[y]
np.add.at(grads[shape["head"]], y, w * h)
for c in cut:
    out = run("head.backward", h=h, E=head[c], z=z, w=w, dh=dh, dE=grads[shape["head"]][c],
              v=np.zeros_like(w), entropy=entropy[:, None])
    dh, grads[shape["head"]][c] = out["dh_out"], out["dE_out"]
out = run("norm.backward", x=xr, inv_temperature=one, dh=dh, **norm, **{"grad." + shape["norm"]: grads[shape["norm"]]})
grads[shape["norm"]] = out["grad_out." + shape["norm"]]
dy = np.zeros_like(x[L])
dy[at] = out["dx"]
for i in reversed(range(L)):
    prefix = f"model.layers.{i}."
    running = {"grad." + k[len(prefix):]: v for k, v in grads.items() if k.startswith(prefix)}
    out = run("layer.backward.stash0", x=x[i], dy=dy, **common, **layer(i), **running)
    dy = out.pop("dx")
    for k, v in out.items():
        grads[prefix + k[len("grad_out."):]] = v
np.add.at(grads[shape["embedding"]], fed, dy)

# A greedy response from the sampling graphs.
prompt = batch[0]["prompt_ids"]
S = len(prompt) + 9
caches = {f"past_{kv}.{i}": np.zeros((1, G, S, shape["cache_width"]), np.float32) for i in range(L) for kv in ("key", "value")}
cos, sin = angles(S)


def step(file, ids, **more):
    out = run(file, ids=np.array([ids]), cos=cos, sin=sin, **more, **tensors, **caches)
    caches.update({k.replace("present", "past"): v for k, v in out.items() if k.startswith("present")})
    return int(run("sample.greedy", hidden=out["hidden"], inv_temperature=one, **tensors)["next"][0])


n = len(prompt)
greedy = [step("prefill", prompt, seqlens=np.array([n - 1], np.int32), total=np.array(n, np.int32), last=np.array([n - 1]),
               pos=np.arange(n)[:, None])]
while len(greedy) < 8:
    hidden = np.where(np.arange(S) > n, np.finfo(np.float32).min, 0).astype(np.float32).reshape(1, 1, 1, S)
    greedy.append(step("decode", [greedy[-1]], pos=np.array([[n]]), mask=hidden,
                       at=np.array([[[0, g, n] for g in range(G)]])))
    n += 1

split, n = [], 0
for b in batch:
    m = n + len(b["response_ids"])
    split.append({"logp": logp[n:m].tolist(), "entropy": entropy[n:m].tolist()})
    n = m
json.dump({"lines": split, "greedy": greedy,
           "grads": {k: [float(np.linalg.norm(v.astype(np.float64)))] + v.ravel()[:4].astype(float).tolist() for k, v in grads.items()}}, sys.stdout)
