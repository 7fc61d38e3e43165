#!/usr/bin/env python3
"""Puts decode steps of onering beside those of llama.cpp.

    python bench/compare_llama.py --onering ./onering --llama llama-batched-bench --f32 F32.gguf --q8 Q8_0.gguf [--contexts 128,1024,3000] [--rows 1,8,32]

Both files are a model of the shape of --config, in float32 and in Q8_0; the weights do not
matter. onering takes steps in float32 and in bfloat16, and with matrices held in int8, and
also samples, and computes the log-prob and the entropy. The sides take turns. Prints one JSON
object: milliseconds of the mean step by side, context and number of rows, one figure a turn.
"""
import argparse, json, os, subprocess, sys

HERE = os.path.dirname(os.path.abspath(__file__))


def of_llama(a, file, context):
    command = [a.llama, "-m", file, "-t", str(a.threads), "-c", str(max(map(int, a.rows.split(","))) * (context + 2 * a.steps + 64)), "-npp", str(context), "-ntg", str(a.steps), "-npl", a.rows, "-pps", "--output-format", "jsonl"]
    out = subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout
    rows = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
    return {str(r["pl"]): 1e3 * r["t_tg"] / a.steps for r in rows}


def of_onering(a, dtype, base, context):
    command = [a.onering, "bench", "--quiet", "--config", a.config, "--part", "decode", "--dtype", dtype, "--batch", a.rows, "--context", str(context), "--steps", str(a.steps), "--threads", str(a.threads)]
    if base:
        command += ["--base-dtype", base]
    found = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)["decode"]
    return {rows: x["step_ms"] for rows, x in found.items()}


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--onering", required=True)
    p.add_argument("--llama", required=True, help="the program llama-batched-bench")
    p.add_argument("--f32", required=True)
    p.add_argument("--q8", required=True)
    p.add_argument("--config", default=os.path.join(HERE, "qwen2.5-0.5b"))
    p.add_argument("--contexts", default="128,1024,3000")
    p.add_argument("--rows", default="1,8,32")
    p.add_argument("--steps", type=int, default=16)
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--turns", type=int, default=2)
    a = p.parse_args()
    sides = {
        "onering float32": lambda c: of_onering(a, "float32", "", c), "llama.cpp F32": lambda c: of_llama(a, a.f32, c),
        "onering bfloat16": lambda c: of_onering(a, "bfloat16", "", c), "onering bfloat16, int8": lambda c: of_onering(a, "bfloat16", "int8", c),
        "onering float32, int8": lambda c: of_onering(a, "float32", "int8", c), "llama.cpp Q8_0": lambda c: of_llama(a, a.q8, c),
    }
    steps = {}
    for _ in range(a.turns):
        for context in map(int, a.contexts.split(",")):
            for name, side in sides.items():
                for rows, ms in side(context).items():
                    steps.setdefault(name, {}).setdefault(str(context), {}).setdefault(rows, []).append(ms)
    json.dump({"threads": a.threads, "steps": steps}, sys.stdout, indent=1)
    print()


main()
