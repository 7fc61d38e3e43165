#!/usr/bin/env python3
"""Puts a LoRA step of PEFT beside one of onering's, on the CPU.

    python bench/compare_peft.py --onering ./onering --config bench/qwen2.5-0.5b [--rows 4] [--tokens 256] [--rank 32]

Needs torch, transformers and peft. Each side has random weights of the shape in
float32, rank-32 adapters on all linear modules, and takes forward, backward and
AdamW update of the same number of tokens, in a process of its own; the sides take
turns. PEFT is measured as it is and with gradient checkpointing, onering with its
base in float32 and in bfloat16. Prints one JSON object: the fewest seconds of a
step after one that warms up, and the process's peak memory, each the least of the
turns.
"""
import argparse, json, resource, subprocess, sys, time


def peft_step(a):
    import torch, transformers, peft
    torch.set_num_threads(a.threads)
    torch.manual_seed(0)
    config = transformers.AutoConfig.from_pretrained(a.config)
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    model = peft.get_peft_model(model, peft.LoraConfig(r=a.rank, lora_alpha=a.rank, target_modules="all-linear", task_type="CAUSAL_LM"))
    if a.checkpointing:
        model.enable_input_require_grads()
        model.gradient_checkpointing_enable()
    model.train()
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-5, fused=True)
    ids = torch.randint(0, config.vocab_size, (a.rows, a.tokens + 1))
    best = float("inf")
    for i in range(a.repeat + 1):
        began = time.time()
        logits = model(input_ids=ids[:, :-1], use_cache=False).logits
        logp = torch.stack([torch.log_softmax(row, -1).gather(-1, y[:, None])[:, 0] for row, y in zip(logits, ids[:, 1:])])
        (-logp.mean()).backward()
        torch.nn.utils.clip_grad_norm_([p for p in model.parameters() if p.requires_grad], 1.0)
        optimizer.step()
        optimizer.zero_grad()
        if i > 0:
            best = min(best, time.time() - began)
    print(json.dumps({"seconds": best, "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}))


def onering_step(a, base):
    out = subprocess.run([
        a.onering, "bench", "--config", a.config, "--part", "step", "--lora", "--lora-rank", str(a.rank), "--base-dtype", base,
        "--rows", str(a.rows), "--tokens", str(a.tokens), "--repeat", str(a.repeat), "--threads", str(a.threads), "-q",
    ], check=True, capture_output=True, text=True).stdout
    x = json.loads(out)
    return {"seconds": x["seconds"] + x["optimizer_seconds"], "peak_bytes": x["peak_bytes"]}


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--onering", default="./onering")
    p.add_argument("--config", required=True)
    for name, value in (("rows", 4), ("tokens", 256), ("rank", 32), ("threads", 2), ("repeat", 2), ("turns", 2)):
        p.add_argument("--" + name, type=int, default=value)
    p.add_argument("--checkpointing", action="store_true", help=argparse.SUPPRESS)
    p.add_argument("--peft-step", action="store_true", help=argparse.SUPPRESS)
    a = p.parse_args()
    if a.peft_step:
        return peft_step(a)
    here = [sys.executable, __file__, *sys.argv[1:], "--peft-step"]
    run = lambda *more: json.loads(subprocess.run([*here, *more], check=True, capture_output=True, text=True).stdout.splitlines()[-1])
    sides = {
        "peft": run, "peft, checkpointing": lambda: run("--checkpointing"),
        "onering": lambda: onering_step(a, "float32"), "onering, bfloat16 base": lambda: onering_step(a, "bfloat16"),
    }
    found = {}
    for _ in range(a.turns):
        for name, side in sides.items():
            now = side()
            print(name, now, file=sys.stderr)
            was = found.setdefault(name, now)
            found[name] = {k: min(was[k], now[k]) for k in now}
    print(json.dumps(found))


if __name__ == "__main__":
    main()
