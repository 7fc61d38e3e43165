#!/usr/bin/env python3
"""Writes the sweep that compares the objectives of runs/bench with their best rates.

    onering sweep --markdown --out runs/out/bench/tune-TASK runs/bench/tune-TASK.toml | python3 bench/tuned.py TASK

It reads the tuning sweep's table and writes runs/bench/sweep-TASK.toml: each objective
with the learning rate of the highest mean, on ten seeds that the tuning did not use.
"""
import re, sys

task = sys.argv[1]
best = {}
for name, rate, mean in re.findall(r"^\| (\w+) learning_rate=(\S+) \| \d+ \| ([\d.]+)", sys.stdin.read(), re.M):
    if name not in best or float(mean) > best[name][1]:
        best[name] = (float(rate), float(mean))
if not best:
    sys.exit("tuned.py: there is no table of a tuning sweep on stdin")
text = f"""# The objectives on {task}.toml, each with the learning rate that was best for it in
# tune-{task}.toml (bench/tuned.py wrote this file). docs/bench.md has the result.
#
#   onering sweep -j 2 --update docs/bench.md runs/bench/sweep-{task}.toml

[sweep]
base = "{task}.toml"
seeds = [101, 102, 103, 104, 105, 106, 107, 108, 109, 110]
metric = "eval/arithmetic/pass@1"
baseline = "grpo"
"""
for name, (rate, _) in best.items():
    text += f'\n[[variant]]\nname = "{name}"\nobjective = {{ name = "{name}" }}\noptimizer = {{ learning_rate = {rate:g} }}\n'
open(f"runs/bench/sweep-{task}.toml", "w").write(text)
