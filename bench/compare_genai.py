#!/usr/bin/env python3
"""Puts a decode step of one row of onering beside one of onnxruntime-genai.

    pip install onnxruntime-genai onnx-ir torch transformers
    python bench/compare_genai.py --onering ./onering --tokenizer DIR [--contexts 1024,3000] [--threads 2]

Both have the same random weights of a config.json (--config) in float32. genai packs
them for its products, a second copy that an update in place would not reach; onering
reads them as they are. DIR has a tokenizer, which genai's model builder asks for. Both
sides take steps in turn, --turns times. genai chooses the largest logit; onering also
samples, and computes the log-prob and the entropy. Prints one JSON object: milliseconds
of the median step by context, one figure a turn.
"""
import argparse, json, os, shutil, statistics, subprocess, sys, tempfile, time

HERE = os.path.dirname(os.path.abspath(__file__))


def build(a, folder):
    """Makes a model of random weights and genai's form of it."""
    model, built = os.path.join(folder, "model"), os.path.join(folder, "genai")
    quiet = dict(check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    subprocess.run([a.onering, "init", "--config", os.path.join(a.config, "config.json"), "--out", model], **quiet)
    for name in os.listdir(a.tokenizer):
        if name != "config.json" and os.path.isfile(os.path.join(a.tokenizer, name)):
            shutil.copy(os.path.join(a.tokenizer, name), model)
    subprocess.run([sys.executable, "-m", "onnxruntime_genai.models.builder", "-i", model, "-o", built, "-p", "fp32", "-e", "cpu", "-c", os.path.join(folder, "cache")], **quiet)
    path = os.path.join(built, "genai_config.json")
    with open(path) as f:
        config = json.load(f)
    config["model"]["decoder"]["session_options"]["intra_op_num_threads"] = a.threads
    with open(path, "w") as f:
        json.dump(config, f)
    return built


def genai_steps(a):
    """Runs in a process of its own: the median step at each context."""
    import numpy as np
    import onnxruntime_genai as og
    model, found = og.Model(a.genai), {}
    for context in a.contexts.split(","):
        n = int(context)
        options = og.GeneratorParams(model)
        options.set_search_options(max_length=n + a.steps + 1, min_length=n + a.steps + 1, do_sample=False)
        g = og.Generator(model, options)
        g.append_tokens(np.random.default_rng(0).integers(0, 1000, n).astype(np.int32))
        g.generate_next_token()
        spent = []
        for _ in range(a.steps):
            began = time.perf_counter()
            g.generate_next_token()
            spent.append(1e3 * (time.perf_counter() - began))
        found[context] = statistics.median(spent)
    return found


def onering_step(a, context):
    command = [a.onering, "bench", "--config", a.config, "--part", "decode", "--batch", "1", "--context", context, "--steps", str(a.steps), "--threads", str(a.threads)]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout)["decode"]["1"]["step_ms"]


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--onering")
    p.add_argument("--config", default=os.path.join(HERE, "qwen2.5-0.5b"), help="a folder with config.json")
    p.add_argument("--tokenizer", help="a folder with a tokenizer")
    p.add_argument("--contexts", default="1024,3000")
    p.add_argument("--steps", type=int, default=20)
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--turns", type=int, default=3)
    p.add_argument("--genai", help=argparse.SUPPRESS)
    a = p.parse_args()
    if a.genai:
        return json.dump(genai_steps(a), sys.stdout)
    if not a.onering or not a.tokenizer:
        p.error("--onering and --tokenizer are needed")
    contexts = a.contexts.split(",")
    steps = {side: {c: [] for c in contexts} for side in ("onering", "genai")}
    with tempfile.TemporaryDirectory() as folder:
        built = build(a, folder)
        own = [sys.executable, os.path.abspath(__file__), "--genai", built, "--contexts", a.contexts, "--steps", str(a.steps)]
        for _ in range(a.turns):
            theirs = json.loads(subprocess.run(own, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout)
            for c in contexts:
                steps["genai"][c].append(theirs[c])
                steps["onering"][c].append(onering_step(a, c))
    json.dump({"threads": a.threads, **steps}, sys.stdout, indent=1)
    print()


main()
