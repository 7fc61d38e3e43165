#!/usr/bin/env python
"""Golden vectors for a Qwen2, Qwen3, Llama or SmolLM3 forward / backward / AdamW / generation.

    python make.py OUT --seed N [--shapes dev|families]

Writes OUT/<config>/{hf/, batch.safetensors, grads.safetensors, adamw_wd0.safetensors,
adamw_wd01.safetensors[, adamw_wd0_moments.safetensors], golden.json} for every config of the
chosen shape set.  The fields are described in README.md.
Reference: transformers *ForCausalLM, attn_implementation="eager", float32 on CPU; and class Ref below, an
independent float64 forward on the same weights ("_f64" fields), the better truth for another implementation.
dev are the three Qwen2 shapes; families the other families.
"""
import argparse, copy, json, math, os, shutil
import numpy as np
import torch
import transformers, safetensors
from safetensors.torch import save_file, load_file
from transformers import AutoModelForCausalLM, CONFIG_MAPPING

torch.set_num_threads(2)

# name -> architecture.  "style" says how config.json spells the RoPE base:
#   hub: top-level "rope_theta" (as published Qwen2.5 checkpoints), v5: "rope_parameters" (transformers 5)
SHAPES = {
    "dev": {
        "tied":    dict(hidden=64, layers=3, heads=4, kv=2, inter=160, vocab=320, theta=1e6, tie=True,  style="hub"),
        "untied":  dict(hidden=48, layers=2, heads=6, kv=3, inter=112, vocab=256, theta=1e4, tie=False, style="hub"),
        "headdim": dict(hidden=40, layers=2, heads=4, kv=1, inter=72,  vocab=192, theta=1e4, tie=True,  style="v5", head_dim=16),
    },
    # family: the model_type (qwen2 when absent); llama3: rope_type llama3 with (factor, original_max_position_embeddings),
    # low and high frequency factors 1 and 4; eps: rms_norm_eps when not 1e-6; bias: attention_bias and mlp_bias; two_eos: a list of two
    # EOS ids; no_rope: SmolLM3's list or, as a number, its interval; drop: keys left out of config.json (their absence means the default)
    "families": {
        "qwen3_small":   dict(family="qwen3", hidden=24, layers=2, heads=3, kv=1, inter=40, vocab=120, theta=1e6, tie=False, style="v5", head_dim=10),
        "llama_small":   dict(family="llama", hidden=32, layers=2, heads=4, kv=2, inter=56, vocab=128, theta=5e5, tie=True, style="hub", eps=1e-5,
                              llama3=(8.0, 24), two_eos=True),
        "llama_biases":  dict(family="llama", hidden=24, layers=2, heads=2, kv=2, inter=44, vocab=104, theta=1e4, tie=False, style="v5", eps=1e-5,
                              bias=True, head_dim=14),
        "smollm3_small": dict(family="smollm3", hidden=24, layers=4, heads=4, kv=2, inter=40, vocab=112, theta=2e6, tie=True, style="hub",
                              no_rope=3, drop=["no_rope_layers", "layer_types"]),
    },
}
STD = 0.08          # initializer_range; default would be 0.02
MAX_NEW = 24
U_MARGIN = 1e-5     # no inverse-CDF decision is closer than this to a boundary
GREEDY_MARGIN = 1e-3


