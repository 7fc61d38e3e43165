#!/usr/bin/env python3
"""Puts PyTorch's and transformers' figures beside onering's.

    python bench/compare.py --onering ./onering --config config.json [--only decode,train] [--threads 2] [--repeat 3]

Needs torch, transformers and safetensors in the Python that runs it. Every
measurement is a process of its own, and the two sides take turns, so that a
noisy machine is noisy for both; the smallest time of the repeats counts.
Weights are random: speed does not depend on them. Prints one JSON object.

decode      ms per step at each batch size, context about 190, after a prefill
prefill     seconds to the first token of a 512-token prompt
train       seconds for forward, weights and backward over 4 x 512 tokens, and
            peak resident memory: onering, onering with less kept for the
            backward pass ("lean"; a run takes it where memory is short), PyTorch
            with per-layer checkpointing, PyTorch without
"""
import argparse, json, os, resource, subprocess, sys, time

THIS = os.path.abspath(__file__)


def model(config, threads):
    import torch, transformers
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    c = transformers.AutoConfig.from_pretrained(os.path.dirname(config) if os.path.isfile(config) else config)
    c.dtype = torch.float32  # the weights', in which PyTorch updates them
    m = transformers.AutoModelForCausalLM.from_config(c, dtype=torch.float32, attn_implementation="sdpa")
    return torch, m


def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def torch_decode(a):
    import transformers
    torch, m = model(a.config, a.threads)
    m.eval()
    # Never stop early: the time of a step is what is asked for.
    m.generation_config.eos_token_id = None
    out = {}
    with torch.inference_mode():
        for b in a.batch:
            ids = torch.randint(0, m.config.vocab_size, (b, a.context))
            mask = torch.ones_like(ids)
            ends = []  # of the steps; the first is prefill's
            clock = lambda *_, **__: ends.append(time.perf_counter()) or torch.zeros(b, dtype=torch.bool)
            n = 1 + a.steps
            m.generate(ids, attention_mask=mask, max_new_tokens=n, min_new_tokens=n, do_sample=True, top_k=0, pad_token_id=0, stopping_criteria=transformers.StoppingCriteriaList([clock]))
            out[str(b)] = {"step_ms": (ends[-1] - ends[0]) / a.steps * 1e3}
        ids = torch.randint(0, m.config.vocab_size, (1, a.tokens))
        m.generate(ids, max_new_tokens=1, pad_token_id=0)
        prefill = min(timed(lambda: m.generate(ids, max_new_tokens=1, do_sample=True, top_k=0, pad_token_id=0)) for _ in range(3))
    return {"decode": out, "prefill_seconds": prefill, "peak_bytes": peak()}


def timed(f):
    t = time.perf_counter()
    f()
    return time.perf_counter() - t


def torch_train(a, checkpointing):
    torch, m = model(a.config, a.threads)
    m.train()
    if checkpointing:
        m.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    ids = torch.randint(0, m.config.vocab_size, (a.rows, a.tokens + 1))
    narrow = torch.autocast("cpu", torch.bfloat16, enabled=a.dtype == "bfloat16")
    w = torch.randn(a.rows, a.tokens) / 1000
    best = None
    for _ in range(2):  # the first pass warms up
        m.zero_grad(set_to_none=False)
        t0 = time.perf_counter()
        with narrow:
            logits = m(ids[:, :-1], use_cache=False).logits
        logp = -torch.nn.functional.cross_entropy(logits.flatten(0, 1).float(), ids[:, 1:].flatten(), reduction="none").view_as(w)
        del logits
        loss = (w * logp).sum()
        t1 = time.perf_counter()
        loss.backward()
        t2 = time.perf_counter()
        best = {"forward_seconds": t1 - t0, "backward_seconds": t2 - t1, "seconds": t2 - t0}
    best["peak_bytes"] = peak()
    return best


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--onering", help="the onering program")
    p.add_argument("--config", required=True, help="config.json of the shape, such as bench/qwen2.5-0.5b/config.json")
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--repeat", type=int, default=1)
    p.add_argument("--only", default="decode,train")
    p.add_argument("--batch", default="8,32")
    p.add_argument("--context", type=int, default=190)
    p.add_argument("--steps", type=int, default=16)
    p.add_argument("--rows", type=int, default=4)
    p.add_argument("--tokens", type=int, default=512)
    p.add_argument("--dtype", default="float32", choices=["float32", "bfloat16"], help="type to compute in; transformers decodes in float32")
    p.add_argument("--part", help=argparse.SUPPRESS)
    a = p.parse_args()
    batch = a.batch
    a.batch = [int(b) for b in a.batch.split(",")]
    if a.part:
        part = {"decode": torch_decode, "checkpointing": lambda a: torch_train(a, True), "plain": lambda a: torch_train(a, False)}[a.part]
        json.dump(part(a), sys.stdout)
        return
    if not a.onering:
        p.error("--onering is needed")

    def ours(part, *flags):
        cmd = [a.onering, "bench", "--config", a.config, "--threads", str(a.threads), "--dtype", a.dtype, "--part", part, "--batch", batch,
               "--context", str(a.context), "--steps", str(a.steps), "--rows", str(a.rows), "--tokens", str(a.tokens), *flags]
        return json.loads(subprocess.run(cmd, check=True, stdout=subprocess.PIPE).stdout)

    def theirs(part):
        cmd = [sys.executable, THIS] + sys.argv[1:] + ["--part", part]
        return json.loads(subprocess.run(cmd, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout)

    plan = []
    if "decode" in a.only:
        plan += [("onering_decode", lambda: ours("decode")), ("transformers_decode", lambda: theirs("decode"))]
    if "train" in a.only:
        plan += [("onering_train", lambda: ours("train")), ("onering_train_lean", lambda: ours("train", "--stash", "inputs")),
                 ("pytorch_checkpointing", lambda: theirs("checkpointing")), ("pytorch", lambda: theirs("plain"))]
    runs = {name: [] for name, _ in plan}
    for i in range(a.repeat):
        for name, f in plan:
            runs[name].append(f())
            print(name, json.dumps(runs[name][-1]), file=sys.stderr)
    result = {"config": a.config, "threads": a.threads, "repeat": a.repeat, "runs": runs, "ratios": {}}
    r = result["ratios"]
    if "decode" in a.only:
        for b in a.batch:
            step = lambda name: min(x["decode"][str(b)]["step_ms"] for x in runs[name])
            r[f"decode_{b}_transformers_over_onering"] = step("transformers_decode") / step("onering_decode")
        first = lambda name: min(x["prefill_seconds"] for x in runs[name])
        r["prefill_transformers_over_onering"] = first("transformers_decode") / first("onering_decode")
    if "train" in a.only:
        fastest = lambda name: min(x["seconds"] for x in runs[name])
        most = lambda name: max(x["peak_bytes"] for x in runs[name])
        for name in ("onering_train", "onering_train_lean"):
            for other in ("pytorch_checkpointing", "pytorch"):
                r[f"seconds_{name}_over_{other}"] = fastest(name) / fastest(other)
                r[f"memory_{name}_over_{other}"] = most(name) / most(other)
    json.dump(result, sys.stdout, indent=1)
    print()


main()
