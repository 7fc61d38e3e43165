#!/usr/bin/env python3
"""Writes the sweeps of the plane of scope and mean (runs/results/plane.md has its protocol).

    python3 bench/plane.py TASK > tune.toml
    onering sweep --markdown --out runs/out/bench/tune-plane-TASK tune.toml > table.md
    python3 bench/plane.py TASK table.md [SEEDS] > runs/bench/sweep-plane-TASK.toml

TASK is stale, episodes or chain, which has no tuning (give /dev/null). The second file compares each cell, with the settings of its
highest greedy mean in the table (of equal ones the first), on the first SEEDS (20) of 101 to 120.
"""
import json, re, sys

MEANS = {"p = 0": {"mean": 0}, "p = 2": {"mean": 2}, "p by ESS": {"mean": "ess"}}
TASKS = {  # scopes, means, rates, widths, seeds of the tuning, what differs from the base
    "stale": (["prefix", "sequence"], list(MEANS), [2.5e-4, 5e-4], [0.4, 1.6], [1, 2], {}),
    "episodes": (["prefix", "turn", "sequence"], list(MEANS), [2.5e-4, 5e-4], [0.4, 1.6], [1, 2], {}),
    "chain": (["prefix", "sequence"], ["p = 2"], [3e-5], [0.4], [1], {"train": {"rounds": 1, "eval_every": 1}}),
}
task = sys.argv[1]
scopes, means, rates, widths, tuning, other = TASKS[task]
cells = {"token": {}} | {f"{s}, {m}": {"scope": s} | MEANS[m] for s in scopes for m in means}


def table(values):
    return "{ " + ", ".join(f"{k} = {json.dumps(v)}" for k, v in values.items()) + " }"


def variant(name, cell, rate, width):
    objective = {"name": "policy"} | cell | {"inner": "token", "inner_low": width, "inner_high": width}
    print(f'\n[[variant]]\nname = "{name}"\nobjective = {table(objective)}\noptimizer = {{ learning_rate = {rate:g} }}')
    for section, values in other.items():
        print(f"{section} = {table(values)}")


def head(seeds, folder):
    print(f'[sweep]\nbase = "{folder}{task}.toml"\nseeds = {seeds}\nmetric = ["eval/greedy/pass@1", "eval/sampled/pass@1"]')


if len(sys.argv) == 2:
    head(tuning, sys.path[0] + "/../runs/bench/")
    for name, cell in cells.items():
        for rate in rates:
            for width in widths:
                variant(f"{name} at {rate:g} {width:g}", cell, rate, width)
    sys.exit()
best = {name: (-1, rates[0], widths[0]) for name in cells}
for name, rate, width, mean in re.findall(r"^\| ([^|]+) at (\S+) (\S+) \| \d+ \| ([\d.]+)", open(sys.argv[2]).read(), re.M):
    if float(mean) > best[name][0]:
        best[name] = float(mean), float(rate), float(width)
print(f"""# The power mean over tokens, prefixes, turns and responses on {task}.toml: each cell at the rate and
# width that was best on seeds {tuning} (bench/plane.py wrote this file). runs/results/plane.md has the protocol
# and the result.
#
#   onering sweep --out runs/out/bench/plane-{task} runs/bench/sweep-plane-{task}.toml
""")
head(list(range(101, 101 + int((sys.argv + ["20"])[3]))), "")
print('baseline = "token"')
for name, cell in cells.items():
    variant(name, cell, *best[name][1:])
for scope in scopes[:-1]:
    for mean in means:
        print(f'\n[[compare]]\nfirst = "{scope}, {mean}"\nsecond = "sequence, {mean}"')
