#!/usr/bin/env python3
"""Writes random.jsonl: random texts and ids of all of Unicode, and what the reference makes of them.

    pip install tokenizers==0.23.3
    python3 random.py

The vocabularies are those of qwen/ and sentence.json; the stages around them are those of Qwen2, Llama 3, SmolLM2
and, in two spellings, Llama 2. A line has a text with its ids by each, or ids with the texts that they stand for.
"""
import sys

sys.path.pop(0)  # this folder: the file's name is also a module's
import json
import os
import random
import unicodedata

from tokenizers import Tokenizer

HERE = os.path.dirname(os.path.abspath(__file__))
R = random.Random(16)
BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
          r"|\s*[\r\n]+|\s+(?!\S)|\s+")

KINDS = {}
for point in range(0x110000):
    if not 0xD800 <= point < 0xE000:
        KINDS.setdefault(unicodedata.category(chr(point)), []).append(chr(point))


def kinds(*names):
    return [c for k in KINDS for c in KINDS[k] if k in names or k[0] in names]


LETTERS, MARKS, DIGITS, CONTROLS, SIGNS, UNASSIGNED = kinds("L"), kinds("M"), kinds("N"), kinds("Cc", "Cf"), kinds("P", "S"), kinds("Cn", "Co")
COMPOSED = [c for c in LETTERS + MARKS if unicodedata.decomposition(c)]
SPACES = [chr(c) for c in [*range(9, 14), *range(0x1C, 0x21), 0x85, 0xA0, 0x1680, 0x180E, *range(0x2000, 0x2010), 0x2028, 0x2029, 0x202F, 0x205F, 0x2060, 0x3000, 0xFEFF]]
EMOJI = ["👩‍👩‍👧‍👦", "🏳️‍🌈", "🇩🇪", "🇩", "👍🏽", "❤️‍🔥", "1️⃣", "\u200d", "\ufe0f", "🏴\U000e0067\U000e0062\U000e007f"]
SPECIAL = ["<|im_start|>", "<|im_end|>", "<|endoftext|>", "<tool_call>", "<s>", "</s>", "<unk>", "<mask>", "<0x41>", "<0xE6>", "▁", "▁▁", " of the "]
WORDS = ["'s", "'S", "'ſ", "'LL", "'ve", " it's", "don’t", "hello", " world", "The", "\\frac{1}{2}", "def f(x):\n    return x", "\r\n", "\n\n", "  ", "12345", "3.14159", "=>", "日本語",
         "한국어", "\u1100\u1161\u11a8", "русский", "ภาษา", "हिन्दी", "e\u0301", "ﬁ", "\u212b", "ǆ", "İ", "ß"]


def point():
    low, high = R.choice([(0, 0x80), (0, 0x800), (0, 0xD800), (0xE000, 0x10000), (0x10000, 0x20000), (0x10000, 0x110000)])
    return chr(R.randrange(low, high))


def special():
    s = R.choice(SPECIAL)
    return s if R.random() < .7 else s[:R.randrange(len(s))]


PIECES = [point, special, lambda: R.choice(SPACES) * R.choice([1, 1, 1, 2, 3, 7]), lambda: R.choice(MARKS), lambda: "".join(R.choices(DIGITS, k=R.randint(1, 5))),
          lambda: "".join(R.choices(LETTERS, k=R.randint(1, 3))), lambda: R.choice(CONTROLS), lambda: R.choice(SIGNS) * R.choice([1, 1, 2, 3]), lambda: R.choice(UNASSIGNED),
          lambda: R.choice(COMPOSED), lambda: R.choice(EMOJI), lambda: R.choice(MARKS) * R.choice([5, 20]), lambda: "".join(R.choices("abij ABZ0129,.'\"\n\t-", k=R.randint(1, 6))),
          lambda: R.choice(WORDS), lambda: R.choice(WORDS)]


def tokenizers():
    with open(os.path.join(HERE, "qwen", "tokenizer.json"), encoding="utf-8") as f:
        qwen = json.load(f)
    with open(os.path.join(HERE, "sentence.json"), encoding="utf-8") as f:
        sentence = json.load(f)
    forms = {r["name"]: r["form"] for r in sentence["rows"]}

    def stages(*first, **model):
        return dict(qwen, normalizer=None, pre_tokenizer={"type": "Sequence", "pretokenizers": list(first)}, model=dict(qwen["model"], **model))

    return {
        "qwen": qwen,
        "llama3": stages({"type": "Split", "pattern": {"Regex": LLAMA3}, "behavior": "Isolated", "invert": False}, dict(BYTE_LEVEL, use_regex=False), ignore_merges=True),
        "smollm2": stages({"type": "Digits", "individual_digits": True}, BYTE_LEVEL),
        "legacy": dict(sentence["base"], **forms["legacy-full"]), "metaspace": dict(sentence["base"], **forms["mixed-full"]),
    }


def main():
    with open(os.path.join(HERE, "random.jsonl"), "w", encoding="utf-8") as out:
        def put(**row):
            out.write(json.dumps(row) + "\n")
        made = {}
        for name, content in tokenizers().items():
            made[name] = Tokenizer.from_str(json.dumps(content))
            if name != "qwen":
                put(kind="tokenizer", name=name, of="sentence" if name in ("legacy", "metaspace") else "qwen",
                    stages={k: content[k] for k in ("normalizer", "pre_tokenizer", "decoder")}, whole=content["model"].get("ignore_merges", False))
        texts = ["".join(R.choice(PIECES)() for _ in range(R.choice([1, 1, 2, 3, 5, 8]))) for _ in range(160)] + [R.choice(WORDS) * 80 for _ in range(4)]
        for text in texts:
            put(kind="text", text=text, ids={n: t.encode(text, add_special_tokens=False).ids for n, t in made.items()})
        for name, t in made.items():
            n, added = t.get_vocab_size(), sorted(t.get_added_tokens_decoder())
            for _ in range(60):
                ids = [R.choice([R.randrange(260), R.randrange(260), R.randrange(n), R.choice(added)]) for _ in range(R.randrange(14))]
                put(kind="ids", name=name, list=ids, decoded=t.decode(ids, skip_special_tokens=False), skipped=t.decode(ids))


main()
