#!/usr/bin/env python3
"""Writes the files of the task chain: running totals of 8 to 52 digits.

    python3 bench/chain.py runs/out/bench/totals-files

    problem    a7b3c9...=
    response   a7+00=07;b3+07=10;c9+10=19;...\\boxed{19}

Item by item a response repeats the label and the digit, and adds the digit to the total,
modulo 100. A response of N items has 8 N + 10 tokens, 74 to 426, of which each decides: a
wrong one spoils what follows. N has a heavy tail, with a probability in proportion to
N^-1.5, and so has the length.

The folder gets train.jsonl and heldout.jsonl (problems with answers), demonstrations.jsonl
of a student who in three of five responses forgets to carry, and the config.json and
tokenizer, one token a character, of a model that fits them.
"""
import json, os, random, string, sys

LABELS = string.ascii_lowercase + string.ascii_uppercase
SIZES = range(8, len(LABELS) + 1)
FORGETS, SLIPS = 0.6, 0.002


def problem(r):
    n = r.choices(SIZES, [n**-1.5 for n in SIZES])[0]
    return [r.randrange(10) for _ in range(n)]


def prompt(digits):
    return "".join(f"{label}{d}" for label, d in zip(LABELS, digits)) + "="


def response(digits, r):
    forgets, total, out = r.random() < FORGETS, 0, ""
    for label, d in zip(LABELS, digits):
        before, total = total, (total + d) % (10 if forgets else 100)
        if r.random() < SLIPS:
            total = r.randrange(100)
        out += f"{label}{d}+{before:02}={total:02};"
    return out + f"\\boxed{{{total:02}}}"


def write(name, rows):
    with open(os.path.join(out, name), "w") as f:
        f.writelines(json.dumps(row) + "\n" for row in rows)


out = sys.argv[1]
os.makedirs(out, exist_ok=True)
r = random.Random(1)
for name, n in ("train.jsonl", 4096), ("heldout.jsonl", 256):
    rows = [problem(r) for _ in range(n)]
    write(name, ({"problem": prompt(d), "answer": f"{sum(d) % 100:02}"} for d in rows))
rows = [problem(r) for _ in range(16000)]
write("demonstrations.jsonl", ({"prompt": prompt(d), "response": response(d, r)} for d in rows))

characters = ["<pad>", "<eos>", *string.digits, *"+=;\\{}", *LABELS]
vocabulary = {c: i for i, c in enumerate(characters)}
special = [{"id": i, "content": characters[i], "special": True, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False} for i in (0, 1)]
bytelevel = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}
write("tokenizer.json", [{"version": "1.0", "added_tokens": special, "pre_tokenizer": bytelevel, "decoder": bytelevel,
                          "model": {"type": "BPE", "vocab": vocabulary, "merges": []}}])
write("tokenizer_config.json", [{"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<eos>", "pad_token": "<pad>"}])
write("config.json", [{"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "hidden_size": 64, "num_hidden_layers": 2,
                       "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 192, "vocab_size": 80,
                       "tie_word_embeddings": True, "rope_theta": 10000.0, "rms_norm_eps": 1e-6, "hidden_act": "silu",
                       "max_position_embeddings": 544, "initializer_range": 0.08, "eos_token_id": 1, "pad_token_id": 0, "torch_dtype": "float32"}])
