#!/usr/bin/env python3
"""Writes split.jsonl: what the reference's Split makes of random texts, by behavior.

    pip install tokenizers==0.23.3
    python3 split.py
"""
import json
import os
import sys

sys.path = [p for p in sys.path if p != os.path.dirname(os.path.abspath(__file__))]  # random.py is beside this file
import random

from tokenizers import Regex, pre_tokenizers

HERE = os.path.dirname(os.path.abspath(__file__))
PATTERNS = [("String", " "), ("String", "ab"), ("Regex", r"\p{N}{1,2}|\s+"), ("Regex", r" ?\p{L}+|\p{N}"), ("Regex", r"b\s+(?!\S)|b")]


def main():
    rng = random.Random(5)
    with open(os.path.join(HERE, "split.jsonl"), "w") as f:
        for kind, pattern in PATTERNS:
            for behavior in ["isolated", "removed", "merged_with_previous", "merged_with_next", "contiguous"]:
                for invert in [False, True]:
                    split = pre_tokenizers.Split(Regex(pattern) if kind == "Regex" else pattern, behavior, invert)
                    name = "".join(w.capitalize() for w in behavior.split("_"))
                    rows = []
                    for _ in range(12):
                        text = "".join(rng.choice("ab 1é \n") for _ in range(rng.randrange(12)))
                        rows.append([text, [p for p, _ in split.pre_tokenize_str(text)]])
                    f.write(json.dumps({"kind": kind, "pattern": pattern, "behavior": name, "invert": invert, "rows": rows}, ensure_ascii=False) + "\n")


main()
