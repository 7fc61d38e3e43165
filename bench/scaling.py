#!/usr/bin/env python3
"""Prints the tables of docs/lab/ranks.md that are computed, from what docs/lab/gpu.md measured.

    python3 bench/scaling.py

No run of several GPUs was made. Seconds are those of a round of ROUND responses.
"""
GPUS = (8, 16, 32, 64)
ROUND, MEAN, MOST, PROMPT, STEPS = 1024, 1000, 3000, 100, 8  # responses, their tokens, a prompt's, optimizer steps
MICRO = 4 * 1024  # tokens of the measured passes
LINK = 5e9  # bytes a second that a rank sends while all send: an assumption
COPY = 10e9  # bytes a second between a GPU and the host: the update of 7B moved 122 GB in 12.5 s
ADD = 1.4e9  # numbers that a rank adds in a second, measured on the CPU of this project

# Parameters, of the embedding that is final last, and of an adapter of rank 32 on all
# matrices; milliseconds of decode steps by rows (the middle of the range), log-probs,
# forward and backward, and the update; GB measured with the moments, or without.
MODELS = {
    "1.5B": dict(p=1.544e9, last=233.4e6, lora=36.9e6, decode={16: 7.5, 64: 7.3, 256: 8.55}, logp=62, both=218, update=90, measured=37 - 8 * 1.544),
    "7B": dict(p=7.616e9, last=545.0e6, lora=80.7e6, decode={16: 8.9, 64: 9.7}, logp=163, both=547, update=90 * 7.616 / 1.544, measured=91),
}


def line(at, x):
    """Interpolates, or goes on as between the last two."""
    known = sorted(at)
    low = max([k for k in known[:-1] if k <= x], default=known[0])
    high = known[known.index(low) + 1]
    return at[low] + (at[high] - at[low]) * (x - low) / (high - low)


def columns(m, n):
    tokens = ROUND * (MEAN + PROMPT) / n
    c = {"sampling a round": MOST * line(m["decode"], ROUND // n) / 1e3}
    c["log-probs of a round"] = tokens / MICRO * m["logp"] / 1e3
    c["forward and backward of a round"] = tokens / MICRO * m["both"] / 1e3
    for name, p, last in (("", m["p"], m["last"]), (" with LoRA", m["lora"], 0)):
        sent = 8 * p * (n - 1) / n
        wire = sent / LINK
        half = wire / 2 + p * (n - 1) / n / ADD  # the sums of a bucket while another is spread
        reduction = max(wire, half)
        # What is not the embedding may hide behind the backward pass of the last
        # micro-batch, two thirds of forward and backward.
        hidden = min(reduction * (1 - last / p), m["both"] * 2 / 3 / 1e3)
        copies = 8 * p / COPY
        update = m["update"] / 1e3 * p / m["p"]
        step = copies + reduction - hidden
        if not name:
            c["GB that a rank sends in a step"] = sent / 1e9
            c["reduction of a step: bytes"] = wire
            c["reduction of a step: sums"] = p * (n - 1) / n / ADD
            c["copies from and to the GPU"] = copies
            c["hidden behind the backward pass"] = hidden
            c["**not hidden, with the copies**"] = step
            c["AdamW of a step"] = update
            c["the same, sharded"] = update / n
        else:
            c["not hidden, with the copies, LoRA"] = step
        passes = sum(c[k] for k in ("sampling a round", "log-probs of a round", "forward and backward of a round"))
        c[f"**a round,{name or ' all parameters, sharded'}**"] = passes + STEPS * (step + update / (1 if name else n))
    return c


def text(x):
    return f"{x:.0f}" if x >= 20 else f"{x:.1f}" if x >= 2 else f"{x:.2f}" if x >= 0.02 else f"{x:.3f}"


for name, m in MODELS.items():
    table = [columns(m, n) for n in GPUS]
    print(f"| {name}, seconds | " + " | ".join([f"{GPUS[0]} GPUs", *map(str, GPUS[1:])]) + " |\n|---" + "|--:" * len(GPUS) + "|")
    for row in table[0]:
        print(f"| {row} | " + " | ".join(text(c[row]) for c in table) + " |")
    print()

print("| memory of a rank, GB | " + " | ".join(MODELS) + " | |\n|---|--:|--:|---|")
rows = {
    "weights and gradients in float32, layers in bfloat16": (lambda m: 10 * m["p"], "10 P"),
    "moments, not sharded": (lambda m: 8 * m["p"], "8 P"),
    **{f"moments on {n} GPUs, sharded": (lambda m, n=n: 8 * m["p"] / n, "8 P / N") for n in GPUS},
    "activations and the rest, 4 x 1,024 tokens": (lambda m: m["measured"] * 1e9 - 10 * m["p"], "measured, less the first line"),
    "**all, not sharded**": (lambda m: m["measured"] * 1e9 + 8 * m["p"], "1.5B: measured"),
    **{f"**all on {n} GPUs, sharded**": (lambda m, n=n: m["measured"] * 1e9 + 8 * m["p"] / n, "computed") for n in (8, 64)},
    "all with LoRA": (lambda m: m["measured"] * 1e9 - 4 * m["p"] + 16 * m["lora"], "computed: no gradients of the weights"),
}
for row, (f, note) in rows.items():
    print(f"| {row} | " + " | ".join(text(f(m) / 1e9) for m in MODELS.values()) + f" | {note} |")
