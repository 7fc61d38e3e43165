#!/usr/bin/env python3
"""Writes the sweep that compares the variants of a tuning sweep with their best rates.

    onering sweep --markdown --out runs/out/bench/tune-TASK runs/bench/tune-TASK.toml | python3 bench/tuned.py TASK

It reads the tuning sweep's table and writes runs/bench/sweep-TASK.toml: each variant
with the learning rate of the highest mean, on seeds that the tuning did not use.
"""
import json, re, sys, tomllib

task = sys.argv[1]
with open(f"runs/bench/tune-{task}.toml", "rb") as f:
    tuning = tomllib.load(f)
best = {}
for name, rate, mean in re.findall(r"^\| ([^|]+) learning_rate=(\S+) \| [^|]+ \| ([\d.]+)", sys.stdin.read(), re.M):
    if name not in best or float(mean) > best[name][1]:
        best[name] = (float(rate), float(mean))
missing = [v["name"] for v in tuning["variant"] if v["name"] not in best]
if missing:
    sys.exit(f"tuned.py: the table on stdin has no result of {', '.join(missing)}")
base = tuning["sweep"]["base"]
seeds = list(range(101, 121 if task == "exponent" else 111))
text = f"""# The variants of tune-{task}.toml on {base}, each with the learning rate that was best
# for it there (bench/tuned.py wrote this file). runs/results/bench.md has the result.
#
#   onering sweep -j 2 --out runs/out/bench/{task} runs/bench/sweep-{task}.toml

[sweep]
base = "{base}"
seeds = {seeds}
metric = "eval/arithmetic/pass@1"
baseline = "grpo"
"""
if not any(v["name"] == "grpo" for v in tuning["variant"]):  # its rate is known from the base's own sweep
    with open(f"runs/bench/sweep-{base.removesuffix('.toml')}.toml", "rb") as f:
        known = next(v for v in tomllib.load(f)["variant"] if v["name"] == "grpo")
    tuning["variant"].insert(0, known)
    best["grpo"] = (known["optimizer"]["learning_rate"], 0)
for v in tuning["variant"]:
    objective = ", ".join(f"{k} = {json.dumps(x)}" for k, x in v["objective"].items())
    text += f'\n[[variant]]\nname = "{v["name"]}"\nobjective = {{ {objective} }}\noptimizer = {{ learning_rate = {best[v["name"]][0]:g} }}\n'
    if "model" in v:
        text += f'model = {{ reference = {json.dumps(v["model"]["reference"])} }}\n'
with open(f"runs/bench/sweep-{task}.toml", "w") as f:
    f.write(text)
