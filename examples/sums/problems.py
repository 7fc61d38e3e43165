#!/usr/bin/env python3
"""Writes small sums told in words: train.jsonl and heldout.jsonl (128 problems).

    python examples/sums/problems.py FOLDER

A problem has a number from 2 to 20 and one from 2 to 9, written as words, and
asks for their sum or their difference in one of ten stories. A calculation is
in one of the files only (3 + 14 and 14 + 3 count as one), so that the held-out
problems ask for what training never had. The files are the same on every
machine. Needs nothing but Python 3.
"""
import json, os, random, sys

NAMES = "Tom Anna Ben Clara David Ella Frank Grace Henry Iris Jack Kate Leo Mia Noah Olivia Paul Ruth Sam Tina".split()
THINGS = "apples books coins stamps pencils shells cards marbles buttons eggs stickers cookies stones flowers balls".split()
WORDS = "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen twenty".split()
SUMS = [
    "{x} has {a} {t} and buys {b} more. How many {t} does {x} have now?",
    "{x} has {a} {t}. {y} has {b} {t}. How many {t} do they have together?",
    "There are {a} {t} on the table and {b} {t} in a box. How many {t} are there in all?",
    "{x} found {a} {t} in the morning and {b} in the afternoon. How many {t} did {x} find?",
    "{y} gives {x} {b} {t}. {x} had {a} {t} before. How many {t} does {x} have now?",
]
DIFFERENCES = [
    "{x} has {a} {t} and gives {b} of them to {y}. How many {t} does {x} have left?",
    "There are {a} {t} in a box. {x} takes out {b}. How many {t} are still in the box?",
    "{x} has {a} {t} and {y} has {b}. How many more {t} does {x} have than {y}?",
    "{x} had {a} {t} and lost {b} of them. How many {t} are left?",
    "{x} had {a} {t} and gave {y} {b}. How many {t} does {x} have now?",
]
HELD_OUT, PROBLEMS, REPEATS = 80, 128, 7  # held-out calculations, problems made of them, problems of each other calculation


def problem(rng, plus, a, b):
    if plus and rng.random() < 0.5:
        a, b = b, a
    x, y = rng.sample(NAMES, 2)
    text = rng.choice(SUMS if plus else DIFFERENCES).format(x=x, y=y, t=rng.choice(THINGS), a=WORDS[a], b=WORDS[b])
    return {"problem": text, "answer": str(a + b if plus else a - b)}


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    rng = random.Random(0)
    numbers = [(a, b) for a in range(2, 21) for b in range(2, 10)]
    calculations = sorted({(True, max(p), min(p)) for p in numbers} | {(False, a, b) for a, b in numbers if b < a})
    rng.shuffle(calculations)
    held_out, others = calculations[:HELD_OUT], calculations[HELD_OUT:]
    os.makedirs(sys.argv[1], exist_ok=True)
    for name, part in (("heldout", (held_out * 2)[:PROBLEMS]), ("train", others * REPEATS)):
        with open(os.path.join(sys.argv[1], name + ".jsonl"), "w") as f:
            f.writelines(json.dumps(problem(rng, *c)) + "\n" for c in part)


main()
