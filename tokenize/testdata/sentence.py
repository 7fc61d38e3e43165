#!/usr/bin/env python3
"""Writes sentence.json: small vocabularies in the style of Llama 2 and what the reference makes with them.

    pip install tokenizers==0.23.3
    python3 sentence.py
"""
import json
import os
import random

from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers, trainers

HERE = os.path.dirname(os.path.abspath(__file__))
TEXT = ["The quick brown fox jumps over the lazy dog, then counts 12 345 apples.", "x = f(y) + 1\n  return x  # done", "là où ça naît; 日本語 テスト",
        "the theme of the thesis is there", "  spaces   in   a   row ", "What is 17 * 23? It is 391."] * 4
LEGACY = {"normalizer": {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁"}, {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]},
          "pre_tokenizer": None,
          "decoder": {"type": "Sequence", "decoders": [{"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"},
                                                       {"type": "Strip", "content": " ", "start": 1, "stop": 0}]}}


def metaspace(scheme, split):
    stage = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": split}
    return {"normalizer": None, "pre_tokenizer": stage, "decoder": dict(stage)}


FORMS = {"legacy": LEGACY, "always": metaspace("always", True), "first": metaspace("first", False), "never": metaspace("never", True),
         "mixed": dict(metaspace("first", False), decoder=LEGACY["decoder"])}


def main():
    rng = random.Random(7)
    t = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    t.pre_tokenizer = pre_tokenizers.Metaspace(split=True)
    special = ["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)]
    t.train_from_iterator(TEXT, trainers.BpeTrainer(vocab_size=460, special_tokens=special, show_progress=False))
    base = json.loads(t.to_str())
    base["added_tokens"] = [dict(id=i, content=c, single_word=False, lstrip=l, rstrip=r, normalized=n, special=s)
                            for i, c, l, r, n, s in [(0, "<unk>", 0, 0, 0, 1), (1, "<s>", 0, 0, 0, 1), (2, "</s>", 0, 0, 0, 1)]]
    n = len(base["model"]["vocab"])
    base["added_tokens"] += [dict(id=n, content="<mask>", single_word=False, lstrip=True, rstrip=False, normalized=False, special=True),
                             dict(id=n + 1, content="of the", single_word=True, lstrip=False, rstrip=True, normalized=True, special=False)]
    for a in base["added_tokens"]:
        a.update({k: bool(v) for k, v in a.items() if v in (0, 1) and k != "id"})
    pool = list("  abcdethTHE.,\n\té日本😀▁<>0x19sS") + ["<s>", "</s>", "<mask>", " of the ", "the", "  ", "<0x41>", "\u0301", "\u200d"]
    texts = ["", " ", "  ", "a", " a", "▁", "▁ a", "the", "<s>the</s> the", "x<mask>  y", "of the of the end", "日本語😀", "é\u0301", "a\n\n b"]
    texts += ["".join(rng.choice(pool) for _ in range(rng.randint(1, 16))) for _ in range(120)]
    rows = []
    for name, form in FORMS.items():
        for model in ("full", "nobytes"):
            d = json.loads(json.dumps(dict(base, **form)))
            if model == "nobytes":  # characters become unknown
                d["model"]["byte_fallback"] = False
                d["model"]["fuse_unk"] = name != "first"
            tok = Tokenizer.from_str(json.dumps(d))
            ids = [tok.encode(x, add_special_tokens=False).ids for x in texts]
            lists = ids[::3] + [[rng.randrange(n + 2) if rng.random() < .4 else rng.randrange(3, 259) for _ in range(rng.randint(0, 9))] for _ in range(60)]
            rows.append(dict(name=f"{name}-{model}", form=form, byte_fallback=d["model"]["byte_fallback"], fuse_unk=d["model"]["fuse_unk"], all_ids=ids, lists=lists,
                             decoded=[tok.decode(x, skip_special_tokens=False) for x in lists], skipped=[tok.decode(x) for x in lists]))
    with open(os.path.join(HERE, "sentence.json"), "w", encoding="utf-8") as out:
        json.dump(dict(base=base, texts=texts, rows=rows), out)


main()
