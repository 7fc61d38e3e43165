#!/usr/bin/env python3
"""Prints how far off policy the paper's rule for p sees the responses, by optimizer step.

    python3 bench/ess.py runs/out/bench/ess

The argument is the folder of a sweep of PMPO, such as runs/bench/sweep-ess.toml. For steps
2, 4, 8, ... of a round each cell has the standard deviation of the tokens' log-ratios, the
share f of tokens whose log-ratio is beyond eps_ess, the effective sample size at p_max and
the target that p is solved for, as means over rounds and seeds. p falls below p_max where
the effective sample size is below the target. Then come the range of the mean p of a step
and the share of responses at p_max, of all steps, and pass@1 after the run, greedily and
sampled, with standard errors.
"""
import glob, json, os, re, sys
from statistics import mean, stdev

NAMES = "delta/std", "clip_fraction", "ess_at_p_max", "target_ess"
SUITES = "eval/greedy/pass@1", "eval/sampled/pass@1"


def read(path):
    """The records of a run's steps with the step of the round, from 1, and the last evaluation."""
    steps, evaluation = [], {}
    for line in open(path):
        m = json.loads(line)
        if m["kind"] == "step":
            steps.append((steps[-1][0] + 1 if steps and steps[-1][1]["round"] == m["round"] else 1, m))
        elif m["kind"] == "eval":
            evaluation = m
    return steps, evaluation


variants = {}
for run in glob.glob(f"{glob.escape(sys.argv[1])}/*/seed-*/metrics.jsonl"):
    if os.path.exists(os.path.dirname(run) + "/result.json"):
        variants.setdefault(run.split("/")[-3], []).append(read(run))
if not variants:
    sys.exit(f"ess.py: {sys.argv[1]} has no finished run: run runs/bench/sweep-ess.toml with --out {sys.argv[1]} first")
last = max(at for runs in variants.values() for steps, _ in runs for at, _ in steps)
columns = [2**i for i in range(1, last.bit_length())]
print("| variant | seeds | " + " | ".join(f"step {s}" for s in columns) + " | p of a step | at p_max, % | greedy, % | sampled, % |")
print("|---|--:|" + "--:|" * (len(columns) + 4))
for name, runs in sorted(variants.items(), key=lambda v: [int(n) for n in re.findall(r"\d+", v[0])]):
    cells = [re.sub(r"(?<!e)-", " ", name), str(len(runs))]
    for s in columns:
        there = [m for steps, _ in runs for at, m in steps if at == s]
        cells.append(" / ".join(f"{mean(m[n] for m in there):.2f}" for n in NAMES) if there else "")
    every = [m for steps, _ in runs for _, m in steps]
    ps = [m["p/mean"] for m in every]
    cells += [f"{min(ps):.2f} to {max(ps):.2f}", f"{100 * mean(m['p/share_at_max'] for m in every):.2f}"]
    for suite in SUITES:
        values = [100 * e[suite] for _, e in runs]
        cells.append(f"{mean(values):.1f}" + (f" ± {stdev(values) / len(values)**0.5:.1f}" if len(values) > 1 else ""))
    print("| " + " | ".join(cells) + " |")
