#!/usr/bin/env python3
"""Puts scratch before the responses of `onering data arithmetic`.

    onering data arithmetic -n 16000 | python3 bench/scratch.py --seed 1 > long.jsonl

The scratch is 20 to 60 digits that the student makes up, the digit d with a probability
in proportion to 1/(d+1)^2: half of the tokens of a response are then free, some of them
rare, and none decides whether the response is right.
"""
import argparse, json, random, sys

a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
a.add_argument("--seed", type=int, default=0)
r = random.Random(a.parse_args().seed)
weights = [1 / (d + 1) ** 2 for d in range(10)]
for line in sys.stdin:
    row = json.loads(line)
    scratch = "".join(map(str, r.choices(range(10), weights, k=r.randint(20, 60))))
    row["response"] = scratch + ";" + row["response"]
    print(json.dumps(row))