def build(sh, g):
    family = sh.get("family", "qwen2")
    kw = dict(vocab_size=sh["vocab"], hidden_size=sh["hidden"], intermediate_size=sh["inter"],
              num_hidden_layers=sh["layers"], num_attention_heads=sh["heads"], num_key_value_heads=sh["kv"],
              max_position_embeddings=512, initializer_range=STD, rms_norm_eps=sh.get("eps", 1e-6),
              tie_word_embeddings=sh["tie"], attention_dropout=0.0, use_sliding_window=False,
              rope_parameters={"rope_type": "default", "rope_theta": sh["theta"]},
              bos_token_id=None, eos_token_id=None, pad_token_id=None)
    if "head_dim" in sh:
        kw["head_dim"] = sh["head_dim"]
    if family == "llama":
        del kw["use_sliding_window"]
    if "llama3" in sh:
        kw["rope_parameters"] = dict(kw["rope_parameters"], rope_type="llama3", factor=sh["llama3"][0], low_freq_factor=1.0, high_freq_factor=4.0,
                                     original_max_position_embeddings=sh["llama3"][1])
    if sh.get("bias"):
        kw["attention_bias"] = kw["mlp_bias"] = True
    if "no_rope" in sh:
        kw["no_rope_layers" if isinstance(sh["no_rope"], list) else "no_rope_layer_interval"] = sh["no_rope"]
    cfg = CONFIG_MAPPING[family](**kw)
    cfg._attn_implementation = "eager"
    m = AutoModelForCausalLM.from_config(cfg).float().eval()
    with torch.no_grad():
        for n, p in m.named_parameters():
            if n.endswith("norm.weight"):                      # so that norm weights matter
                p.copy_(1 + 0.2 * torch.randn(p.shape, generator=g))
            elif n.endswith("bias"):                           # zero by default in HF
                into = not n.endswith(("q_proj.bias", "k_proj.bias", "v_proj.bias"))   # a large constant in the residual would drown the input
                p.copy_((0.06 if into else 0.3) * torch.randn(p.shape, generator=g))
            else:
                p.copy_(STD * torch.randn(p.shape, generator=g))
        # sharpen the output so that entropies spread from small to large
        m.model.norm.weight.mul_(5.0)
    m.tie_weights()
    return cfg, m


def token_stats(logits, ids, T=1.0):
    """logp of ids[i,t] and entropy of its distribution, both from logits[i,t-1]/T; column 0 is 0."""
    ls = torch.log_softmax(logits[:, :-1] / T, -1)
    lp = ls.gather(-1, ids[:, 1:, None]).squeeze(-1)
    H = -(ls.exp() * ls).sum(-1)
    z = torch.zeros_like(lp[:, :1])
    return torch.cat([z, lp], 1), torch.cat([z, H], 1)


def inverse_frequencies(rp, hd):
    """theta^(-2j/hd), and Llama 3's change of it: wavelengths over original/low are stretched by factor, those under
    original/high kept, between them a blend linear in original/wavelength."""
    inv = rp["rope_theta"] ** (-torch.arange(0, hd, 2, dtype=torch.float64) / hd)
    if rp["rope_type"] == "default":
        return inv
    assert rp["rope_type"] == "llama3"
    f, lo, hi, orig = rp["factor"], rp["low_freq_factor"], rp["high_freq_factor"], rp["original_max_position_embeddings"]
    keep = ((orig * inv / (2 * math.pi) - lo) / (hi - lo)).clamp(0, 1)
    return inv * (keep + (1 - keep) / f)


class Ref(torch.nn.Module):
    """Independent plain-torch Qwen2, Qwen3, Llama or SmolLM3, everything in float64 (transformers computes RMSNorm, softmax
    and RoPE in float32 whatever the dtype of the model, so a .double() HF model is not a float64 truth).  Ignores padding on
    the right, which causal attention never lets a real token see.  lora = (module path -> (name of A, name of B), scale)
    adds scale * B A to those projections; A and B are then among the parameters and `train` says which ones are trained."""

    def __init__(self, sd, cfg, tie, names, lora=({}, 0.0), train=None):
        super().__init__()
        self.c, self.tie, self.names, self.lora, self.train_names = cfg, tie, names, lora, train or names
        self.P = torch.nn.ParameterList([torch.nn.Parameter(sd[n].double().clone()) for n in names])

    def named_parameters(self, *a, **k):
        return [(n, p) for n, p in zip(self.names, self.P) if n in self.train_names]

    def parameters(self, *a, **k):
        return [p for _, p in self.named_parameters()]

    def forward(self, ids):
        p = dict(zip(self.names, self.P)); c = self.c
        hd = getattr(c, "head_dim", None) or c.hidden_size // c.num_attention_heads
        nh, kv = c.num_attention_heads, c.num_key_value_heads
        rms = lambda x, w: x * torch.rsqrt((x * x).mean(-1, keepdim=True) + c.rms_norm_eps) * w
        B, T = ids.shape
        inv = inverse_frequencies(c.rope_parameters, hd)
        ang = torch.arange(T, dtype=torch.float64)[:, None] * inv
        ang = torch.cat([ang, ang], -1); cos, sin = ang.cos(), ang.sin()
        rot = lambda x: torch.cat([-x[..., hd // 2:], x[..., :hd // 2]], -1)
        no_rope = [not x for x in getattr(c, "no_rope_layers", None) or [1] * c.num_hidden_layers]
        pairs, scale = self.lora
        x = p["model.embed_tokens.weight"][ids]
        mask = torch.full((T, T), float("-inf"), dtype=torch.float64).triu(1)
        for l in range(c.num_hidden_layers):
            q = lambda n: p.get(f"model.layers.{l}.{n}")
            rope = (lambda x: x) if no_rope[l] else (lambda x: x * cos + rot(x) * sin)

            def lin(h, n):
                y = h @ q(n + ".weight").T
                if q(n + ".bias") is not None:
                    y = y + q(n + ".bias")
                if f"model.layers.{l}.{n}" in pairs:
                    A, Bm = (p[k] for k in pairs[f"model.layers.{l}.{n}"]); y = y + scale * (h @ A.T @ Bm.T)
                return y

            h = rms(x, q("input_layernorm.weight"))
            Q = lin(h, "self_attn.q_proj").view(B, T, nh, hd).transpose(1, 2)
            K = lin(h, "self_attn.k_proj").view(B, T, kv, hd).transpose(1, 2)
            if q("self_attn.q_norm.weight") is not None:         # Qwen3: over each head's width, before the rotation
                Q, K = rms(Q, q("self_attn.q_norm.weight")), rms(K, q("self_attn.k_norm.weight"))
            Q, K = rope(Q), rope(K).repeat_interleave(nh // kv, 1)
            W = lin(h, "self_attn.v_proj").view(B, T, kv, hd).transpose(1, 2).repeat_interleave(nh // kv, 1)
            a = torch.softmax(Q @ K.transpose(-1, -2) / math.sqrt(hd) + mask, -1) @ W
            x = x + lin(a.transpose(1, 2).reshape(B, T, nh * hd), "self_attn.o_proj")
            h = rms(x, q("post_attention_layernorm.weight"))
            g, u = lin(h, "mlp.gate_proj"), lin(h, "mlp.up_proj")
            x = x + lin(g * torch.sigmoid(g) * u, "mlp.down_proj")
        x = rms(x, p["model.norm.weight"])
        return x @ p["model.embed_tokens.weight" if self.tie else "lm_head.weight"].T


def fwd(m, ids, am):
    return m(ids) if isinstance(m, Ref) else m(input_ids=ids, attention_mask=am, use_cache=False).logits


def next_logits(m, seq):
    with torch.no_grad():
        x = torch.tensor([seq])
        return (m(x) if isinstance(m, Ref) else m(input_ids=x, use_cache=False).logits)[0, -1]


def ids_of(eos):
    return eos if isinstance(eos, list) else [eos]


def greedy(m, prompt, n, eos):
    seq, out, gaps = list(prompt), [], []
    for _ in range(n):
        lg = next_logits(m, seq)
        v, ix = lg.topk(2)
        gaps.append(float(v[0] - v[1])); t = int(ix[0])
        out.append(t); seq.append(t)
        if t in ids_of(eos):
            break
    return out, gaps


def sample(m, m64, prompt, n, eos, T, rng):
    """First index whose float64 cumulative probability EXCEEDS u (u < c_i)."""
    seq = list(prompt); r = dict(tokens=[], uniforms=[], margins=[], logp_T1=[], **{"logp_T0.7": []})
    for _ in range(n):
        lg = next_logits(m, seq).double()
        lg64 = next_logits(m64, seq)
        p = torch.softmax(lg / T, -1).numpy(); c = np.cumsum(p)
        c64 = np.cumsum(torch.softmax(lg64 / T, -1).numpy())
        while True:
            u = float(rng.random())
            t = int(np.argmax(c > u)) if (c > u).any() else len(c) - 1
            lo = c[t - 1] if t else 0.0
            # distance to both ends of the chosen interval; the top of the last token is 1 and is not a boundary
            d = min(u - lo if t else 1.0, c[t] - u if t < len(c) - 1 else 1.0)
            if d > U_MARGIN and u < c[-1] - U_MARGIN and int(np.argmax(c64 > u)) == t:
                break
        r["tokens"].append(t); r["uniforms"].append(u); r["margins"].append(float(d))
        r["logp_T1"].append(float(torch.log_softmax(lg, -1)[t]))
        r["logp_T0.7"].append(float(torch.log_softmax(lg / 0.7, -1)[t]))
        seq.append(t)
        if t in ids_of(eos):
            break
    r["finish"] = "eos" if r["tokens"][-1] in ids_of(eos) else "length"
    return r


def adamw(make, ids, am, w, wd, want_moments=False):
    m = make(); w = w.to(next(iter(m.parameters())).dtype)
    opt = torch.optim.AdamW(m.parameters(), lr=1e-2, betas=(0.9, 0.95), eps=1e-8, weight_decay=wd, foreach=False)
    log = dict(loss=[], grad_norm_before_clip=[], clip_coef=[], logp_before_step=[])
    grads0 = None
    for s in range(3):
        opt.zero_grad(set_to_none=True)
        lp, _ = token_stats(fwd(m, ids, am), ids)
        L = (w[s] * lp).sum(); L.backward()
        if s == 0:
            grads0 = {n: p.grad.detach().clone() for n, p in m.named_parameters()}
        gn = float(torch.nn.utils.clip_grad_norm_(m.parameters(), 1.0))
        log["loss"].append(float(L.detach())); log["grad_norm_before_clip"].append(gn)
        log["clip_coef"].append(min(1.0, 1.0 / (gn + 1e-6)))
        log["logp_before_step"].append([x[x_mask].tolist() for x, x_mask in zip(lp.detach(), w[s] != 0)])
        opt.step()
    with torch.no_grad():
        lp, _ = token_stats(fwd(m, ids, am), ids)
    log["logp_after_3_steps"] = [x[k].tolist() for x, k in zip(lp, w[0] != 0)]
    sd = {n: p.detach().clone() for n, p in m.named_parameters()}
    mom = {}
    if want_moments:
        for n, p in m.named_parameters():
            mom["exp_avg." + n] = opt.state[p]["exp_avg"].clone()
            mom["exp_avg_sq." + n] = opt.state[p]["exp_avg_sq"].clone()
    return sd, log, grads0, mom


def diff(a, b):
    """Worst absolute difference, worst relative to the tensor's max, and RMS, over all tensors."""
    wa = wr = 0.0; ss = n = 0
    worst = ""
    for k in a:
        d = (a[k].double() - b[k].double()).abs()
        x = float(d.max()); s = float(b[k].double().abs().max())
        wa = max(wa, x)
        if s > 0 and x / s > wr:
            wr, worst = x / s, k
        ss += float((d * d).sum()); n += d.numel()
    return dict(max_abs=wa, max_over_tensor_max=wr, worst_tensor=worst, rms=math.sqrt(ss / n))


def mk(name, sh, out, seed):
    g = torch.Generator().manual_seed(seed)
    rng = np.random.default_rng(seed + 1)
    torch.manual_seed(seed)
    cfg, m = build(sh, g)
    V = sh["vocab"]
    # ---- generation prompts and the EOS id -------------------------------------------------
    plens = [1, 4, 9, 17]
    while True:
        prompts = [rng.integers(0, V, n).tolist() for n in plens]
        runs = [greedy(m, p, MAX_NEW, -1) for p in prompts]
        if min(min(gp) for _, gp in runs) < GREEDY_MARGIN:
            continue
        # EOS: a token first produced at step 4..15 by one row and never by at least one other
        cand = [t for o, _ in runs for i, t in enumerate(o) if 4 <= i <= 15 and t not in o[:i]
                and sum(t in o2 for o2, _ in runs) <= 2]
        if sh.get("two_eos"):             # both ids end some row; ascending order would hide the second
            cand = [[b, a] for a in cand for b in cand if a != b and {a, b} <= {next((t for t in o if t in (a, b)), -1) for o, _ in runs}]
        if cand:
            eos = cand[0]; break
    cfg.eos_token_id = eos; m.config.eos_token_id = eos
    m.generation_config.eos_token_id = eos; m.generation_config.pad_token_id = 0; m.generation_config.do_sample = False
    hf = os.path.join(out, name, "hf"); shutil.rmtree(os.path.join(out, name), ignore_errors=True); os.makedirs(hf)
    m.save_pretrained(hf)
    cj = json.load(open(os.path.join(hf, "config.json")))
    if sh["style"] == "hub":
        rp = cj.pop("rope_parameters")
        cj["rope_theta"] = rp.pop("rope_theta")
        if "family" in sh:
            cj["rope_scaling"] = None if rp["rope_type"] == "default" else rp
            if sh["family"] == "llama" and "head_dim" not in sh:
                cj.pop("head_dim")
        cj["torch_dtype"] = cj.pop("dtype", "float32")
    for k in sh.get("drop", []):
        del cj[k]
    json.dump(cj, open(os.path.join(hf, "config.json"), "w"), indent=2)
    # re-load from disk: what we test is the folder
    mk32 = lambda: AutoModelForCausalLM.from_pretrained(hf, attn_implementation="eager", dtype=torch.float32).eval()
    m = mk32()
    assert m.config.rope_parameters == cfg.rope_parameters and m.config.rope_parameters["rope_theta"] == sh["theta"], m.config.rope_parameters
    assert m.config.model_type == sh.get("family", "qwen2") and m.config.tie_word_embeddings == sh["tie"]
    for k in ("no_rope_layers", "num_key_value_heads", "attention_bias", "mlp_bias", "head_dim"):
        assert getattr(m.config, k, None) == getattr(cfg, k, None), k
    names = [k for k, _ in m.named_parameters()]
    mk64 = lambda: Ref(sd0, m.config, sh["tie"], names)
    sd0 = {k: v.clone() for k, v in m.state_dict().items()}
    m64 = mk64()
    params = {k: list(v.shape) for k, v in m.named_parameters()}

    # ---- right-padded batch ---------------------------------------------------------------
    plen = torch.tensor([5, 1, 12, 3, 8, 6]); rlen = torch.tensor([14, 21, 1, 9, 0, 17])
    if seed % 2:
        plen = torch.tensor([2, 11, 7, 1, 4]); rlen = torch.tensor([23, 1, 15, 12, 0])
    L = plen + rlen; B, Tm = len(L), int(L.max())
    ids = torch.zeros(B, Tm, dtype=torch.int64); am = torch.zeros_like(ids); rm = torch.zeros_like(ids)
    for i in range(B):
        ids[i, :L[i]] = torch.from_numpy(rng.integers(0, V, int(L[i])))
        am[i, :L[i]] = 1; rm[i, plen[i]:L[i]] = 1
    w = torch.zeros(3, B, Tm)
    for s in range(3):
        w[s] = torch.randn(B, Tm, generator=g) * rm * 0.2
        w[s][(rm == 1) & (w[s] == 0)] = 0.1
    w[2] *= 0.002                         # the third step's gradient norm stays below the clip
    with torch.no_grad():
        lg = fwd(m, ids, am); lg64 = fwd(m64, ids, am)
        # padding must not matter: each row alone
        e = 0.0
        for i in range(B):
            li = m(input_ids=ids[i:i + 1, :L[i]], use_cache=False).logits[0]
            e = max(e, float((li - lg[i, :L[i]]).abs().max()))
        assert e < 1e-4, e
    off = {}
    if "family" in sh:
        def without(label, change):
            o = mk64(); o.c = copy.deepcopy(o.c); change(o)
            with torch.no_grad():
                off[label] = float((token_stats(fwd(o, ids, am), ids)[0] - token_stats(lg64, ids)[0])[rm.bool()].abs().max())
        def drop(*ends):
            def f(o):
                keep = [i for i, n in enumerate(o.names) if not n.endswith(ends)]
                o.P = torch.nn.ParameterList([o.P[i] for i in keep]); o.names = [o.names[i] for i in keep]
            return f
        if "llama3" in sh:
            without("rope_scaling_ignored", lambda o: o.c.rope_parameters.update(rope_type="default"))
        if sh["family"] == "qwen3":
            without("q_norm_and_k_norm_ignored", drop("q_norm.weight", "k_norm.weight"))
        if "no_rope" in sh:
            without("no_rope_layers_ignored", lambda o: setattr(o.c, "no_rope_layers", [1] * sh["layers"]))
        if sh.get("bias"):
            without("mlp_biases_ignored", drop("gate_proj.bias", "up_proj.bias", "down_proj.bias"))
            without("o_proj_bias_ignored", drop("o_proj.bias"))
        if sh.get("eps"):
            without("rms_norm_eps_1e-6", lambda o: setattr(o.c, "rms_norm_eps", 1e-6))
        without("rope_theta_x2", lambda o: o.c.rope_parameters.update(rope_theta=2 * sh["theta"]))
    rows = [0, 2]
    lp, H = token_stats(lg, ids); lp64, H64 = token_stats(lg64, ids)
    lpT, _ = token_stats(lg64, ids, 0.7)
    M = rm.bool()
    save_file({"input_ids": ids, "attention_mask": am, "response_mask": rm, "lengths": L, "prompt_lengths": plen,
               "logits_rows": torch.tensor(rows), "logits": lg[rows].contiguous(), "w": w,
               "logp": (lp * rm), "entropy": (H * rm)}, os.path.join(out, name, "batch.safetensors"))
    per = lambda x: [x[i][M[i]].tolist() for i in range(B)]

    # ---- gradients and AdamW ---------------------------------------------------------------
    J = {}
    A = {}
    for tag, wd in (("wd0", 0.0), ("wd01", 0.1)):
        mom = name in ("headdim", "qwen3_tied") and tag == "wd0"
        sd, log, g32, mm = adamw(mk32, ids, am, w, wd, mom)
        sdD, logD, g64, _ = adamw(mk64, ids, am, w, wd)
        if not (name == "tied" and tag == "wd01"):     # kept out for size; its scalars are in golden.json
            save_file(sd, os.path.join(out, name, f"adamw_{tag}.safetensors"))
        if mom:
            save_file(mm, os.path.join(out, name, f"adamw_{tag}_moments.safetensors"))
        d = torch.cat([(sd[k].double() - sdD[k]).abs().flatten() for k in sd])
        A[tag] = dict(lr=1e-2, beta1=0.9, beta2=0.95, eps=1e-8, weight_decay=wd, max_grad_norm=1.0, steps=3,
                      f32=log, f64=logD,
                      f32_vs_f64_params=dict(max_abs=float(d.max()), p999=float(d.quantile(0.999)), median=float(d.median()),
                                             fraction_above_1e_5=float((d > 1e-5).double().mean()),
                                             fraction_above_1e_3=float((d > 1e-3).double().mean())))
        if tag == "wd0":
            save_file(g32, os.path.join(out, name, "grads.safetensors"))
            J["grad_f32_vs_f64"] = diff(g32, g64)
            J["grad_norm_f64"] = math.sqrt(sum(float((x * x).sum()) for x in g64.values()))
            J["grad_norms_per_param_f64"] = {k: float(v.norm()) for k, v in g64.items()}
    # independent finite-difference check of the f64 gradient along a random direction
    L64 = lambda mod: float((w[0].double() * token_stats(fwd(mod, ids, am), ids)[0]).sum())
    with torch.no_grad():
        dirs = {n: torch.randn(p.shape, generator=g, dtype=torch.float64) for n, p in m64.named_parameters()}
        h = 1e-6; vals = []
        for s in (h, -2 * h):
            for n, p in m64.named_parameters():
                p.add_(s * dirs[n])
            vals.append(L64(m64))
        for n, p in m64.named_parameters():
            p.add_(h * dirs[n])
    fd = (vals[0] - vals[1]) / (2 * h); an = sum(float((g64[n] * dirs[n]).sum()) for n in g64)
    J["fd_check"] = dict(finite_difference=fd, analytic=an, rel_err=abs(fd - an) / abs(an))
    assert J["fd_check"]["rel_err"] < 1e-6, J["fd_check"]

    # ---- generation -------------------------------------------------------------------------
    G = []
    for p in prompts:
        o, gaps = greedy(m, p, MAX_NEW, eos)
        h_ = m.generate(torch.tensor([p]), attention_mask=torch.ones(1, len(p), dtype=torch.int64), max_new_tokens=MAX_NEW,
                        do_sample=False)[0, len(p):].tolist()
        assert h_ == o, (h_, o)       # transformers' own cached generate agrees
        o64, _ = greedy(m64, p, MAX_NEW, eos); assert o64 == o
        G.append(dict(prompt=p, tokens=o, finish="eos" if o[-1] in ids_of(eos) else "length", top1_minus_top2=gaps))
    S = []
    for T in (1.0, 0.7):
        S.append(dict(temperature=T, rows=[dict(prompt=p, **sample(m, m64, p, MAX_NEW, eos, T, rng)) for p in prompts]))
    J = dict(
        config=dict(name=name, seed=seed, **sh, eos_token_id=eos, initializer_std=STD),
        versions=dict(torch=torch.__version__, transformers=transformers.__version__, safetensors=safetensors.__version__, numpy=np.__version__),
        params=params, n_params=sum(p.numel() for p in m.parameters()),
        batch=dict(lengths=L.tolist(), prompt_lengths=plen.tolist(),
                   logp=per(lp), logp_f64=per(lp64), entropy=per(H), entropy_f64=per(H64), **{"logp_T0.7_f64": per(lpT)},
                   f32_vs_f64_max_abs=dict(logits=float((lg.double() - lg64)[am.bool()].abs().max()),
                                           logp=float((lp.double() - lp64)[M].abs().max()),
                                           entropy=float((H.double() - H64)[M].abs().max())),
                   logits_range=[float(lg[am.bool()].min()), float(lg[am.bool()].max())]),
        **({"logp_off_if": off} if off else {}), **J, adamw=A, greedy=dict(max_new_tokens=MAX_NEW, eos_token_id=eos, rows=G),
        sampled=dict(max_new_tokens=MAX_NEW, eos_token_id=eos, min_margin=min(min(r["margins"]) for s in S for r in s["rows"]), runs=S))
    json.dump(J, open(os.path.join(out, name, "golden.json"), "w"), indent=1)
    for root, _, fs in os.walk(os.path.join(out, name)):
        for fn in fs:
            os.chmod(os.path.join(root, fn), 0o644)
    ent = [x for r in J["batch"]["entropy"] for x in r]
    print(f"{name}: {J['n_params']} params, logits {J['batch']['logits_range']}, entropy {min(ent):.2f}..{max(ent):.2f} (ln V {math.log(V):.2f}),"
          f" f32-f64 {J['batch']['f32_vs_f64_max_abs']}, grad {J['grad_f32_vs_f64']}, norms {A['wd0']['f32']['grad_norm_before_clip']},"
          f" fd {J['fd_check']['rel_err']:.1e}, adamw f32-f64 {A['wd0']['f32_vs_f64_params']} / wd0.1 {A['wd01']['f32_vs_f64_params']}")
    if off:
        print("   logp off by", {k: f"{v:.2g}" for k, v in off.items()}, "eos", eos)
    print("   greedy lens", [len(r["tokens"]) for r in G], [r["finish"] for r in G], "min gap", min(min(r["top1_minus_top2"]) for r in G),
          "sampled", [[len(r["tokens"]) for r in s["rows"]] for s in S], "margin", J["sampled"]["min_margin"])


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("out"); ap.add_argument("--seed", type=int, required=True)
    ap.add_argument("--shapes", choices=list(SHAPES), default="dev"); ap.add_argument("--only", help="one config")
    a = ap.parse_args()
    if a.shapes.startswith("families"):
        torch.set_num_threads(1)
    for i, (n, sh) in enumerate(SHAPES[a.shapes].items()):
        if a.only in (None, n):
            mk(n, sh, a.out, a.seed + 100 * i)
